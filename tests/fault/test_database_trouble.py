"""Errors that are about the moment and not about what was asked: they cost time, never work.

A deadlock, a failed serialization, a lock or a statement that took too long: the transaction was undone as a
whole, and is done again. None of them parks a job, fails an attempt or is told to a client as a failure.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from flaky import BUSY, FOR_GOOD, SERIALIZATION, failures, flaky
from proxy import Proxy
from soundness import Summary, summary, unsound
from sweep_paths import PATHS
from sweep_place import LEASE, endings, place_at, queued, taken
from sweep_run import worked_off

from detent.cli.wiring import PostgresPort, PostgresPulse
from detent.execute.report import Reporter
from detent.finish.rescuer import Rescuer
from detent.model.errors import StoreBusy, StoreUnavailable
from detent.model.ids import new_job_id
from detent.model.job import JobSpec, PythonTask
from detent.model.work import Beat
from detent.store import repeat, session
from detent.store.database import Database
from detent.store.jobs import Draft, cancel_job, create_jobs, run_job
from stage import MINUTE, SECOND, TENANT, Stage

# Those that speak on connections of their own, whose loops go on by themselves.
OWN_CONNECTION = ("shards", "heartbeat")
SOME = ("fire", "claim", "finish mixed", "cancel job", "create")
CASES = [(name, SERIALIZATION) for name in PATHS if name not in OWN_CONNECTION] + [
    (name, code) for name in SOME for code in BUSY if code != SERIALIZATION
]

IN_PEACE: dict[str, tuple[Any, Summary]] = {}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits longer than a moment for a lock."""
    monkeypatch.setitem(session.session.__kwdefaults__, "lock_seconds", 0.1)
    monkeypatch.setattr(repeat, "WITHIN_SECONDS", 0.0)


@pytest.mark.parametrize(("name", "code"), CASES)
async def test_a_transaction_that_was_undone_is_done_again(
    stage: Stage, stage_url: str, name: str, code: str
) -> None:
    if name not in IN_PEACE:
        IN_PEACE[name] = await walked_beside(stage, stage_url, name, code, times=0)
    assert await walked_beside(stage, stage_url, name, code, times=2) == IN_PEACE[name]


async def walked_beside(stage: Stage, url: str, name: str, code: str, times: int) -> tuple[Any, Summary]:
    """What was told and left by a path whose first writes were undone."""
    path = PATHS[name]
    await stage.clear()
    given = await path.prepare(stage)
    # Nobody repeats anything here but the store itself.
    async with place_at(url, patient=False) as place, flaky(stage.db, code, times):
        told = await path.walk(place, given)
        assert await failures(stage.db) > times
    await worked_off(stage, place.held)
    return told, await summary(stage.db)


@pytest.mark.parametrize("code", BUSY)
async def test_trouble_that_lasts_is_told_as_such_after_a_few_tries(stage: Stage, code: str) -> None:
    job = await stage.job(None)
    async with flaky(stage.db, code, FOR_GOOD):
        with pytest.raises(StoreBusy):
            await run_job(stage.db, TENANT, job, "k", stage.now(), None)
        assert await failures(stage.db) == repeat.TRIES
    assert await unsound(stage.db) == []


@pytest.mark.parametrize("code", BUSY)
async def test_no_job_is_parked_for_trouble_that_lasts(stage: Stage, code: str) -> None:
    jobs = [await stage.once(), await stage.every(60, SECOND)]
    firer = await stage.firer()
    async with flaky(stage.db, code, FOR_GOOD, ["fires"]):
        await firer.run_once()
        assert firer.fired == 0
    assert [row["status"] for row in await stage.rows("timers")] == ["scheduled"] * 2
    assert await stage.fire() == len(jobs)


async def test_one_locked_timer_holds_up_itself_only(
    stage: Stage, stage_url: str, impatient: None, locker: Any
) -> None:
    jobs = await stage.jobs([stage.now() - SECOND] * 8, scheduled_at=stage.now() - SECOND)
    hot = await Database.open(stage_url, size=2, hot=True)
    firer = await stage.firer(database=hot)
    async with locker.transaction():
        await locker.execute("select from detent.timers where job_id = $1 for update", jobs[3])
        await firer.run_once()
        assert firer.fired == 7
        assert (await stage.row("timers", jobs[3]))["status"] == "scheduled"
        firer.reload()
        started = asyncio.get_running_loop().time()
        await firer.run_once()  # it is passed over for a while
        assert asyncio.get_running_loop().time() - started < 0.1
    firer._locked.clear()
    firer.reload()
    await firer.run_once()
    assert firer.fired == 8
    await hot.close()


