"""Orders: what a beat brings back, and what a worker does about it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from spine_workers import at_work, until

from detent.cli.wiring import PostgresPulse
from detent.dispatch.rank import everything
from detent.execute.context import Context
from detent.execute.registry import Registry
from detent.execute.worker import Worker
from detent.model.job import PythonTask, ShellTask
from detent.model.work import Beat, Claim, Orders
from detent.runtime.notify import ORDERS, Listener
from detent.store import work
from detent.store.jobs import cancel_execution, cancel_job
from detent.store.sql import Queries
from stage import SECOND, TENANT, Stage

queries = Queries.load()
RUNNING = "select count(*) from detent.live where state = 'running'"
CLOSED = "select count(*) from detent.executions"


def held(claim: Claim) -> tuple[UUID, int, int]:
    return claim.execution_id, claim.attempt, claim.token


def pair(claim: Claim) -> tuple[UUID, int]:
    return claim.execution_id, claim.attempt


async def beat(stage: Stage, worker_id: UUID, *holding: tuple[UUID, int, int]) -> Orders:
    pulse = PostgresPulse(await stage.hot.dedicated())
    try:
        return await pulse.beat(worker_id, Beat(holding))
    finally:
        await pulse.close()


# What a beat says


async def test_a_beat_names_what_was_cancelled_and_what_is_lost_and_nothing_else(stage: Stage) -> None:
    await stage.jobs([stage.now() - SECOND] * 7, scheduled_at=stage.now())
    await stage.fire()
    worker_id = await stage.worker()
    mine, asked, ended, back, again, other, whole = await stage.claim(worker_id)
    await cancel_execution(stage.db, TENANT, asked.execution_id, stage.now(), None)
    await cancel_job(stage.db, TENANT, whole.job_id, stage.now(), None)
    await stage.record(
        stage.ended(ended, "succeeded"), stage.ended(back, "failed"), stage.ended(again, "released")
    )
    [second] = await stage.claim(worker_id)  # the one that was handed back, as another attempt
    assert second.execution_id == again.execution_id
    wrong = (other.execution_id, other.attempt, other.token - 1)

    orders = await beat(stage, worker_id, *map(held, (mine, asked, ended, back, again, second, whole)), wrong)
    assert (orders.alive, orders.draining) == (True, False)
    assert set(orders.cancel) == {pair(asked), pair(whole)}
    assert set(orders.stale) == {pair(ended), pair(back), pair(again), pair(other)}
    assert len(orders.cancel) + len(orders.stale) == 6


async def test_a_beat_hears_of_nothing_that_it_does_not_ask_about(stage: Stage) -> None:
    worker_id, claim = await stage.running()
    await cancel_execution(stage.db, TENANT, claim.execution_id, stage.now(), None)
    assert await beat(stage, worker_id) == Orders(alive=True, draining=False)
    assert (await beat(stage, worker_id, held(claim))).cancel == (pair(claim),)


async def test_a_beat_touches_no_row_of_an_attempt(stage: Stage) -> None:
    worker_id, claim = await stage.running()
    before = await stage.everything()
    rows = "select xmin::text, ctid::text from detent.live"
    version = await stage.db.fetch(rows)
    await beat(stage, worker_id, held(claim))
    assert await stage.everything() == before
    assert await stage.db.fetch(rows) == version


@pytest.mark.parametrize(("status", "alive"), [("draining", True), ("stopped", False), ("lost", False)])
async def test_a_beat_says_whether_the_worker_is_wanted(stage: Stage, status: str, alive: bool) -> None:
    worker_id = await stage.worker()
    await stage.db.execute("update detent.workers set status = $2 where worker_id = $1", worker_id, status)
    orders = await beat(stage, worker_id)
    assert (orders.alive, orders.draining) == (alive, status == "draining")


# What a worker does


class Tasks(Registry):
    """`hang` waits for ever and notes what became of it; `block` does so in a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[Context] = []
        self.stopped: list[UUID] = []

        async def hang(ctx: Context) -> None:
            self.started.append(ctx)
            try:
                await asyncio.sleep(600)
            finally:
                self.stopped.append(ctx.execution_id)

        self.register("hang", hang)

    async def until_started(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.started) < count:
                await asyncio.sleep(0.005)


