"""What a worker and a scheduler do when the store was away, busy, or silent at the wrong moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detent.cli.wiring import PostgresPort
from detent.model.errors import StoreUnavailable
from detent.model.work import LogChunk
from detent.runtime.service import Service, run_services
from detent.store.database import Database
from detent.store.jobs import cancel_job
from detent.store.sql import Queries
from stage import MOMENT, TENANT, Stage, unreliable

queries = Queries.load()

CANCEL_THE_BLOCKED = """
    select count(pg_cancel_backend(pid)) from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'
"""


def port(stage: Stage, database: Database | None = None) -> PostgresPort:
    return PostgresPort(database or stage.hot, stage.clock, stage.notifier)


async def lose_a_claim(stage: Stage) -> tuple[PostgresPort, Any, Any]:
    """A worker that claimed an execution and was never told."""
    job_id = await stage.once(callback_url="https://example.org/ended")
    await stage.fire()
    worker_id = await stage.worker()
    theirs = port(stage, unreliable(stage.hot, queries.claim))
    with pytest.raises(StoreUnavailable):
        await theirs.claim(worker_id, ("default",), 10)
    assert (await stage.row("live", job_id))["state"] == "running"
    return theirs, worker_id, job_id


async def test_a_claim_whose_answer_was_lost_is_handed_back_and_claimed_again(stage: Stage) -> None:
    theirs, worker_id, job_id = await lose_a_claim(stage)
    [claim] = await theirs.claim(worker_id, ("default",), 10)
    assert (claim.job_id, claim.attempt, claim.failures) == (job_id, 2, 0)
    assert [row["outcome"] for row in await stage.rows("attempts")] == ["released"]


async def test_a_claim_whose_answer_was_lost_can_be_cancelled(stage: Stage) -> None:
    theirs, worker_id, job_id = await lose_a_claim(stage)
    await cancel_job(stage.db, TENANT, job_id, stage.now(), None)
    assert await theirs.claim(worker_id, ("default",), 10) == []
    assert await stage.rows("live") == []
    assert (await stage.row("executions", job_id))["status"] == "cancelled"
    assert len(await stage.rows("callbacks")) == 1


async def test_what_was_asked_to_cancel_and_is_handed_back_is_over(stage: Stage) -> None:
    worker_id, claim = await stage.running(callback_url="https://example.org/ended")
    await cancel_job(stage.db, TENANT, claim.job_id, stage.now(), None)
    await port(stage).release(worker_id, [claim])
    assert await stage.rows("live") == []
    assert (await stage.row("executions", claim.job_id))["status"] == "cancelled"
    assert len(await stage.rows("callbacks")) == 1


async def test_a_worker_that_leaves_with_work_in_its_hands_is_still_looked_for(stage: Stage) -> None:
    worker_id, claim = await stage.running()
    status = "select status from detent.workers where worker_id = $1"
    await port(stage).stop(worker_id)
    assert await stage.db.fetchval(status, worker_id) == "live"
    await stage.record(stage.ended(claim, "succeeded"))
    await port(stage).stop(worker_id)
    assert await stage.db.fetchval(status, worker_id) == "stopped"


async def test_output_of_a_day_without_a_partition_is_kept(stage: Stage) -> None:
    _, claim = await stage.running()
    await stage.drop_partitions_of(stage.now())
    chunk = LogChunk(claim.execution_id, claim.attempt, claim.token, 1, "stdout", stage.now(), "kept")
    assert await port(stage).log([chunk]) == set()
    assert await stage.db.fetchval("select text from detent.logs") == "kept"


@pytest.mark.parametrize("code", ["40P01", "40001", "55P03"])
async def test_a_statement_that_had_to_give_way_is_told_like_an_absence(stage: Stage, code: str) -> None:
    with pytest.raises(StoreUnavailable, match="precedence"):
        await stage.db.execute(f"do $$ begin raise exception using errcode = '{code}'; end $$")


async def cancelled_while_blocked(stage: Stage, work: Any) -> Any:
    """Run into a lock that another session holds, and be told to give up as often as it takes."""
    task = asyncio.create_task(work)
    async with asyncio.timeout(20):
        while not task.done():
            await stage.db.fetchval(CANCEL_THE_BLOCKED)
            await asyncio.sleep(0.01)
    return await task


async def test_a_timer_that_is_locked_for_long_is_not_parked_and_holds_up_no_other(stage: Stage) -> None:
    jobs = await stage.jobs([stage.now() - MOMENT] * 5, scheduled_at=stage.now())
    firer = await stage.firer()
    async with stage.db.transaction() as other:
        await other.execute("select from detent.timers where job_id = $1 for update", sorted(jobs)[0])
        await cancelled_while_blocked(stage, firer.run_once())
    assert firer.fired == 4
    firer._locked.clear()  # it was passed over for a while, which is over
    firer.reload()
    await firer.run_once()
    assert firer.fired == 5
    assert {row["status"] for row in await stage.rows("timers")} == {"done"}
    fires = {row["job_id"]: row["decision"] for row in await stage.rows("fires")}
    assert {fires[job] for job in sorted(jobs)[1:]} == {"fired"}


async def test_an_end_that_cannot_be_written_for_a_lock_is_not_refused(stage: Stage) -> None:
    _, claim = await stage.running()
    ended = stage.ended(claim, "succeeded")
    async with stage.db.transaction() as other:
        await other.execute("select from detent.live where execution_id = $1 for update", claim.execution_id)
        with pytest.raises(StoreUnavailable, match="took too long"):
            await cancelled_while_blocked(stage, stage.record(ended))
    assert await stage.record(ended) == {(claim.execution_id, claim.attempt)}


async def test_a_goodbye_that_nobody_hears_does_not_cut_short_the_others() -> None:
    class Leaving(Service):
        name = "leaving"

        async def run_once(self) -> float | None:
            return None

        async def closed(self) -> None:
            raise StoreUnavailable("the database is shutting down or starting up")

    class Draining(Leaving):
        drained = False

        async def closed(self) -> None:
            await asyncio.sleep(0.05)
            self.drained = True

    stop, draining = asyncio.Event(), Draining()
    stop.set()
    await run_services([Leaving(), draining], stop)
    assert draining.drained
