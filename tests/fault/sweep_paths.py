"""The paths along which the system commits: each set up, walked by the code that walks it in production, and told.

A path is walked through the proxy, in this process or in one that is killed. What a caller does about a
store that is away belongs to the path: services tick again, a worker says it again, a client repeats its
request under the same key. What is left open afterwards is worked off by others, past the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from detent.api import decide
from detent.api.job_fields import Definition
from detent.cli.wiring import PostgresPort, PostgresPulse
from detent.execute.retry import Persistent
from detent.finish.rescuer import Rescuer
from detent.finish.timeouts import TimeoutKeeper
from detent.fire.firer import Firer
from detent.fire.node import Node
from detent.model.errors import StoreUnavailable
from detent.model.execution import ErrorInfo
from detent.model.ids import new_incarnation_id, new_job_id
from detent.model.job import JobSpec, PythonTask
from detent.model.work import Beat, Claim, Finished, LogChunk, WorkerInfo
from detent.runtime.clock import Clock
from detent.runtime.notify import Notifier
from detent.store import timers
from detent.store.database import Database
from detent.store.dead_letters import discard, replay
from detent.store.jobs import (
    Draft,
    RequestKey,
    cancel_execution,
    cancel_job,
    change_job,
    create_jobs,
    put_by_name,
    run_job,
)
from stage import MINUTE, SECOND, TENANT, Stage

T = TypeVar("T")

PATIENCE = 15.0
LEASE = 0.05
POOLS = ("default", "other")


class Given(msgspec.Struct):
    """What a path finds when it begins. Passed as JSON to a process that will be killed."""

    jobs: list[UUID] = []
    worker: UUID | None = None
    claims: list[Claim] = []
    execution: UUID | None = None


@dataclass
class Place:
    """One process's way to the database."""

    db: Database
    hot: Database
    clock: Clock
    held: list[Claim]  # what the worker here believes to hold at the end of the path

    @property
    def port(self) -> PostgresPort:
        return PostgresPort(self.hot, self.clock, Notifier(self.db))


@contextlib.asynccontextmanager
async def place_at(url: str) -> AsyncIterator[Place]:
    db = await Database.open(url, size=1, application_name="detent sweep")
    hot = await Database.open(url, size=1, application_name="detent sweep", hot=True)
    clock = Clock()
    await clock.sample(lambda: timers.clock_us(hot))
    try:
        yield Place(db, hot, clock, [])
    finally:
        await hot.close()
        await db.close()


