"""Tasks that a worker does not know: handed back, left for one that does, and only then for a person."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest
from spine_workers import at_work, until

from detent.execute.attempt import unknown_task
from detent.execute.registry import Registry
from detent.model.ids import new_incarnation_id
from detent.model.job import PythonTask
from detent.model.work import Claim, Finished, WorkerInfo, us_of
from detent.store import work
from detent.store.jobs import cancel_job
from stage import TENANT, Stage

NEW = PythonTask("new.task")
PATIENCE = timedelta(seconds=60)
LONG = timedelta(minutes=5)


def handed_back(stage: Stage, claim: Claim) -> Finished:
    now = stage.now()
    assert isinstance(claim.spec.task, PythonTask)
    return Finished(claim, "released", us_of(now), us_of(now), error=unknown_task(claim.spec.task.name).error)


async def worker(stage: Stage, *tasks: str, there_for: timedelta = LONG) -> UUID:
    """A worker that knows these tasks and joined so long ago."""
    info = WorkerInfo(new_incarnation_id(), "worker", "here", 1, ("default",), 10, tasks)
    await work.register(stage.db, info, 30.0)
    await stage.db.execute(
        "update detent.workers set started_at = started_at - $2::interval where worker_id = $1",
        info.worker_id,
        there_for,
    )
    return info.worker_id


async def left(stage: Stage, worker_id: UUID, ago: timedelta, status: str = "stopped") -> None:
    await stage.db.execute(
        "update detent.workers set status = $3, ended_at = clock_timestamp() - $2::interval where worker_id = $1",
        worker_id, ago, status,
    )  # fmt: skip


async def waited(stage: Stage, how_long: timedelta) -> None:
    await stage.db.execute("update detent.live set queued_at = clock_timestamp() - $1::interval", how_long)


async def claim_new(stage: Stage, worker_id: UUID) -> Claim:
    await stage.retry_now()
    [claim] = await stage.claim(worker_id)
    return claim


async def queue_new(stage: Stage, **fields: object) -> UUID:
    job_id = await stage.once(task=NEW, **fields)
    assert await stage.fire() == 1
    return job_id


async def is_quarantined(stage: Stage, job_id: UUID, ignorant: UUID) -> bool:
    """Whether the work is a dead letter after this worker met it once more."""
    claim = await claim_new(stage, ignorant)
    assert await stage.record(handed_back(stage, claim)) == {(claim.execution_id, claim.attempt)}
    return bool(await stage.rows("dead_letters", job_id))


async def test_work_that_nobody_knows_goes_back_uncounted_after_growing_pauses(stage: Stage) -> None:
    job_id = await queue_new(stage, max_retries=0)
    ignorant = await worker(stage, "noop")
    pauses = []
    for attempt in range(1, 9):
        claim = await claim_new(stage, ignorant)
        assert (claim.attempt, claim.failures) == (attempt, 0)
        asked = stage.now()
        await stage.record(handed_back(stage, claim))
        live = await stage.row("live", job_id)
        assert (live["state"], live["failures"], live["worker_id"]) == ("queued", 0, None)
        assert "knows no task 'new.task'" in live["reason"]
        pauses.append(round((live["not_before"] - asked).total_seconds()))
    assert pauses == [1, 2, 4, 8, 16, 32, 32, 32]
    assert {row["outcome"] for row in await stage.rows("attempts")} == {"released"}
    assert await stage.rows("dead_letters") == []


async def test_work_handed_back_for_any_other_reason_is_not_paused(stage: Stage) -> None:
    _, claim = await stage.running()
    asked = stage.now()
    await stage.record(stage.ended(claim, "released"))
    assert (await stage.row("live", claim.job_id))["not_before"] - asked < timedelta(seconds=1)


async def test_a_worker_that_knows_the_task_takes_it_where_another_handed_it_back(stage: Stage) -> None:
    job_id = await queue_new(stage, max_retries=0)
    async with at_work(stage, Registry()):
        await until_released(stage)
    knowing = Registry()
    knowing.register(NEW.name, lambda: "done")
    await stage.retry_now()
    async with at_work(stage, knowing):
        await until(stage, "select count(*) from detent.executions", 1)
    closed = await stage.row("executions", job_id)
    assert (closed["status"], closed["failures"], closed["result"]) == ("succeeded", 0, '"done"')
    outcomes = [row["outcome"] for row in await stage.rows("attempts")]
    assert outcomes == ["released"] * (len(outcomes) - 1) + ["succeeded"]


async def until_released(stage: Stage) -> None:
    await until(stage, "select count(*) from detent.attempts where outcome = 'released'", 1)


async def test_without_any_worker_that_knew_it_for_a_minute_it_is_a_dead_letter(stage: Stage) -> None:
    job_id = await queue_new(stage)
    ignorant = await worker(stage, "noop", "other")
    await waited(stage, PATIENCE + timedelta(seconds=1))
    assert await is_quarantined(stage, job_id, ignorant)
    closed = await stage.row("executions", job_id)
    assert (closed["status"], closed["reason"]) == ("dead_lettered", "unknown_task")
    assert (closed["attempt"], closed["failures"]) == (1, 0)
    letter = await stage.row("dead_letters", job_id)
    assert letter["reason"] == "unknown_task"
    assert "UnknownTask" in letter["error"]
    assert [row["outcome"] for row in await stage.rows("attempts")] == ["released"]
    assert (await stage.row("job_ends", job_id))["status"] == "failed"


async def test_a_job_without_dead_letters_fails_instead(stage: Stage) -> None:
    job_id = await queue_new(stage, dead_letter=False)
    ignorant = await worker(stage, "noop")
    await waited(stage, LONG)
    assert not await is_quarantined(stage, job_id, ignorant)
    closed = await stage.row("executions", job_id)
    assert (closed["status"], closed["reason"]) == ("failed", "unknown_task")


async def test_work_that_has_not_waited_for_a_minute_goes_back(stage: Stage) -> None:
    job_id = await queue_new(stage)
    ignorant = await worker(stage, "noop")
    await waited(stage, PATIENCE - timedelta(seconds=5))
    assert not await is_quarantined(stage, job_id, ignorant)
    await waited(stage, PATIENCE + timedelta(seconds=5))
    assert await is_quarantined(stage, job_id, ignorant)


@pytest.mark.parametrize("status", ["live", "draining"])
async def test_while_a_worker_that_advertises_it_is_there_it_waits(stage: Stage, status: str) -> None:
    job_id = await queue_new(stage)
    ignorant, knowing = await worker(stage, "noop"), await worker(stage, NEW.name)
    await stage.db.execute("update detent.workers set status = $2 where worker_id = $1", knowing, status)
    await waited(stage, LONG)
    assert not await is_quarantined(stage, job_id, ignorant)
    assert (await stage.row("live", job_id))["state"] == "queued"


@pytest.mark.parametrize("status", ["stopped", "lost"])
async def test_for_a_minute_after_the_last_that_knew_it_left_it_waits(stage: Stage, status: str) -> None:
    """A rolling deployment: the old ones are gone, the new ones not there yet."""
    job_id = await queue_new(stage)
    ignorant, knowing = await worker(stage, "noop"), await worker(stage, NEW.name)
    await waited(stage, LONG)
    await left(stage, knowing, PATIENCE - timedelta(seconds=5), status)
    assert not await is_quarantined(stage, job_id, ignorant)
    await left(stage, knowing, PATIENCE + timedelta(seconds=5), status)
    assert await is_quarantined(stage, job_id, ignorant)


async def test_a_worker_that_could_not_beat_because_the_database_was_away_still_counts(stage: Stage) -> None:
    job_id = await queue_new(stage)
    ignorant, knowing = await worker(stage, "noop"), await worker(stage, NEW.name)
    await waited(stage, LONG)
    await stage.db.execute(
        "update detent.workers set beat_at = clock_timestamp() - $2::interval where worker_id = $1",
        knowing,
        LONG,
    )
    assert not await is_quarantined(stage, job_id, ignorant)
    await left(stage, knowing, PATIENCE + timedelta(seconds=5), "lost")
    assert await is_quarantined(stage, job_id, ignorant)


async def test_after_a_stop_of_everything_the_first_worker_back_condemns_nothing(stage: Stage) -> None:
    job_id = await queue_new(stage)
    await waited(stage, LONG)
    first = await worker(stage, "noop", there_for=timedelta(seconds=2))
    assert not await is_quarantined(stage, job_id, first)
    await stage.db.execute("update detent.workers set started_at = started_at - $1::interval", PATIENCE)
    assert await is_quarantined(stage, job_id, first)


async def test_only_those_of_a_batch_that_nobody_knows_become_dead_letters(stage: Stage) -> None:
    known = await stage.once(task=PythonTask("known.elsewhere"))
    unknown = await queue_new_beside(stage)
    ignorant = await worker(stage, "noop")
    await worker(stage, "known.elsewhere")
    await waited(stage, LONG)
    claims = await stage.claim(ignorant)
    recorded = await stage.record(*(handed_back(stage, claim) for claim in claims))
    assert len(recorded) == 2
    assert [row["job_id"] for row in await stage.rows("dead_letters")] == [unknown]
    assert (await stage.row("live", known))["state"] == "queued"


async def queue_new_beside(stage: Stage) -> UUID:
    job_id = await stage.once(task=NEW)
    assert await stage.fire() == 2
    return job_id


async def test_unknown_work_that_was_asked_to_cancel_is_cancelled(stage: Stage) -> None:
    job_id = await queue_new(stage)
    ignorant = await worker(stage, "noop")
    await waited(stage, LONG)
    claim = await claim_new(stage, ignorant)
    await cancel_job(stage.db, TENANT, job_id, stage.now(), None)
    await stage.record(handed_back(stage, claim))
    assert (await stage.row("executions", job_id))["status"] == "cancelled"
    assert await stage.rows("dead_letters") == []


async def test_a_stale_hand_back_condemns_nothing(stage: Stage) -> None:
    job_id = await queue_new(stage)
    ignorant = await worker(stage, "noop")
    first = await claim_new(stage, ignorant)
    await stage.record(stage.ended(first, "released"))
    await waited(stage, LONG)
    second = await claim_new(stage, ignorant)
    assert second.attempt == 2
    before = await stage.everything()
    stale = handed_back(stage, first)
    assert await asyncio.wait_for(stage.record(stale), 10) == set()
    assert await stage.everything() == before
    assert (await stage.row("live", job_id))["state"] == "running"
