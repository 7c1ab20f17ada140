"""The paths of schedulers, workers and keepers: they run in processes that may be killed."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from uuid import UUID

import msgspec
from sweep_place import (
    LEASE,
    PATIENCE,
    POOLS,
    Given,
    Path,
    Place,
    dead,
    endings,
    queued,
    said,
    taken,
)

from detent.cli.wiring import PostgresPort, PostgresPulse
from detent.dispatch.claimer import LEAD
from detent.execute.retry import Persistent
from detent.finish.rescuer import Rescuer
from detent.finish.timeouts import TimeoutKeeper
from detent.fire import firer as firing
from detent.fire.firer import Firer
from detent.fire.node import Node
from detent.model.errors import StoreUnavailable
from detent.model.ids import new_incarnation_id
from detent.model.work import Beat, Claim, LogChunk, WorkerInfo
from detent.runtime.notify import Notifier
from detent.store.dead_letters import replay
from detent.store.jobs import (
    cancel_execution,
)
from stage import MINUTE, SECOND, TENANT, Stage

AHEAD = SECOND * 25  # longer than a walk takes
LEADS = firing.LEAD, firing.LEAD_MOST

# A scheduler's


class Fire(Path):
    killed = True

    async def prepare(self, stage: Stage) -> Given:
        once = await stage.once(name="once")
        late = await stage.every(60, MINUTE * 5 + SECOND * 30, name="recurring")
        cron = await stage.job(stage.now() - SECOND * 20, name="cron", cron="0 0 1 1 *")
        return Given([once, late, cron])

    async def walk(self, place: Place, given: Given) -> None:
        node = Node(place.hot, place.clock, changed=lambda _: None)
        node.epochs = dict.fromkeys(range(256), 1)
        firer = Firer(place.hot, place.clock, node, Notifier(place.db))
        await place.heard(firer.run_once)
        await place.heard(firer.run_once)


class StageAhead(Path):
    """Fires that are committed ahead of their instants."""

    killed = True

    async def prepare(self, stage: Stage) -> Given:
        once = await stage.once(-AHEAD, name="once")
        every = await stage.every(3600, -AHEAD, name="recurring")
        return Given([once, every, await stage.once(name="due")])

    async def walk(self, place: Place, given: Given) -> None:
        firing.LEAD = firing.LEAD_MOST = 2 * AHEAD
        try:
            await Fire().walk(place, given)
        finally:
            firing.LEAD, firing.LEAD_MOST = LEADS


class Park(Path):
    """A rule that raises."""

    killed = True

    async def prepare(self, stage: Stage) -> Given:
        jobs = [await stage.every(60, SECOND, name="good"), await stage.every(60, SECOND, name="bad")]
        await stage.db.execute(
            """update detent.job_revisions set spec = jsonb_set(spec::jsonb, '{every}', '-5') where job_id = $1""",
            jobs[1],
        )
        return Given(jobs)

    walk = Fire.walk


class Shards(Path):
    killed = True

    async def prepare(self, stage: Stage) -> Given:
        return Given()

    async def walk(self, place: Place, given: Given) -> int:
        node = Node(place.hot, place.clock, changed=lambda _: None)
        await place.heard(node.run_once)
        await place.heard(node.run_once)
        if node._lock is not None:
            await node._lock.close()
        return len(node.epochs)


# A worker's


class ClaimWork(Path):
    """From two pools, one with a payload of its own: after the statement that takes come others that read."""

    killed = True

    async def prepare(self, stage: Stage) -> Given:
        given = await dead(stage, "d")
        assert given.execution is not None
        jobs = await queued(stage, "a", "b")
        jobs += await queued(stage, "c", pool="other")
        await replay(stage.db, TENANT, given.execution, '{"edited": true}', None, stage.now(), None)
        worker = await stage.worker(lease_seconds=LEASE, pools=POOLS)
        return Given(jobs + given.jobs, worker)

    async def walk(self, place: Place, given: Given) -> int:
        assert given.worker is not None
        port, worker = place.port, given.worker
        while claims := await place.heard(lambda: port.claim(worker, POOLS, 10)):
            place.held += claims
        return len({claim.execution_id for claim in place.held})


class ClaimAhead(Path):
    """What is due soon, from two pools, and what is left for when it is due."""

    killed = True

    async def prepare(self, stage: Stage) -> Given:
        jobs = await queued(stage, "a", "b", "c")
        jobs += await queued(stage, "d", pool="other")
        await stage.db.execute(
            "update detent.live set not_before = $1, rank = detent.rank($1::timestamptz, class)",
            stage.now() + LEAD - timedelta(milliseconds=100),
        )
        return Given(jobs, await stage.worker(lease_seconds=LEASE, pools=POOLS))

    async def walk(self, place: Place, given: Given) -> int:
        assert given.worker is not None
        port, worker = place.port, given.worker
        while True:
            ahead = await place.heard(lambda: port.claim_ahead(worker, POOLS, 2))
            due = await place.heard(lambda: port.claim(worker, POOLS, 10))
            if not ahead.staged and not due:
                return len({claim.execution_id for claim in place.held})
            place.held += [claim for claim, _ in ahead.staged] + due


class Log(Path):
    killed = True

    async def prepare(self, stage: Stage) -> Given:
        return await taken(stage, "a", "b")

    async def walk(self, place: Place, given: Given) -> int:
        place.held += given.claims
        now = place.clock.now()
        chunks = [
            LogChunk(c.execution_id, c.attempt, c.token, seq, "stdout", now, f"line {seq}\n")
            for c in given.claims
            for seq in range(3)
        ]
        refused: list[Exception] = []
        stale = await Persistent("logs").send(place.port.log, chunks, lambda _, e: refused.append(e))
        return len(stale) + len(refused)


class Beats(Path):
    """A heartbeat that brings an order back."""

    killed = True

    async def prepare(self, stage: Stage) -> Given:
        given = await taken(stage, "a", "b")
        await cancel_execution(stage.db, TENANT, given.claims[0].execution_id, stage.now(), None)
        return given

    async def walk(self, place: Place, given: Given) -> tuple[bool, int, int]:
        place.held += given.claims
        holding = tuple((c.execution_id, c.attempt, c.token) for c in given.claims)

        async def beat() -> tuple[bool, int, int]:
            pulse = PostgresPulse(await place.hot.dedicated())
            try:
                assert given.worker is not None
                orders = await pulse.beat(given.worker, Beat(holding))
            finally:
                await pulse.close()
            return orders.alive, len(orders.cancel), len(orders.stale)

        return await place.heard(beat)


class Finish(Path):
    killed = True
    outcome, fields = "succeeded", {"callback_url": "http://127.0.0.1:9/"}

    async def prepare(self, stage: Stage) -> Given:
        return await taken(stage, "a", "b", **self.fields)

    async def walk(self, place: Place, given: Given) -> int:
        return await said(place, endings(place.clock, given.claims, self.outcome))


class FinishFailure(Finish):
    outcome, fields = "failed", {"max_retries": 2, "retry_delay_seconds": 5.0}


class FinishDead(Finish):
    outcome, fields = "failed", {"max_retries": 0, "callback_url": "http://127.0.0.1:9/"}


class FinishCancelled(Finish):
    """Asked to cancel while it ran, and it failed instead: the first statement leaves it to the second."""

    outcome, fields = "failed", {"callback_url": "http://127.0.0.1:9/"}

    async def prepare(self, stage: Stage) -> Given:
        given = await super().prepare(stage)
        for claim in given.claims:
            await cancel_execution(stage.db, TENANT, claim.execution_id, stage.now(), None)
        return given


class FinishMixed(Path):
    """One batch with every kind of end, and one that is not ours any more."""

    killed = True

    async def prepare(self, stage: Stage) -> Given:
        given = await taken(stage, "done", "again", "dead", "cancelled", "released", max_retries=1)
        await cancel_execution(stage.db, TENANT, given.claims[3].execution_id, stage.now(), None)
        stale = msgspec.structs.replace(given.claims[0], token=given.claims[0].token - 1)
        given.claims.append(stale)
        return given

    async def walk(self, place: Place, given: Given) -> int:
        clock, (done, again, dead, cancelled, released, stale) = place.clock, given.claims
        batch = [
            *endings(clock, [done], "succeeded"),
            *endings(clock, [again], "failed"),
            *endings(clock, [dead], "failed", retryable=False),
            *endings(clock, [cancelled], "cancelled"),
            *endings(clock, [released], "released"),
            *endings(clock, [stale], "failed"),
        ]
        return await said(place, batch)


class Release(Path):
    """A worker that drains hands back what it did not start, also what was asked to cancel meanwhile."""

    killed = True

    async def prepare(self, stage: Stage) -> Given:
        given = await taken(stage, "a", "b", callback_url="http://127.0.0.1:9/")
        await cancel_execution(stage.db, TENANT, given.claims[0].execution_id, stage.now(), None)
        return given

    async def walk(self, place: Place, given: Given) -> None:
        assert given.worker is not None
        worker, port = given.worker, place.port
        await place.heard(lambda: port.release(worker, given.claims))
        await place.heard(lambda: port.stop(worker))


class WholeLife(Path):
    """Fired, claimed, logged, failed, claimed again, done; then the worker leaves."""

    killed = True

    async def prepare(self, stage: Stage) -> Given:
        return Given([await stage.once(name="life", max_retries=1, retry_delay_seconds=0.0)])

    async def walk(self, place: Place, given: Given) -> int:
        await Fire().walk(place, given)
        port = place.port
        info = WorkerInfo(new_incarnation_id(), "worker", "here", 1, POOLS, 10, ("noop",))
        await place.heard(lambda: port.register(info, LEASE))
        told = 0
        for outcome in ("failed", "succeeded"):
            claim = await self._claim(place, port, info.worker_id)
            chunk = LogChunk(
                claim.execution_id, claim.attempt, claim.token, 0, "log", place.clock.now(), outcome
            )
            await place.heard(lambda chunk=chunk: port.log([chunk]))  # type: ignore[misc]
            told += await said(place, endings(place.clock, [claim], outcome))
        await place.heard(lambda: port.stop(info.worker_id))
        return told

    async def _claim(self, place: Place, port: PostgresPort, worker: UUID) -> Claim:
        async with asyncio.timeout(PATIENCE):
            while not (claims := await place.heard(lambda: port.claim(worker, POOLS, 1))):
                await asyncio.sleep(0.002)
        return claims[0]


class StopInDoubt(Path):
    """A worker stops right after a claim of whose answer it knows nothing."""

    killed = True

    async def prepare(self, stage: Stage) -> Given:
        jobs = await queued(stage, "a", "b")
        return Given(jobs, await stage.worker(lease_seconds=LEASE))

    async def walk(self, place: Place, given: Given) -> None:
        assert given.worker is not None
        worker, port = given.worker, place.port
        claims: list[Claim] = []
        with contextlib.suppress(StoreUnavailable):
            claims = await port.claim(worker, POOLS, 10)
        if claims:
            await place.heard(lambda: port.release(worker, claims))
        await place.heard(lambda: port.stop(worker))


# A keeper's


class Rescue(Path):
    killed = True

    async def prepare(self, stage: Stage) -> Given:
        given = await taken(stage, "a", "b", "c", callback_url="http://127.0.0.1:9/")
        await cancel_execution(stage.db, TENANT, given.claims[1].execution_id, stage.now(), None)
        await stage.db.execute("update detent.workers set beat_at = clock_timestamp() - interval '1 hour'")
        return given

    async def walk(self, place: Place, given: Given) -> None:
        rescuer = Rescuer(place.db, place.clock, Notifier(place.db))
        present = "select count(*) from detent.workers where status = 'live'"
        async with asyncio.timeout(PATIENCE):
            while True:
                await place.heard(rescuer.run_once)
                if not await place.heard(lambda: place.db.fetchval(present)):
                    return
                await asyncio.sleep(LEASE)


class OutOfTime(Path):
    """One waits past its deadline, one runs past it."""

    killed = True

    async def prepare(self, stage: Stage) -> Given:
        given = await taken(stage, "runs", deadline_seconds=10.0)
        given.jobs += await queued(stage, "waits", deadline_seconds=10.0)
        await stage.db.execute("update detent.live set deadline_at = clock_timestamp() - interval '1 hour'")
        return given

    async def walk(self, place: Place, given: Given) -> None:
        keeper = TimeoutKeeper(place.db, place.clock, Notifier(place.db))
        await place.heard(keeper.run_once)
        await place.heard(keeper.run_once)
