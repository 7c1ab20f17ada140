"""Races of claims, endings, cancels and rescues. A lock that the test holds decides who wins."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from detent.dispatch.rank import everything
from detent.model.work import Claim
from detent.store import work
from detent.store.jobs import cancel_execution, cancel_job
from detent.store.sql import Queries
from detent.store.work import Closing
from stage import SECOND, TENANT, Stage

queries = Queries.load()


def pair(claim: Claim) -> tuple[UUID, int]:
    return claim.execution_id, claim.attempt


async def silent_worker(stage: Stage) -> UUID:
    """One whose lease is over and whom a rescuer gives up at first sight."""
    return await stage.worker(lease_seconds=0.0)


async def status_of(stage: Stage, worker_id: UUID) -> str:
    status: str = await stage.db.fetchval("select status from detent.workers where worker_id = $1", worker_id)
    return status


async def test_many_workers_claim_each_execution_once(stage: Stage) -> None:
    await stage.jobs([stage.now() - SECOND] * 200, scheduled_at=stage.now())
    await stage.fire()
    workers = [await stage.worker() for _ in range(4)]

    async def take(worker_id: UUID) -> list[UUID]:
        taken: list[UUID] = []
        while claims := await stage.claim(worker_id, 7):
            taken += [claim.execution_id for claim in claims]
        return taken

    taken = [one for many in await asyncio.gather(*map(take, workers)) for one in many]
    assert len(taken) == len(set(taken)) == 200


async def test_a_rescue_waits_for_a_claim_under_way_and_takes_what_it_took(stage: Stage) -> None:
    job_id = await stage.once()
    await stage.fire()
    worker_id = await silent_worker(stage)
    async with stage.hot.transaction() as claiming:
        [row] = await work.claim(claiming, worker_id, "default", 10, everything(10))
        rescue = asyncio.create_task(stage.rescuer().run_once())
        await stage.until_blocked(1)
    await rescue
    assert await status_of(stage, worker_id) == "lost"
    live = await stage.row("live", job_id)
    assert (live["state"], live["worker_id"], live["losses"]) == ("queued", None, 1)
    [attempt] = await stage.rows("attempts")
    assert (attempt["outcome"], attempt["token"]) == ("worker_lost", row["token"])


async def test_a_claim_that_waited_for_a_rescue_gets_nothing(stage: Stage) -> None:
    job_id = await stage.once()
    await stage.fire()
    worker_id = await silent_worker(stage)
    async with stage.db.transaction() as rescue:
        assert await rescue.fetchval(queries.lock_silent_worker, worker_id, 0) == worker_id
        claiming = asyncio.create_task(stage.claim(worker_id))
        await stage.until_blocked(1)
        await rescue.execute(queries.mark_worker_lost, worker_id)
    assert await claiming == []
    assert (await stage.row("live", job_id))["state"] == "queued"


async def test_a_worker_that_beats_while_its_rescue_waits_is_not_lost(stage: Stage) -> None:
    await stage.once()
    await stage.fire()
    worker_id = await silent_worker(stage)
    [claim] = await stage.claim(worker_id)
    async with stage.db.transaction() as beat:
        await beat.execute(queries.beat_worker, worker_id, 1, None, 0)
        rescue = asyncio.create_task(stage.rescuer().run_once())
        await stage.until_blocked(1)
    await rescue
    assert await status_of(stage, worker_id) == "live"
    assert await stage.record(stage.ended(claim, "succeeded")) == {pair(claim)}


async def test_two_rescuers_take_the_work_of_a_lost_worker_back_once(stage: Stage) -> None:
    job_id = await stage.once()
    await stage.fire()
    worker_id = await silent_worker(stage)
    await stage.claim(worker_id)
    async with stage.db.transaction() as lock:
        await lock.execute("select from detent.workers where worker_id = $1 for update", worker_id)
        rescues = [asyncio.create_task(stage.rescuer().run_once()) for _ in range(2)]
        await stage.until_blocked(2)
    await asyncio.gather(*rescues)
    assert (await stage.row("live", job_id))["losses"] == 1
    assert len(await stage.rows("attempts")) == 1


@pytest.mark.parametrize("first", ["finish", "rescue"])
async def test_of_a_finish_and_a_rescue_that_meet_one_counts(stage: Stage, first: str) -> None:
    job_id = await stage.once()
    await stage.fire()
    worker_id = await silent_worker(stage)
    [claim] = await stage.claim(worker_id)
    finish = stage.ended(claim, "succeeded")
    async with stage.db.transaction() as lock:
        await lock.execute("select from detent.live where execution_id = $1 for update", claim.execution_id)
        steps = {"finish": stage.record(finish), "rescue": stage.rescuer().run_once()}
        winner = asyncio.create_task(steps.pop(first))
        await stage.until_blocked(1)
        loser = asyncio.create_task(steps.popitem()[1])
        await stage.until_blocked(2)
    answers = [await winner, await loser]

    [attempt] = await stage.rows("attempts")
    assert await status_of(stage, worker_id) == "lost"
    if first == "finish":
        assert answers[0] == {pair(claim)}
        assert attempt["outcome"] == "succeeded"
        assert await stage.rows("live") == []
        assert (await stage.row("executions", job_id))["status"] == "succeeded"
    else:
        assert answers[1] == set()
        assert attempt["outcome"] == "worker_lost"
        assert (await stage.row("live", job_id))["state"] == "queued"
        assert await stage.rows("executions") == []


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
async def test_an_ending_that_is_sent_twice_at_once_is_recorded_once(stage: Stage, outcome: str) -> None:
    _, claim = await stage.running()
    finished = stage.ended(claim, outcome)
    async with stage.db.transaction() as lock:
        await lock.execute("select from detent.live where execution_id = $1 for update", claim.execution_id)
        both = [asyncio.create_task(stage.record(finished)) for _ in range(2)]
        await stage.until_blocked(2)
    assert await asyncio.gather(*both) == [{pair(claim)}, {pair(claim)}]
    [attempt] = await stage.rows("attempts")
    assert attempt["outcome"] == outcome


async def test_of_two_batches_that_share_successes_each_is_recorded_once_and_both_hear_it(
    stage: Stage,
) -> None:
    await stage.jobs([stage.now() - SECOND] * 6, scheduled_at=stage.now())
    await stage.fire()
    claims = await stage.claim(await stage.worker())
    ends = [stage.ended(claim, "succeeded") for claim in claims]
    lowest = min(claim.execution_id for claim in claims[2:4])
    async with stage.db.transaction() as lock:
        await lock.execute("select from detent.live where execution_id = $1 for update", lowest)
        one = asyncio.create_task(stage.record(*ends[:4]))
        other = asyncio.create_task(stage.record(*reversed(ends[2:])))
        await stage.until_blocked(2)
    assert await one == {pair(claim) for claim in claims[:4]}
    assert await other == {pair(claim) for claim in claims[2:]}
    assert await stage.rows("live") == []
    assert len(await stage.rows("attempts")) == len(await stage.rows("executions")) == 6


@pytest.mark.parametrize("first", ["finish", "cancel"])
async def test_of_a_failing_finish_and_a_cancel_that_meet_no_further_attempt_comes_of_it(
    stage: Stage, first: str
) -> None:
    _, claim = await stage.running(max_retries=3)
    finished = stage.ended(claim, "failed")
    async with stage.db.transaction() as lock:
        await lock.execute("select from detent.live where execution_id = $1 for update", claim.execution_id)
        steps = {
            "finish": stage.record(finished),
            "cancel": cancel_job(stage.db, TENANT, claim.job_id, stage.now(), None),
        }
        one = asyncio.create_task(steps.pop(first))
        await stage.until_blocked(1)
        other = asyncio.create_task(steps.popitem()[1])
        await stage.until_blocked(2)
    await asyncio.gather(one, other)
    assert await stage.rows("live") == await stage.rows("dead_letters") == []
    assert (await stage.row("executions", claim.job_id))["status"] == "cancelled"
    assert (await stage.row("job_ends", claim.job_id))["status"] == "cancelled"
    assert [row["outcome"] for row in await stage.rows("attempts")] == ["failed"]


@pytest.mark.parametrize("first", ["claim", "cancel"])
async def test_of_a_claim_and_a_cancel_that_meet_the_work_ends_cancelled(stage: Stage, first: str) -> None:
    job_id = await stage.once()
    await stage.fire()
    worker_id = await stage.worker()
    execution_id = (await stage.row("live", job_id))["execution_id"]
    if first == "claim":
        async with stage.hot.transaction() as claiming:
            [row] = await work.claim(claiming, worker_id, "default", 10, everything(10))
            cancel = asyncio.create_task(cancel_execution(stage.db, TENANT, execution_id, stage.now(), None))
            await stage.until_blocked(1)
        assert (await cancel).execution.status == "running"
        live = await stage.row("live", job_id)
        assert live["cancel_requested_at"] is not None
        now = stage.now()
        ended = Closing(
            execution_id, 1, row["token"], "cancelled", "cancelled", now, now, None, None, None, 0, None
        )
        assert await work.close(stage.hot, [ended]) == {(execution_id, 1)}
    else:
        async with stage.db.transaction() as lock:
            await lock.fetchval(queries.lock_open_executions, TENANT, job_id, None)
            assert await stage.claim(worker_id) == []  # it does not wait for what another holds
        await cancel_execution(stage.db, TENANT, execution_id, stage.now(), None)
        assert await stage.claim(worker_id) == []
    assert (await stage.row("executions", job_id))["status"] == "cancelled"
    assert await stage.rows("live") == []
