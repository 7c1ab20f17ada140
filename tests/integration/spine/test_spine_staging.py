"""Staging: a fire that is committed ahead of its instant, and taken back by a change of its job before it comes."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import msgspec
import pytest

from detent.api.decide import edit, pause, resume
from detent.api.job_fields import Definition
from detent.dispatch.rank import everything
from detent.fire import firer as firing
from detent.fire.decide import decide
from detent.model.ids import new_incarnation_id, new_job_id
from detent.model.job import Job, JobSpec, PythonTask
from detent.store import timers, work
from detent.store.database import Record
from detent.store.job_read import JobFilter, list_jobs, read_job
from detent.store.jobs import (
    Change,
    Changed,
    Draft,
    Standing,
    cancel_execution,
    cancel_job,
    change_job,
    put_by_name,
)
from detent.when.rule import NextFires
from stage import HOUR, MINUTE, SECOND, TENANT, Stage

FAR = timedelta(seconds=40)


async def coming(stage: Stage, **fields: object) -> tuple[UUID, datetime]:
    """An hourly job whose next instant comes within the hour."""
    at = stage.now() + MINUTE
    return await stage.job(at, armed_at=at - HOUR, every=3600.0, **fields), at


async def coming_once(stage: Stage, **fields: object) -> tuple[UUID, datetime]:
    at = stage.now() + MINUTE
    return await stage.job(at, scheduled_at=at, **fields), at


async def claim_early(stage: Stage) -> list[Record]:
    return await work.claim(stage.hot, await stage.worker(), "default", 10, everything(10), HOUR)


async def pause_job(stage: Stage, job_id: UUID) -> Changed:
    return await change_job(stage.db, TENANT, job_id, pause, stage.now(), None)


async def resume_job(stage: Stage, job_id: UUID, now: datetime) -> Changed:
    return await change_job(stage.db, TENANT, job_id, lambda standing: resume(standing, now), now, None)


async def edit_job(stage: Stage, job_id: UUID, payload: str | None = None, **fields: object) -> Changed:
    def change(standing: Standing) -> Change | None:
        spec = msgspec.structs.replace(standing.job.spec, **fields)
        return edit(standing, Definition(spec, payload or standing.job.payload), stage.now())

    return await change_job(stage.db, TENANT, job_id, change, stage.now(), None)


async def read(stage: Stage, job_id: UUID) -> Job:
    standing = await read_job(stage.db, TENANT, job_id)
    assert standing is not None
    return standing.job


async def nothing_is_staged(stage: Stage) -> None:
    assert await stage.rows("live") == await stage.rows("fires") == await stage.rows("executions") == []


# What a staged fire is


async def test_a_staged_fire_is_queued_for_its_instant(stage: Stage) -> None:
    job_id, at = await coming(stage, deadline_seconds=10.0)
    assert await stage.fire_ahead() == 1
    live = await stage.row("live", job_id)
    assert (live["state"], live["attempt"]) == ("queued", 0)
    assert live["scheduled_for"] == live["not_before"] == at
    assert live["queued_at"] < at
    assert live["deadline_at"] == at + 10 * SECOND
    rank_at = await stage.db.fetchval("select detent.rank($1, 2::smallint) >> 20", at)
    assert live["rank"] >> 20 == rank_at
    fire = await stage.row("fires", job_id)
    assert (fire["decision"], fire["nominal_at"], fire["execution_id"]) == ("fired", at, live["execution_id"])
    assert fire["decided_at"] < at
    timer = await stage.row("timers", job_id)
    assert (timer["due_at"], timer["decided_through"], timer["fired"]) == (at + HOUR, at, 1)


async def test_a_deadline_of_a_late_fire_counts_from_its_decision(stage: Stage) -> None:
    job_id = await stage.once(ago=HOUR, deadline_seconds=10.0)
    await stage.fire()
    live = await stage.row("live", job_id)
    assert live["deadline_at"] == live["queued_at"] + 10 * SECOND


async def test_nothing_further_ahead_than_the_lead_is_fired(stage: Stage) -> None:
    job_id, _ = await coming(stage)
    before = await stage.everything()
    [timer] = await stage.due(job_id)
    one = decide(timer, stage.now(), 1, NextFires())
    assert await timers.fire(stage.hot, [one], new_incarnation_id(), "test", stage.now(), SECOND) == set()
    assert await stage.everything() == before


async def test_no_worker_starts_what_is_staged_before_its_instant(stage: Stage) -> None:
    job_id, _ = await coming(stage)
    await stage.fire_ahead()
    assert await stage.claim(await stage.worker()) == []
    await stage.db.execute("update detent.live set not_before = clock_timestamp() where job_id = $1", job_id)
    assert len(await stage.claim(await stage.worker())) == 1


async def test_of_a_job_one_instant_is_staged_at_a_time(stage: Stage) -> None:
    at = stage.now() + MINUTE
    job_id = await stage.job(at, armed_at=at - MINUTE, every=60.0)
    assert await stage.fire_ahead() == 1
    assert await stage.fire_ahead() == 0
    assert len(await stage.rows("live", job_id)) == len(await stage.rows("fires", job_id)) == 1
    await stage.db.execute("update detent.timers set decided_through = clock_timestamp()")
    assert await stage.fire_ahead() == 1


@pytest.mark.parametrize("make", [coming, coming_once])
async def test_a_job_whose_instant_is_staged_is_scheduled_for_it(stage: Stage, make: object) -> None:
    job_id, at = await make(stage)  # type: ignore[operator]
    before = await read(stage, job_id)
    await stage.fire_ahead()
    assert await read(stage, job_id) == before
    for status, found in (("scheduled", [before]), ("running", [])):
        page = await list_jobs(stage.db, TENANT, JobFilter(status=status), before=None, limit=10)
        assert page.items == found
    await claim_early(stage)
    once = before.spec.once
    job = await read(stage, job_id)
    assert (job.status, job.next_run_at) == (("running", None) if once else ("scheduled", at + HOUR))
    page = await list_jobs(stage.db, TENANT, JobFilter(status="running"), before=None, limit=10)
    assert page.items == ([job] if once else [])


# Taking it back


@pytest.mark.parametrize("make", [coming, coming_once])
async def test_a_pause_takes_back_what_is_staged(stage: Stage, make: object) -> None:
    job_id, at = await make(stage)  # type: ignore[operator]
    await stage.fire_ahead()
    paused = await pause_job(stage, job_id)
    assert (paused.changed, paused.job.status) == (True, "paused")
    await nothing_is_staged(stage)
    timer = await stage.row("timers", job_id)
    assert (timer["status"], timer["due_at"]) == ("paused", at)
    assert (timer["decided_through"], timer["fired"]) == (None, 0)
    again = await pause_job(stage, job_id)
    assert again.changed is False


@pytest.mark.parametrize("make", [coming, coming_once])
async def test_a_resume_before_the_instant_stages_it_again_as_the_same_execution(
    stage: Stage, make: object
) -> None:
    job_id, at = await make(stage)  # type: ignore[operator]
    await stage.fire_ahead()
    first = await stage.row("live", job_id)
    for _ in range(2):
        await pause_job(stage, job_id)
        resumed = await resume_job(stage, job_id, stage.now())
        assert (resumed.job.status, resumed.job.next_run_at) == ("scheduled", at)
        assert await stage.fire_ahead() == 1
        assert (await stage.row("live", job_id))["execution_id"] == first["execution_id"]
        assert (await stage.row("fires", job_id))["nominal_at"] == at
    assert (await stage.row("timers", job_id))["fired"] == 1


async def test_an_instant_that_was_taken_back_and_passed_in_the_pause_is_skipped_once(stage: Stage) -> None:
    job_id, at = await coming(stage)
    await stage.fire_ahead()
    await pause_job(stage, job_id)
    await resume_job(stage, job_id, at + SECOND)
    fire = await stage.row("fires", job_id)
    assert (fire["decision"], fire["nominal_at"], fire["through_at"]) == ("skipped_paused", at, at)
    assert (await stage.row("timers", job_id))["due_at"] == at + HOUR


async def test_what_was_decided_before_the_staged_instant_stays_decided(stage: Stage) -> None:
    at = stage.now() + MINUTE
    job_id = await stage.job(at - HOUR, armed_at=at - 2 * HOUR, every=3600.0)
    assert await stage.fire() == 1
    assert await stage.fire_ahead() == 1
    await pause_job(stage, job_id)
    timer = await stage.row("timers", job_id)
    assert (timer["due_at"], timer["decided_through"], timer["fired"]) == (at, at - HOUR, 1)
    assert (await stage.row("fires", job_id))["nominal_at"] == at - HOUR
    assert (await stage.row("live", job_id))["scheduled_for"] == at - HOUR


async def test_an_edit_before_the_instant_is_what_runs_at_it(stage: Stage) -> None:
    job_id, at = await coming(stage)
    await stage.fire_ahead()
    edited = await edit_job(stage, job_id, payload='"new"')
    assert edited.job.next_run_at == at
    await nothing_is_staged(stage)
    assert await stage.fire_ahead() == 1
    live = await stage.row("live", job_id)
    assert (live["revision"], live["scheduled_for"]) == (2, at)
    assert (await stage.row("fires", job_id))["revision"] == 2


async def test_an_edit_of_the_schedule_leaves_nothing_of_the_staged_instant(stage: Stage) -> None:
    job_id, at = await coming(stage)
    await stage.fire_ahead()
    edited = await edit_job(stage, job_id, every=7200.0)
    await nothing_is_staged(stage)
    assert edited.job.next_run_at is not None
    assert edited.job.next_run_at > at
    assert (await stage.row("timers", job_id))["generation"] == 1


async def test_a_one_time_job_may_be_moved_while_it_is_staged(stage: Stage) -> None:
    job_id, at = await coming_once(stage)
    await stage.fire_ahead()
    await edit_job(stage, job_id, scheduled_at=at + MINUTE)
    await nothing_is_staged(stage)
    assert await stage.fire_ahead() == 1
    live = await stage.row("live", job_id)
    assert (live["scheduled_for"], live["ends_job"]) == (at + MINUTE, True)


@pytest.mark.parametrize("make", [coming, coming_once])
async def test_a_cancelled_job_never_had_the_staged_execution(stage: Stage, make: object) -> None:
    job_id, _ = await make(stage)  # type: ignore[operator]
    await stage.fire_ahead()
    cancelled = await cancel_job(stage.db, TENANT, job_id, stage.now(), None)
    assert (cancelled.job.status, cancelled.job.next_run_at) == ("cancelled", None)
    await nothing_is_staged(stage)
    assert (await stage.row("timers", job_id))["status"] == "done"


async def test_a_put_that_changes_something_takes_back_and_one_that_changes_nothing_does_not(
    stage: Stage,
) -> None:
    spec = JobSpec(name="named", task=PythonTask("noop"), every=3600.0)

    async def put(payload: str) -> Changed:
        now = stage.now()
        return await put_by_name(
            stage.db, TENANT, Draft(new_job_id(now), spec, payload, now + MINUTE),
            lambda standing: edit(standing, Definition(spec, payload), now), now, None,
        )  # fmt: skip

    made = await put("1")
    assert await stage.fire_ahead() == 1
    staged = await stage.everything()
    same = await put("1")
    assert (same.changed, same.job.next_run_at) == (False, made.job.next_run_at)
    assert await stage.everything() == staged
    other = await put("2")
    assert (other.changed, other.job.job_id) == (True, made.job.job_id)
    await nothing_is_staged(stage)


async def test_cancelling_the_staged_execution_decides_its_instant(stage: Stage) -> None:
    job_id, at = await coming(stage)
    await stage.fire_ahead()
    target = (await stage.row("live", job_id))["execution_id"]
    cancelled = await cancel_execution(stage.db, TENANT, target, stage.now(), None)
    assert cancelled.execution.status == "cancelled"
    assert (await stage.row("fires", job_id))["execution_id"] == target
    assert (await read(stage, job_id)).next_run_at == at + HOUR
    await pause_job(stage, job_id)
    await resume_job(stage, job_id, stage.now())
    assert (await stage.row("timers", job_id))["due_at"] == at + HOUR


# What a worker has already


async def test_what_a_worker_has_claimed_runs_although_its_job_is_paused_or_edited(stage: Stage) -> None:
    job_id, at = await coming(stage)
    await stage.fire_ahead()
    [row] = await claim_early(stage)
    await pause_job(stage, job_id)
    await edit_job(stage, job_id, payload='"new"')
    live = await stage.row("live", job_id)
    assert (live["execution_id"], live["state"]) == (row["execution_id"], "running")
    assert (await stage.row("fires", job_id))["nominal_at"] == at
    timer = await stage.row("timers", job_id)
    assert (timer["status"], timer["decided_through"]) == ("paused", at)
    await resume_job(stage, job_id, stage.now())
    assert (await stage.row("timers", job_id))["due_at"] == at + HOUR


async def test_a_new_schedule_does_not_decide_again_what_a_worker_has(stage: Stage) -> None:
    job_id, at = await coming(stage)
    await stage.fire_ahead()
    await claim_early(stage)
    edited = await edit_job(stage, job_id, cron="* * * * *", every=None)
    assert edited.job.next_run_at is not None
    assert edited.job.next_run_at > at


async def test_what_a_worker_has_claimed_is_asked_to_stop_when_its_job_is_cancelled(stage: Stage) -> None:
    job_id, _ = await coming_once(stage)
    await stage.fire_ahead()
    await claim_early(stage)
    cancelled = await cancel_job(stage.db, TENANT, job_id, stage.now(), None)
    assert len(cancelled.workers) == 1
    assert (await stage.row("live", job_id))["cancel_requested_at"] is not None
    assert len(await stage.rows("fires", job_id)) == 1


async def test_what_was_fired_at_its_instant_stays_although_the_clock_is_set_back(stage: Stage) -> None:
    job_id = await stage.every(3600, first_ago=timedelta(0))
    assert await stage.fire() == 1
    for statement in (  # as if the clock had been set back by a minute
        "update detent.timers set due_at = due_at + $1, decided_through = decided_through + $1",
        "update detent.live set scheduled_for = scheduled_for + $1, queued_at = queued_at + $1",
        "update detent.fires set nominal_at = nominal_at + $1, decided_at = decided_at + $1",
    ):
        await stage.db.execute(statement.replace("$1", "$1::interval"), MINUTE)
    await pause_job(stage, job_id)
    assert len(await stage.rows("live", job_id)) == len(await stage.rows("fires", job_id)) == 1


# The firer


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lead that no test outlasts."""
    monkeypatch.setattr(firing, "LEAD", FAR)
    monkeypatch.setattr(firing, "LEAD_MOST", FAR)