async def test_one_locked_execution_holds_up_the_report_of_itself_only(
    stage: Stage, stage_url: str, impatient: None, locker: Any
) -> None:
    given = await taken(stage, *"abcdefgh")
    hot = await Database.open(stage_url, size=2, hot=True)
    reporter = Reporter(PostgresPort(hot, stage.clock, stage.notifier))
    run = asyncio.create_task(reporter.run())
    try:
        async with locker.transaction():
            await locker.execute(
                "select from detent.live where execution_id = $1 for update", given.claims[2].execution_id
            )
            for finished in endings(stage.clock, given.claims, "succeeded"):
                reporter.add(finished)
            async with asyncio.timeout(10):
                while reporter.recorded < 7:
                    await asyncio.sleep(0.005)
            assert reporter.unrecorded == 1
        assert await reporter.drained(10)
        assert reporter.recorded == 8
        assert reporter.stale_writes == 0
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await hot.close()
    assert {row["status"] for row in await stage.rows("executions")} == {"succeeded"}


async def test_reports_are_kept_in_bounds_while_the_history_is_locked(
    stage: Stage, stage_url: str, impatient: None, locker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.execute.report.MOST_WAITING", 5)
    given = await taken(stage, *"abcdefgh")
    hot = await Database.open(stage_url, size=2, hot=True)
    reporter = Reporter(PostgresPort(hot, stage.clock, stage.notifier))
    run = asyncio.create_task(reporter.run())
    try:
        async with locker.transaction():
            await locker.execute("lock table detent.executions in access exclusive mode")
            for finished in endings(stage.clock, given.claims[:4], "succeeded"):
                reporter.add(finished)
            assert not reporter.full
            for finished in endings(stage.clock, given.claims[4:], "succeeded"):
                reporter.add(finished)
            async with asyncio.timeout(5):
                while not reporter.full or not reporter._persistent.failing:
                    await asyncio.sleep(0.005)
            assert reporter.unrecorded == 8
        assert await reporter.drained(10)
        assert not reporter.full
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await hot.close()


async def test_a_heartbeat_counts_although_its_orders_cannot_be_read(
    stage: Stage, stage_url: str, impatient: None, locker: Any
) -> None:
    given = await taken(stage, "a")
    assert given.worker is not None
    [claim] = given.claims
    hot = await Database.open(stage_url, size=1, hot=True)
    pulse = PostgresPulse(await hot.dedicated())
    async with locker.transaction():
        await locker.execute("lock table detent.live in access exclusive mode")
        orders = await pulse.beat(given.worker, Beat(((claim.execution_id, claim.attempt, claim.token),)))
    assert orders.alive
    assert await stage.db.fetchval("select beat from detent.workers") == 1
    await pulse.close()
    await hot.close()


async def test_a_worker_whose_rows_are_locked_does_not_keep_others_from_being_rescued(
    stage: Stage, stage_url: str, impatient: None, locker: Any
) -> None:
    first, second = await taken(stage, "a"), await taken(stage, "b")
    await stage.db.execute("update detent.workers set beat_at = clock_timestamp() - interval '1 hour'")
    db = await Database.open(stage_url, size=1)
    rescuer = Rescuer(db, stage.clock, stage.notifier)
    for _ in range(2):  # one look more gives them up: it takes two however long they lie apart
        await rescuer.run_once()
        await asyncio.sleep(LEASE)
    for locked, free in ((first, second), (second, first)):
        async with locker.transaction():
            await locker.execute("select from detent.workers where worker_id = $1 for update", locked.worker)
            await rescuer.run_once()
            status = "select status from detent.workers where worker_id = $1"
            assert await stage.db.fetchval(status, free.worker) == "lost"
    await rescuer.run_once()
    assert {row["state"] for row in await stage.rows("live")} == {"queued"}
    await db.close()


async def test_a_real_deadlock_costs_the_report_nothing(stage: Stage, stage_url: str, locker: Any) -> None:
    """Two transactions want the same two rows in opposite order, and the server ends ours."""
    given = await taken(stage, "a", "b")
    low, high = sorted(claim.execution_id for claim in given.claims)
    lock = "select from detent.live where execution_id = $1 for update"
    await locker.execute("set deadlock_timeout = '30s'")  # the other side finds it first
    async with locker.transaction():
        await locker.execute(lock, high)
        recording = asyncio.create_task(stage.record(*endings(stage.clock, given.claims, "succeeded")))
        await stage.until_blocked(1)
        await locker.execute(lock, low)  # waits for ours, which waits for us: ours is undone, and comes again
        assert not recording.done()
    assert len(await recording) == 2
    assert await unsound(stage.db) == []


async def test_a_real_deadlock_is_no_failure_of_a_request(stage: Stage, locker: Any) -> None:
    [job] = await queued(stage, "a")
    await locker.execute("set deadlock_timeout = '30s'")
    async with locker.transaction():
        await locker.execute("select from detent.live where job_id = $1 for update", job)
        cancelling = asyncio.create_task(cancel_job(stage.db, TENANT, job, stage.now(), None))
        await stage.until_blocked(1)
        await locker.execute("select from detent.timers where job_id = $1 for update", job)
    assert (await cancelling).job.status == "cancelled"


async def test_a_cancelled_statement_is_repeated(stage: Stage, locker: Any) -> None:
    given = await taken(stage, "a")
    async with locker.transaction():
        await locker.execute("select from detent.live for update")
        recording = asyncio.create_task(stage.record(*endings(stage.clock, given.claims, "succeeded")))
        await stage.until_blocked(1)
        await stage.db.execute(
            "select pg_cancel_backend(pid) from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock'"
        )
    assert len(await recording) == 1
    assert {row["outcome"] for row in await stage.rows("attempts")} == {"succeeded"}


async def test_another_default_isolation_of_the_database_is_not_ours(stage: Stage, stage_url: str) -> None:
    """Our statements are written for read committed: what was waited for must be seen."""
    name = await stage.db.fetchval("select current_database()")
    await stage.db.execute(f"alter database {name} set default_transaction_isolation = 'serializable'")
    try:
        db = await Database.open(stage_url, size=1)
        assert await db.fetchval("show transaction_isolation") == "read committed"
        await db.close()
    finally:
        await stage.db.execute(f"alter database {name} reset default_transaction_isolation")


async def test_a_process_that_stops_inside_a_transaction_does_not_keep_its_locks(
    stage: Stage, stage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(session._SESSION, "idle_in_transaction_session_timeout", "100")
    job = await stage.once()
    stopped = await Database.open(stage_url, size=1)
    with pytest.raises(StoreUnavailable):
        async with stopped.transaction() as connection:
            await connection.execute("select from detent.timers for update")
            assert await stage.fire() == 1  # waits until the lock is free
            await connection.fetchval("select 1")
    assert (await stage.row("fires", job))["decision"] in ("fired", "fired_late")
    await stopped.close()


async def test_what_is_wrong_with_a_statement_is_not_repeated(stage: Stage) -> None:
    job = await stage.job(None)
    async with flaky(stage.db, "23514", FOR_GOOD):
        with pytest.raises(asyncpg.CheckViolationError):
            await run_job(stage.db, TENANT, job, "k", stage.now(), None)
        assert await failures(stage.db) == 1


async def test_a_lost_connection_is_not_repeated_by_the_store(stage: Stage, stage_url: str) -> None:
    """Whether it committed is unknown: only its identity can tell, and that is its caller's to use."""
    async with Proxy(stage_url) as proxy:
        db = await Database.open(proxy.url, size=1)
        proxy.cut_at(1, "after")
        draft = Draft(
            new_job_id(stage.now()),
            JobSpec(name="a", task=PythonTask("noop"), every=60.0),
            "null",
            stage.now() + MINUTE,
        )
        with pytest.raises(StoreUnavailable) as raised:
            await create_jobs(db, TENANT, [draft], stage.now())
        assert not isinstance(raised.value, StoreBusy)
        assert [point.label for point in proxy.points] == ["create_jobs"]
        assert await stage.db.fetchval("select count(*) from detent.jobs") == 1
        await db.close()


@pytest.fixture
async def locker(stage: Stage, stage_url: str) -> Any:
    """A session of somebody else's, who holds locks for as long as they like."""
    connection = await asyncpg.connect(stage_url)
    try:
        yield connection
    finally:
        connection.terminate()