async def queue(stage: Stage, count: int, task: PythonTask | ShellTask = PythonTask("hang")) -> list[UUID]:  # noqa: B008
    jobs = await stage.jobs([stage.now() - SECOND] * count, scheduled_at=stage.now(), task=task)
    assert await stage.fire() == count
    return jobs


@asynccontextmanager
async def notifying(stage: Stage):
    """The notifier sends what it is told."""
    running = asyncio.create_task(stage.notifier.run())
    try:
        yield
    finally:
        stage.notifier.stop()
        await running


async def test_a_cancelled_attempt_is_stopped_at_once_and_closes_as_cancelled(stage: Stage) -> None:
    """The beat is a minute away: it is the wake-up that hurries it."""
    tasks = Tasks()
    first, second = await queue(stage, 2)
    async with notifying(stage), at_work(stage, tasks) as worker:
        await tasks.until_started(2)
        await until(stage, RUNNING, 2)
        cancelled = await cancel_job(stage.db, TENANT, first, stage.now(), None)
        assert cancelled.workers == (worker.worker_id,)
        stage.notifier.orders(cancelled.workers)
        await until(stage, CLOSED, 1)
        closed = await stage.row("executions", first)
        assert (closed["status"], closed["reason"]) == ("cancelled", "the job was cancelled")
        assert tasks.stopped == [closed["execution_id"]]
        assert (await stage.row("live", second))["state"] == "running"
        assert {ctx.job_id: ctx.still_mine() for ctx in tasks.started} == {first: False, second: True}
        assert worker.stale_writes == 0
        await cancel_job(stage.db, TENANT, second, stage.now(), None)
        worker.orders_wait()
        await until(stage, CLOSED, 2)
    assert [row["outcome"] for row in await stage.rows("attempts")] == ["cancelled", "cancelled"]


async def test_a_cancelled_program_is_ended_with_its_children(stage: Stage) -> None:
    [job_id] = await queue(stage, 1, ShellTask("sleep 600 & sleep 600; wait"))
    async with notifying(stage), at_work(stage, Registry()) as worker:
        await until(stage, RUNNING, 1)
        cancelled = await cancel_job(stage.db, TENANT, job_id, stage.now(), None)
        stage.notifier.orders(cancelled.workers)
        await until(stage, CLOSED, 1)
        assert worker.in_flight == 0
    assert (await stage.row("executions", job_id))["status"] == "cancelled"


async def test_an_attempt_that_was_taken_away_is_stopped_and_says_nothing(stage: Stage) -> None:
    tasks = Tasks()
    taken, kept = await queue(stage, 2)
    async with at_work(stage, tasks) as worker:
        await tasks.until_started(2)
        # Somebody else has it by now, under another token.
        await stage.db.execute(
            "update detent.live set token = detent.next_token(), attempt = 2 where job_id = $1", taken
        )
        before = await stage.row("live", taken)
        worker.orders_wait()
        async with asyncio.timeout(20):
            while worker.in_flight != 1:
                await asyncio.sleep(0.005)
        lost = [ctx for ctx in tasks.started if ctx.job_id == taken]
        assert [ctx.still_mine() for ctx in lost] == [False]
        assert tasks.stopped == [lost[0].execution_id]
        assert await stage.row("live", taken) == before
        assert await stage.rows("attempts") == []
        assert worker.stale_writes == 0
        await cancel_job(stage.db, TENANT, kept, stage.now(), None)
        worker.orders_wait()
        await until(stage, CLOSED, 1)
    assert (await stage.row("live", taken))["token"] == before["token"]


async def test_a_worker_that_was_given_up_stops_everything_and_goes_on_as_another(stage: Stage) -> None:
    tasks = Tasks()
    await queue(stage, 2)
    async with at_work(stage, tasks) as worker:
        await tasks.until_started(2)
        await until_beaten(worker, 1)
        lost = worker.worker_id
        await stage.db.execute("update detent.workers set lease_seconds = 0 where worker_id = $1", lost)
        await stage.rescuer().run_once()
        worker.orders_wait()
        await tasks.until_started(4)  # the same work, under new tokens
        assert worker.worker_id != lost
        assert len(tasks.stopped) == 2
        assert [ctx.still_mine() for ctx in tasks.started] == [False, False, True, True]
        old, new = {ctx.token for ctx in tasks.started[:2]}, {ctx.token for ctx in tasks.started[2:]}
        assert max(old) < min(new)
    assert [row["outcome"] for row in await stage.rows("attempts")].count("worker_lost") == 2
    assert {row["losses"] for row in await stage.rows("live")} == {1}


