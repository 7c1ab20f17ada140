"""Pausing: what passes meanwhile is in the ledger as skipped, once, and does not run."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from detent.api.decide import pause, resume
from detent.store.jobs import Changed, change_job
from stage import HOUR, MINUTE, MOMENT, SECOND, TENANT, Stage


async def pause_job(stage: Stage, job_id: UUID) -> Changed:
    return await change_job(stage.db, TENANT, job_id, pause, stage.now(), None)


async def resume_job(stage: Stage, job_id: UUID, now: datetime) -> Changed:
    return await change_job(stage.db, TENANT, job_id, lambda standing: resume(standing, now), now, None)


async def test_a_paused_job_does_not_fire(stage: Stage) -> None:
    job_id = await stage.every(60, first_ago=HOUR)
    await pause_job(stage, job_id)
    before = await stage.everything()
    assert await stage.fire() == 0
    assert await stage.everything() == before


async def test_the_instants_that_passed_while_paused_are_one_skipped_range(stage: Stage) -> None:
    job_id = await stage.every(60, first_ago=HOUR + 30 * SECOND)
    first = (await stage.row("timers", job_id))["due_at"]
    await pause_job(stage, job_id)
    await resume_job(stage, job_id, stage.now())

    fire = await stage.row("fires", job_id)
    assert (fire["decision"], fire["execution_id"]) == ("skipped_paused", None)
    assert (fire["nominal_at"], fire["through_at"]) == (first, first + HOUR)
    assert fire["instants"] == 61
    assert fire["reason"] == "the job was paused"
    timer = await stage.row("timers", job_id)
    assert (timer["status"], timer["due_at"]) == ("scheduled", first + HOUR + MINUTE)
    assert timer["decided_through"] == first + HOUR

    assert await stage.fire() == 0
    assert await stage.rows("live") == []


async def test_pausing_and_resuming_between_two_instants_skips_nothing(stage: Stage) -> None:
    first = stage.now() + HOUR
    job_id = await stage.job(first, armed_at=first - HOUR, every=3600)
    await pause_job(stage, job_id)
    await resume_job(stage, job_id, stage.now())
    assert await stage.rows("fires") == []
    assert (await stage.row("timers", job_id))["due_at"] == first


async def test_resuming_twice_skips_once(stage: Stage) -> None:
    job_id = await stage.every(60, first_ago=HOUR)
    await pause_job(stage, job_id)
    await resume_job(stage, job_id, stage.now())
    after = await stage.everything()
    again = await resume_job(stage, job_id, stage.now())
    assert again.changed is False
    assert await stage.everything() == after


async def test_an_instant_that_fired_before_the_pause_is_not_skipped_by_it(stage: Stage) -> None:
    job_id = await stage.every(3600, first_ago=MOMENT)
    first = (await stage.row("timers", job_id))["due_at"]
    await stage.fire()
    await pause_job(stage, job_id)
    await resume_job(stage, job_id, stage.now() + 2 * HOUR)
    fired, skipped = await stage.rows("fires", job_id)
    assert (fired["nominal_at"], fired["execution_id"] is not None) == (first, True)
    assert (skipped["nominal_at"], skipped["instants"]) == (first + HOUR, 2)
    assert skipped["decision"] == "skipped_paused"


async def test_a_one_time_job_that_was_paused_over_its_instant_fires_late(stage: Stage) -> None:
    job_id = await stage.once(ago=timedelta(hours=2))
    await pause_job(stage, job_id)
    assert await stage.fire() == 0
    await resume_job(stage, job_id, stage.now())
    assert await stage.fire() == 1
    assert (await stage.row("fires", job_id))["decision"] == "fired_late"


async def test_what_is_queued_already_runs_although_the_job_is_paused(stage: Stage) -> None:
    job_id = await stage.every(3600, first_ago=MOMENT)
    await stage.fire()
    await pause_job(stage, job_id)
    [claim] = await stage.claim(await stage.worker())
    await stage.record(stage.ended(claim, "succeeded"))
    assert (await stage.row("executions", job_id))["status"] == "succeeded"
    assert (await stage.row("timers", job_id))["status"] == "paused"