async def heard(step: Callable[[], Awaitable[T]]) -> T:
    """Repeat while the store is away, as a service, a worker or a client does."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await step()
            except StoreUnavailable:
                await asyncio.sleep(0.005)


class Path:
    """`told` is what the caller hears in the end. `killed`: it runs in a process that may be killed."""

    killed = False

    async def prepare(self, stage: Stage) -> Given:
        raise NotImplementedError

    async def walk(self, place: Place, given: Given) -> Any:
        raise NotImplementedError


async def queued(stage: Stage, *names: str, **fields: Any) -> list[UUID]:
    """One-time jobs, fired and not yet claimed."""
    jobs = [await stage.once(name=name, **fields) for name in names]
    assert await stage.fire() == len(jobs)
    return jobs


async def taken(stage: Stage, *names: str, **fields: Any) -> Given:
    """The same, claimed by one worker."""
    jobs = await queued(stage, *names, **fields)
    worker = await stage.worker(lease_seconds=LEASE)
    claims = await stage.claim(worker)
    assert len(claims) == len(jobs)
    return Given(jobs, worker, sorted(claims, key=lambda claim: jobs.index(claim.job_id)))


def endings(clock: Clock, claims: list[Claim], outcome: str, *, retryable: bool = True) -> list[Finished]:
    now = clock.now()
    error = None if outcome == "succeeded" else ErrorInfo("Trouble", f"it {outcome}")
    result = '"done"' if outcome == "succeeded" else None
    return [Finished(claim, outcome, now, now, result, error, retryable) for claim in claims]  # type: ignore[arg-type]


async def said(place: Place, batch: list[Finished]) -> int:
    """Report ended attempts as a worker does; how many were recorded."""
    refused: list[Exception] = []
    recorded = await Persistent("reports").send(
        place.port.finish, batch, lambda _, error: refused.append(error)
    )
    assert not refused, refused
    return len(recorded)


# A scheduler's


class Fire(Path):
    killed = True

    async def prepare(self, stage: Stage) -> Given:
        once = await stage.once(name="once")
        late = await stage.every(60, MINUTE * 5 + SECOND * 30, name="recurring")
        cron = await stage.job(stage.now() - SECOND * 20, name="cron", cron="0 0 1 1 *")
        return Given([once, late, cron])

    async def walk(self, place: Place, given: Given) -> None:
        node = Node(place.hot, place.clock, changed=lambda: None)
        node.epochs = dict.fromkeys(range(256), 1)
        firer = Firer(place.hot, place.clock, node, Notifier(place.db))
        await heard(firer.run_once)
        await heard(firer.run_once)


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
        node = Node(place.hot, place.clock, changed=lambda: None)
        await heard(node.run_once)
        await heard(node.run_once)
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
        while claims := await heard(lambda: port.claim(worker, POOLS, 10)):
            place.held += claims
        return len({claim.execution_id for claim in place.held})


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

        return await heard(beat)


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
        await heard(lambda: port.release(worker, given.claims))
        await heard(lambda: port.stop(worker))


class WholeLife(Path):
    """Fired, claimed, logged, failed, claimed again, done; then the worker leaves."""

    killed = True

    async def prepare(self, stage: Stage) -> Given:
        return Given([await stage.once(name="life", max_retries=1, retry_delay_seconds=0.0)])

    async def walk(self, place: Place, given: Given) -> int:
        await Fire().walk(place, given)
        port = place.port
        info = WorkerInfo(new_incarnation_id(), "worker", "here", 1, POOLS, 10, ("noop",))
        await heard(lambda: port.register(info, LEASE))
        told = 0
        for outcome in ("failed", "succeeded"):
            claim = await self._claim(port, info.worker_id)
            chunk = LogChunk(
                claim.execution_id, claim.attempt, claim.token, 0, "log", place.clock.now(), outcome
            )
            await heard(lambda chunk=chunk: port.log([chunk]))  # type: ignore[misc]
            told += await said(place, endings(place.clock, [claim], outcome))
        await heard(lambda: port.stop(info.worker_id))
        return told

    async def _claim(self, port: PostgresPort, worker: UUID) -> Claim:
        async with asyncio.timeout(PATIENCE):
            while not (claims := await heard(lambda: port.claim(worker, POOLS, 1))):
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
            await heard(lambda: port.release(worker, claims))
        await heard(lambda: port.stop(worker))


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
                await heard(rescuer.run_once)
                if not await heard(lambda: place.db.fetchval(present)):
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
        keeper = TimeoutKeeper(place.db, place.clock)
        await heard(keeper.run_once)
        await heard(keeper.run_once)


# A client's: each repeats its request with its key


def key(scope: str) -> RequestKey:
    return RequestKey(scope, "k", b"the same body")


class CancelQueued(Path):
    async def prepare(self, stage: Stage) -> Given:
        [job] = await queued(stage, "a", callback_url="http://127.0.0.1:9/")
        return Given([job], execution=(await stage.row("live", job))["execution_id"])

    async def walk(self, place: Place, given: Given) -> str:
        target = given.execution
        assert target is not None
        now = place.clock.now()
        answer = await heard(lambda: cancel_execution(place.db, TENANT, target, now, key("cancel")))
        return answer.execution.status


class CancelRunning(Path):
    async def prepare(self, stage: Stage) -> Given:
        given = await taken(stage, "a")
        given.execution = given.claims[0].execution_id
        return given

    async def walk(self, place: Place, given: Given) -> str:
        place.held += given.claims
        return await CancelQueued().walk(place, given)


class CancelJob(Path):
    """One that recurs, with something of it queued and something of it running."""

    async def prepare(self, stage: Stage) -> Given:
        job = await stage.every(60, SECOND, name="a")
        await stage.fire()
        worker = await stage.worker(lease_seconds=LEASE)
        claims = await stage.claim(worker)
        await run_job(stage.db, TENANT, job, "by hand", stage.now(), None)
        return Given([job], worker, claims)

    async def walk(self, place: Place, given: Given) -> str:
        place.held += given.claims
        now = place.clock.now()
        answer = await heard(lambda: cancel_job(place.db, TENANT, given.jobs[0], now, key("cancel")))
        return answer.job.status


async def dead(stage: Stage, name: str) -> Given:
    """A one-time job whose execution is a dead letter."""
    given = await taken(stage, name, max_retries=0)
    await stage.record(*endings(stage.clock, given.claims, "failed"))
    given.execution, given.claims = given.claims[0].execution_id, []
    return given


class Replay(Path):
    async def prepare(self, stage: Stage) -> Given:
        return await dead(stage, "a")

    async def walk(self, place: Place, given: Given) -> str:
        source = given.execution
        assert source is not None
        now = place.clock.now()
        run = await heard(
            lambda: replay(place.db, TENANT, source, '{"edited": 1}', "why", now, key("replay"))
        )
        return run.execution.status


class Discard(Path):
    async def prepare(self, stage: Stage) -> Given:
        return await dead(stage, "a")

    async def walk(self, place: Place, given: Given) -> None:
        source = given.execution
        assert source is not None
        await heard(lambda: discard(place.db, TENANT, source, "why", place.clock.now(), key("discard")))


class Create(Path):
    names: tuple[str, ...] = ("a",)

    async def prepare(self, stage: Stage) -> Given:
        return Given()

    async def walk(self, place: Place, given: Given) -> list[int]:
        def drafts() -> list[Draft]:
            now = place.clock.now()
            return [
                Draft(
                    new_job_id(now), JobSpec(name=name, task=PythonTask("noop"), every=60.0), "null",
                    now + MINUTE, name, RequestKey("jobs", name, b"the same body"),
                )
                for name in self.names
            ]  # fmt: skip

        made = await heard(lambda: create_jobs(place.db, TENANT, drafts(), place.clock.now()))
        # What was answered is what is there: of the same request, whichever try it was that made it.
        rows = await heard(lambda: place.db.fetch("select job_id from detent.jobs"))
        assert {one.job.job_id for one in made} == {row["job_id"] for row in rows}
        return [one.job.revision for one in made]


class CreateBatch(Create):
    names = ("a", "b", "c")


class PutByName(Path):
    async def prepare(self, stage: Stage) -> Given:
        return Given()

    async def walk(self, place: Place, given: Given) -> int:
        spec = JobSpec(name="named", task=PythonTask("noop"), every=60.0)

        async def put() -> int:
            now = place.clock.now()
            draft = Draft(new_job_id(now), spec, "null", now + MINUTE)
            wanted = Definition(spec, "null")
            changed = await put_by_name(
                place.db, TENANT, draft, lambda standing: decide.edit(standing, wanted, now), now, key("put")
            )
            return changed.job.revision

        return await heard(put)


class Edit(Path):
    async def prepare(self, stage: Stage) -> Given:
        return Given([await stage.every(60, -SECOND * 30, name="a")])

    def change(self, standing: Any, place: Place) -> Any:
        spec = msgspec.structs.replace(standing.job.spec, every=90.0, priority="high")
        return decide.edit(standing, Definition(spec, "7"), place.clock.now())

    async def walk(self, place: Place, given: Given) -> tuple[str, int]:
        changed = await heard(
            lambda: change_job(
                place.db, TENANT, given.jobs[0], lambda standing: self.change(standing, place),
                place.clock.now(), key("edit"),
            )
        )  # fmt: skip
        return changed.job.status, changed.job.revision


class Pause(Edit):
    def change(self, standing: Any, place: Place) -> Any:
        return decide.pause(standing)


class Resume(Edit):
    """After a while in which instants passed: they go into the ledger, once."""

    async def prepare(self, stage: Stage) -> Given:
        given = Given([await stage.every(60, MINUTE * 5 + SECOND * 30, name="a")])
        await change_job(stage.db, TENANT, given.jobs[0], decide.pause, stage.now(), None)
        return given

    def change(self, standing: Any, place: Place) -> Any:
        return decide.resume(standing, place.clock.now())


class RunByHand(Path):
    async def prepare(self, stage: Stage) -> Given:
        return Given([await stage.job(None, name="a")])

    async def walk(self, place: Place, given: Given) -> str:
        run = await heard(
            lambda: run_job(place.db, TENANT, given.jobs[0], "k", place.clock.now(), key("run"))
        )
        return run.execution.status


PATHS: dict[str, Path] = {
    "fire": Fire(),
    "park": Park(),
    "shards": Shards(),
    "claim": ClaimWork(),
    "log": Log(),
    "heartbeat": Beats(),
    "finish success": Finish(),
    "finish failure, retry": FinishFailure(),
    "finish failure, dead letter": FinishDead(),
    "finish cancelled": FinishCancelled(),
    "finish mixed": FinishMixed(),
    "release and stop": Release(),
    "stop in doubt": StopInDoubt(),
    "whole life": WholeLife(),
    "rescue": Rescue(),
    "out of time": OutOfTime(),
    "cancel queued": CancelQueued(),
    "cancel running": CancelRunning(),
    "cancel job": CancelJob(),
    "replay": Replay(),
    "discard": Discard(),
    "create": Create(),
    "create batch": CreateBatch(),
    "put by name": PutByName(),
    "edit": Edit(),
    "pause": Pause(),
    "resume": Resume(),
    "run by hand": RunByHand(),
}

DIES = [name for name, path in PATHS.items() if path.killed]


async def die_walking(name: str, url: str, given: bytes, ready: Callable[[], None]) -> None:
    """Walk a path in a process that is killed on the way."""
    async with place_at(url) as place:
        ready()
        await PATHS[name].walk(place, msgspec.json.decode(given, type=Given))