async def test_a_draining_worker_takes_nothing_new_until_it_is_wanted_again(stage: Stage) -> None:
    tasks = Tasks()
    await queue(stage, 1)
    async with at_work(stage, tasks) as worker:
        await tasks.until_started(1)
        await stage.db.execute("update detent.workers set status = 'draining'")
        worker.orders_wait()
        async with asyncio.timeout(20):
            while not worker._draining:
                await asyncio.sleep(0.005)
        await queue(stage, 1)
        worker.wake()
        await worker.run_once()
        assert await stage.db.fetchval(RUNNING) == 1
        await stage.db.execute("update detent.workers set status = 'live'")
        worker.orders_wait()
        await tasks.until_started(2)
        for job_id in {row["job_id"] for row in await stage.rows("live")}:
            await cancel_job(stage.db, TENANT, job_id, stage.now(), None)
        worker.orders_wait()
        await until(stage, CLOSED, 2)


async def test_a_wake_up_for_orders_reaches_the_worker_that_it_names_and_no_other(stage: Stage) -> None:
    ours, others = await stage.worker(), await stage.worker()
    heard: list[str] = []
    ready = asyncio.Event()
    listener = Listener(stage.hot, {ORDERS: heard.append}, ready.set)
    await listener.run_once()
    try:
        stage.notifier.orders([])
        stage.notifier.orders([ours])
        stage.notifier.orders([ours])
        await stage.notifier.run_once()
        async with asyncio.timeout(10):
            while not heard:
                await asyncio.sleep(0.005)
        assert heard == [str(ours)]
        assert str(others) not in heard
    finally:
        await listener.closed()


async def test_only_the_named_worker_hurries_its_beat(stage: Stage) -> None:
    async with notifying(stage), at_work(stage, Tasks()) as named, at_work(stage, Tasks()) as other:
        await until_beaten(named, 1)
        await until_beaten(other, 1)
        assert named.worker_id is not None
        stage.notifier.orders([named.worker_id])
        await until_beaten(named, 2)
        assert other._heartbeat.beats == 1


async def until_beaten(worker: Worker, count: int) -> None:
    async with asyncio.timeout(20):
        while worker._heartbeat.beats < count:
            await asyncio.sleep(0.005)


async def test_heartbeats_go_on_and_bring_orders_while_a_claim_waits_for_a_lock(stage: Stage) -> None:
    tasks = Tasks()
    [job_id] = await queue(stage, 1)
    async with at_work(stage, tasks, heartbeat=0.05) as worker:
        await tasks.until_started(1)
        async with stage.db.transaction() as lock:
            # Whoever wants to change a row of live waits; reading is free.
            await lock.execute("lock table detent.live in share row exclusive mode")
            worker.wake()
            await stage.until_blocked(1)
            waiting = await stage.db.fetchval(
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '/* claim */%'"
            )
            assert waiting == 1
            beats = worker._heartbeat.beats
            await until_beaten(worker, beats + 5)
            assert worker._heartbeat.trusted()
            await lock.execute(
                "update detent.live set cancel_requested_at = clock_timestamp() where job_id = $1", job_id
            )
        await until(stage, CLOSED, 1)
    assert (await stage.row("executions", job_id))["status"] == "cancelled"


async def test_a_claim_and_a_beat_of_one_worker_do_not_wait_for_each_other(stage: Stage) -> None:
    await stage.once()
    await stage.fire()
    worker_id = await stage.worker()
    async with stage.hot.transaction() as claiming:
        [row] = await work.claim(claiming, worker_id, "default", 10, everything(10))
        orders = await asyncio.wait_for(beat(stage, worker_id), 10)
        assert orders.alive
    async with stage.hot.transaction() as beating:
        await beating.fetchval(queries.beat_worker, worker_id, 1, None, 0)
        assert await asyncio.wait_for(stage.claim(worker_id), 10) == []
    assert (await stage.rows("live"))[0]["token"] == row["token"]