async def test_a_firer_stages_what_comes_within_the_lead(stage: Stage, far: None) -> None:
    at = stage.now() + FAR / 2
    job_id = await stage.job(at, delay=FAR.total_seconds() / 2)
    later = await stage.job(at + FAR, scheduled_at=at + FAR)
    firer = await stage.firer()
    wait = await firer.run_once()
    assert firer.fired == 1
    assert (await stage.row("live", job_id))["not_before"] == at
    assert await stage.rows("live", later) == []
    assert wait is not None
    assert wait <= 1
    assert firer.lag_ms == 0
    assert stage.notifier._pools == {"default"}  # its workers are told at once


async def test_a_firer_sets_the_next_instant_aside_until_the_staged_one_has_come(
    stage: Stage, far: None
) -> None:
    at = stage.now() + FAR / 4
    job_id = await stage.job(at, armed_at=at - SECOND, every=1.0)
    firer = await stage.firer()
    await firer.run_once()
    await firer.run_once()
    assert firer.fired == 1
    assert len(await stage.rows("live", job_id)) == 1
    assert firer._behind[0][0] == at
    firer._let_out(at)
    assert not firer._behind
    assert firer._wheel.next_due() == at + SECOND


async def test_the_lead_grows_with_the_crowd(stage: Stage) -> None:
    firer = await stage.firer()
    now = stage.now()
    assert firer._lead(now) == firing.LEAD
    for _ in range(4):
        await stage.jobs([now + 2 * SECOND] * 1_000, scheduled_at=now + 2 * SECOND)
    await firer._horizon.extend(range(256), now)
    assert firer._lead(now) == firing.LEAD + SECOND * 4_000 / firing.LEAD_FIRES_PER_SECOND
    assert firer._lead(now - MINUTE) == firing.LEAD


async def test_two_firers_stage_an_instant_once(stage: Stage, far: None) -> None:
    at = stage.now() + FAR / 2
    jobs = await stage.jobs([at] * 30, scheduled_at=at)
    first, second = await stage.firer(), await stage.firer()
    await first._refresh()
    await second._refresh()
    await first.run_once()
    await second.run_once()
    await second.run_once()
    assert (first.fired, second.fired) == (30, 0)
    assert len(await stage.rows("live")) == len(await stage.rows("fires")) == len(jobs)
