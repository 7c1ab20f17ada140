"""The decision about one due timer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from detent.fire.decide import decide, rule_for
from detent.model.errors import InvalidInput
from detent.model.ids import execution_id, filed_day, new_job_id, schedule_key
from detent.model.job import JobSpec, PythonTask, Terms
from detent.store.sql import Queries
from detent.store.timers import DueTimer, Firing
from detent.when.rule import NextFires

queries = Queries.load()
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
JOB = new_job_id(NOON)


def timer(due_at: datetime = NOON, armed_at: datetime = NOON - HOUR, **fields: Any) -> DueTimer:
    spec = JobSpec(name="job", task=PythonTask("noop"), **fields)
    return DueTimer(JOB, 1, due_at, 7, 3, 5, 2, msgspec.json.encode(spec).decode(), armed_at)


def at(due: DueTimer, now: datetime) -> Firing:
    return decide(due, now, 4, NextFires())


def test_a_one_time_job_fires_its_instant_and_ends_with_it() -> None:
    firing = at(timer(scheduled_at=NOON), NOON)
    assert (firing.fire_at, firing.next_at, firing.ends_job) == (NOON, None, True)
    assert (firing.skipped, firing.skipped_through) == (None, None)


def test_a_one_time_job_that_is_a_year_late_fires_its_own_instant() -> None:
    firing = at(timer(scheduled_at=NOON), NOON + 365 * DAY)
    assert (firing.fire_at, firing.next_at, firing.skipped) == (NOON, None, None)
    assert firing.day == (NOON + 365 * DAY).date()


def test_a_delayed_job_fires_once() -> None:
    firing = at(timer(NOON, delay=3600.0), NOON + MINUTE)
    assert (firing.fire_at, firing.next_at, firing.ends_job) == (NOON, None, True)


def test_a_recurring_job_fires_its_instant_and_goes_on() -> None:
    for fields in ({"every": 60.0}, {"cron": "* * * * *"}):
        firing = at(timer(**fields), NOON + 59 * timedelta(seconds=1))
        assert (firing.fire_at, firing.next_at, firing.ends_job) == (NOON, NOON + MINUTE, False)
        assert firing.skipped is None


def test_an_instant_that_is_due_exactly_now_counts_as_passed() -> None:
    firing = at(timer(every=60.0), NOON + MINUTE)
    assert (firing.fire_at, firing.next_at) == (NOON + MINUTE, NOON + 2 * MINUTE)
    assert (firing.skipped, firing.skipped_through) == (1, NOON)


def test_of_many_that_passed_the_latest_fires_and_the_others_are_one_range() -> None:
    firing = at(timer(every=60.0), NOON + DAY + timedelta(seconds=1))
    assert firing.fire_at == NOON + DAY
    assert firing.next_at == NOON + DAY + MINUTE
    assert (firing.skipped, firing.skipped_through) == (1440, NOON + DAY - MINUTE)


def test_what_the_compare_and_set_needs_is_the_timers_own() -> None:
    firing = at(timer(every=60.0), NOON + DAY)
    assert (firing.job_id, firing.version, firing.due_at, firing.revision) == (JOB, 7, NOON, 2)
    assert firing.epoch == 4


def test_pool_and_class_are_the_definitions() -> None:
    firing = at(timer(scheduled_at=NOON, pool="reports", priority="critical"), NOON)
    assert (firing.pool, firing.klass) == ("reports", 0)


def test_the_execution_is_named_by_generation_and_instant() -> None:
    due = timer(scheduled_at=NOON)
    firing = at(due, NOON)
    assert firing.execution_id == execution_id(NOON, JOB, "schedule", schedule_key(3, NOON))
    assert firing.day == filed_day(firing.execution_id) == NOON.date()
    assert at(due._replace(generation=4), NOON).execution_id != firing.execution_id
    assert at(due._replace(job_id=UUID(int=1)), NOON).execution_id != firing.execution_id


def test_deciding_again_within_the_week_names_the_same_execution() -> None:
    due = timer(scheduled_at=NOON)
    names = {at(due, NOON + late).execution_id for late in (0 * DAY, MINUTE, DAY, 7 * DAY)}
    assert len(names) == 1


def test_a_rule_that_cannot_be_read_raises() -> None:
    with pytest.raises(InvalidInput):
        at(timer(cron="* * *"), NOON)
    with pytest.raises(msgspec.ValidationError):
        at(timer()._replace(terms='{"pool": 5}'), NOON)


def test_cron_jobs_share_one_rule_and_one_computation() -> None:
    memo = NextFires()
    due = [timer(armed_at=NOON - k * HOUR, cron="0 0 * * *") for k in range(100)]
    for one in due:
        decide(one, NOON, 1, memo)
    assert len({id(rule_for(one)) for one in due}) == 1
    assert memo.computed == 1


def test_intervals_count_from_when_they_were_set() -> None:
    due = [timer(armed_at=NOON - HOUR + k * MINUTE, every=7200.0) for k in range(3)]
    assert [at(one, NOON).next_at for one in due] == [NOON + HOUR + k * MINUTE for k in range(3)]


def test_terms_are_a_definition_without_what_is_the_jobs_own() -> None:
    own = {"name", "task", "tags", "callback_url"}
    fields = {one.name: one for one in msgspec.structs.fields(JobSpec) if one.name not in own}
    terms = {one.name: one for one in msgspec.structs.fields(Terms)}
    assert {name: (one.type, one.default) for name, one in terms.items()} == {
        name: (one.type, one.default) for name, one in fields.items()
    }
    for statement in ("due_timers", "further_timers", "timers_of"):
        assert f"v.spec - '{{{','.join(('name', 'task', 'tags', 'callback_url'))}}}'" in queries[statement]
