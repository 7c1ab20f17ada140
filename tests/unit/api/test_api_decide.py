"""What edits, pauses and resumes do to a job: pure, so every case can be told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from detent.api import decide
from detent.api.job_fields import Definition
from detent.model.errors import Conflict, InvalidInput
from detent.model.job import Job, JobSpec, PythonTask
from detent.store.jobs import Change, Skipped, Standing

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def spec(**fields: Any) -> JobSpec:
    return JobSpec(**{"name": "n", "task": PythonTask("n"), **fields})


def standing(definition: JobSpec, **fields: Any) -> Standing:
    """A job as it stands; unless said otherwise armed an hour before noon, with nothing decided."""
    job = Job(
        tenant=1,
        job_id=UUID(int=1),
        spec=definition,
        payload="null",
        status="scheduled",
        next_run_at=None,
        revision=1,
        armed_at=NOON - HOUR,
        created_at=NOON - HOUR,
        updated_at=NOON - HOUR,
    )
    usual = {
        "due_at": NOON + MINUTE, "decided_through": None, "generation": 1, "timer_status": "scheduled",
        "ended": None, "by_name": False,
    }  # fmt: skip
    return Standing(job=job, **{**usual, **fields})


def edited(before: Standing, **changes: Any) -> Change | None:
    status = changes.pop("status", None)
    wanted = Definition(msgspec.structs.replace(before.job.spec, **changes), "null")
    return decide.edit(before, wanted, NOON, status)


EVERY = spec(every=60.0)
ONCE = spec(scheduled_at=NOON + MINUTE)
MANUAL = spec()


def test_the_first_instant_of_each_schedule() -> None:
    assert decide.first_due(ONCE, NOON, NOON) == NOON + MINUTE
    assert decide.first_due(spec(scheduled_at=NOON - HOUR), NOON, NOON) == NOON - HOUR, "also a past one"
    assert decide.first_due(spec(delay=90.0), NOON, NOON) == NOON + timedelta(seconds=90)
    assert decide.first_due(EVERY, NOON, NOON) == NOON + MINUTE
    assert decide.first_due(spec(cron="0 13 * * *"), NOON, NOON) == NOON + HOUR
    assert decide.first_due(MANUAL, NOON, NOON) is None


def test_a_schedule_that_has_no_instant_left_is_refused() -> None:
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    with pytest.raises(InvalidInput) as refused:
        decide.first_due(spec(cron="0 0 1 1 *"), end, end)
    assert refused.value.errors[0].code == "never_fires"


def test_a_schedule_counts_from_a_whole_millisecond() -> None:
    assert decide.armed(NOON + timedelta(microseconds=1)) == NOON + timedelta(milliseconds=1)
    assert decide.armed(NOON) == NOON


def test_a_pause_keeps_the_instant_for_later() -> None:
    assert decide.pause(standing(EVERY)) == Change("paused", NOON + MINUTE, None, 1)
    assert decide.pause(standing(EVERY, timer_status="paused")) is None
    assert decide.pause(standing(MANUAL, timer_status="idle", due_at=None)) == Change("paused", None, None, 1)
    done = standing(ONCE, timer_status="done", decided_through=NOON)
    assert decide.pause(done) == Change("paused", None, NOON, 1)


@pytest.mark.parametrize("ended", ["completed", "failed", "cancelled"])
def test_what_ended_is_neither_paused_nor_resumed(ended: str) -> None:
    for act in (decide.pause, lambda one: decide.resume(one, NOON)):
        with pytest.raises(Conflict) as refused:
            act(standing(EVERY, ended=ended))
        assert refused.value.code == "wrong_state"


def test_a_resume_before_the_instant_skips_nothing() -> None:
    paused = standing(EVERY, timer_status="paused")
    assert decide.resume(paused, NOON) == Change("scheduled", NOON + MINUTE, None, 1)
    assert decide.resume(standing(EVERY), NOON) is None


def test_a_resume_after_instants_names_them_and_goes_on_behind_them() -> None:
    paused = standing(EVERY, timer_status="paused", due_at=NOON - 10 * MINUTE)
    assert decide.resume(paused, NOON) == Change(
        "scheduled", NOON + MINUTE, NOON, 1, skipped=Skipped(NOON - 10 * MINUTE, NOON, 11)
    )


def test_an_instant_that_is_due_this_very_moment_has_passed() -> None:
    paused = standing(EVERY, timer_status="paused", due_at=NOON)
    change = decide.resume(paused, NOON)
    assert change is not None
    assert change.skipped == Skipped(NOON, NOON, 1)
    assert change.due_at == NOON + MINUTE


def test_what_was_decided_is_not_named_again() -> None:
    paused = standing(
        EVERY, timer_status="paused", due_at=NOON - 5 * MINUTE, decided_through=NOON - 3 * MINUTE
    )
    change = decide.resume(paused, NOON)
    assert change is not None
    assert change.skipped == Skipped(NOON - 2 * MINUTE, NOON, 3)
    all_of_it = decide.resume(
        standing(EVERY, timer_status="paused", due_at=NOON - 5 * MINUTE, decided_through=NOON), NOON
    )
    assert all_of_it == Change("scheduled", NOON + MINUTE, NOON, 1)


def test_a_parked_instant_is_decided() -> None:
    parked = standing(EVERY, timer_status="parked", due_at=NOON - 5 * MINUTE)
    change = decide.resume(parked, NOON)
    assert change is not None
    assert change.skipped == Skipped(NOON - 4 * MINUTE, NOON, 5, "parked")
    assert decide.pause(parked) == Change("paused", NOON - 5 * MINUTE, NOON - 5 * MINUTE, 1)
    once = decide.resume(standing(ONCE, timer_status="parked", due_at=NOON - HOUR), NOON)
    assert once == Change("scheduled", NOON - HOUR, NOON - HOUR, 2)


def test_one_time_and_manual_jobs_resume_to_what_they_were() -> None:
    assert decide.resume(standing(ONCE, timer_status="paused"), NOON) == Change(
        "scheduled", NOON + MINUTE, None, 1
    )
    late = standing(ONCE, timer_status="paused", due_at=NOON - HOUR)
    assert decide.resume(late, NOON) == Change("scheduled", NOON - HOUR, None, 1)
    fired = standing(ONCE, timer_status="paused", due_at=None, decided_through=NOON)
    assert decide.resume(fired, NOON) == Change("done", None, NOON, 1)
    assert decide.resume(standing(MANUAL, timer_status="paused", due_at=None), NOON) == Change(
        "idle", None, None, 1
    )


def test_an_edit_of_the_schedule_arms_it_anew_and_lets_go_of_what_is_open() -> None:
    change = edited(standing(EVERY), every=120.0)
    assert change is not None
    assert (change.timer_status, change.due_at, change.generation) == ("scheduled", NOON + 2 * MINUTE, 1)
    assert change.revision is not None
    assert change.revision.armed_at == NOON
    assert change.detach
    assert not change.revive


def test_an_edit_of_anything_else_leaves_the_clockwork_alone() -> None:
    before = standing(EVERY, decided_through=NOON, generation=3)
    change = edited(before, priority="high")
    assert change is not None
    assert (change.timer_status, change.due_at, change.decided_through, change.generation) == (
        "scheduled", NOON + MINUTE, NOON, 3,
    )  # fmt: skip
    assert change.revision is not None
    assert change.revision.armed_at == NOON - HOUR
    assert not change.detach
    assert edited(before) is None


def test_no_edit_decides_an_instant_again() -> None:
    decided = NOON + 10 * MINUTE  # staged a little ahead
    change = edited(standing(EVERY, decided_through=decided), every=90.0)
    assert change is not None
    assert change.due_at is not None
    assert change.due_at > decided
    again = edited(standing(spec(every=5.0), decided_through=decided), every=None, scheduled_at=decided)
    assert again is not None
    assert (again.due_at, again.generation) == (decided, 2)
    later = edited(standing(EVERY, decided_through=decided), every=None, scheduled_at=decided + MINUTE)
    assert later is not None
    assert later.generation == 1


def test_a_paused_job_stays_paused_through_an_edit_and_names_what_passed() -> None:
    paused = standing(EVERY, timer_status="paused", due_at=NOON - 2 * MINUTE)
    change = edited(paused, every=120.0)
    assert change is not None
    assert (change.timer_status, change.due_at) == ("paused", NOON + 2 * MINUTE)
    assert change.skipped == Skipped(NOON - 2 * MINUTE, NOON, 3)
    assert change.decided_through == NOON


def test_a_parked_job_gets_going_with_a_new_schedule_whatever_its_old_one_was() -> None:
    broken = standing(
        spec(cron="* * * * *", timezone="Nowhere/Atall"), timer_status="parked", due_at=NOON - HOUR
    )
    change = edited(broken, timezone="UTC")
    assert change is not None
    assert (change.timer_status, change.due_at, change.skipped) == ("scheduled", NOON + MINUTE, None)


def test_an_ended_job_lives_again_only_with_a_new_schedule() -> None:
    completed = standing(ONCE, timer_status="done", due_at=None, ended="completed", decided_through=NOON)
    change = edited(completed, scheduled_at=NOON + HOUR)
    assert change is not None
    assert change.revive
    assert change.timer_status == "scheduled"
    other = edited(completed, priority="low")
    assert other is not None
    assert not other.revive
    for status in ("paused", "scheduled"):
        with pytest.raises(Conflict):
            edited(completed, priority="low", status=status)
    paused = edited(completed, scheduled_at=NOON + HOUR, status="paused")
    assert paused is not None
    assert (paused.timer_status, paused.revive) == ("paused", True)


def test_a_cancelled_job_takes_no_edit() -> None:
    for changes in ({}, {"priority": "low"}, {"every": 5.0}):
        with pytest.raises(Conflict):
            edited(standing(EVERY, ended="cancelled"), **changes)


def test_status_and_edit_together_are_both() -> None:
    paused = edited(standing(EVERY), priority="low", status="paused")
    assert paused is not None
    assert (paused.timer_status, paused.due_at) == ("paused", NOON + MINUTE)
    late = standing(EVERY, timer_status="paused", due_at=NOON - MINUTE)
    resumed = edited(late, priority="low", status="scheduled")
    assert resumed is not None
    assert (resumed.timer_status, resumed.skipped) == ("scheduled", Skipped(NOON - MINUTE, NOON, 2))
    assert resumed.revision is not None
    assert resumed.revision.spec.priority == "low"
    moved = edited(late, every=120.0, status="scheduled")
    assert moved is not None
    assert (moved.timer_status, moved.skipped) == ("scheduled", Skipped(NOON - MINUTE, NOON, 2))
    assert edited(standing(EVERY), status="scheduled") is None
