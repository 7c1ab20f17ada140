"""The words of the model are those of the tables: a word that one side does not know is a bug."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from detent.model.execution import CLOSED, OPEN, ClosedStatus, ExecutionStatus, OpenStatus, Outcome
from detent.model.job import CLASSES, JobSpec, Priority, PythonTask, ShellTask, TimerStatus
from detent.store import migrate

SCHEMA = (Path(migrate.__file__).parent / "migrations" / "0001_first.sql").read_text()


def words_of(constraint: str) -> set[str]:
    found = re.search(rf"constraint {constraint} check \(\w+ in \(([^)]*)\)", SCHEMA)
    assert found is not None
    return set(re.findall(r"'(\w+)'", found.group(1)))


def test_states_and_outcomes_are_those_of_the_tables() -> None:
    assert words_of("state_is_known") == OPEN == set(get_args(OpenStatus))
    assert words_of("closed_status_is_known") == CLOSED == set(get_args(ClosedStatus))
    assert words_of("outcome_is_known") == set(get_args(Outcome))
    assert words_of("timer_status_is_known") == set(get_args(TimerStatus))


def test_an_execution_is_open_or_closed_and_never_both() -> None:
    assert set(get_args(ExecutionStatus)) == OPEN | CLOSED
    assert not OPEN & CLOSED


def test_every_priority_has_a_class_and_critical_comes_first() -> None:
    assert set(CLASSES) == set(get_args(Priority))
    assert sorted(CLASSES, key=CLASSES.__getitem__) == ["critical", "high", "normal", "low"]
    assert sorted(CLASSES.values()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "spec",
    [
        JobSpec(name="plain", task=PythonTask("noop")),
        JobSpec(name="shell", task=ShellTask("echo hello", {"A": "b"}, "/tmp"), cron="* * * * *"),
        JobSpec(name="list", task=ShellTask(("echo", "hello")), every=60.0, tags=("a", "b")),
        JobSpec(name="later", task=PythonTask("noop"), delay=1.5, max_retries=0, dead_letter=False),
    ],
)
def test_a_definition_survives_being_stored(spec: JobSpec) -> None:
    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec


def test_only_what_decides_when_is_part_of_the_schedule() -> None:
    spec = JobSpec(name="job", task=PythonTask("noop"), cron="0 0 * * *")
    same = msgspec.structs.replace(spec, name="other", pool="reports", max_retries=9, priority="low")
    assert same.schedule == spec.schedule
    for change in ({"cron": "1 0 * * *"}, {"timezone": "Europe/Berlin"}, {"cron": None, "every": 60.0}):
        assert msgspec.structs.replace(spec, **change).schedule != spec.schedule


def test_a_definition_is_once_or_recurring_or_neither() -> None:
    for fields, once, recurring in (
        ({"delay": 1.0}, True, False),
        ({"every": 1.0}, False, True),
        ({"cron": "* * * * *"}, False, True),
        ({}, False, False),
    ):
        spec = JobSpec(name="job", task=PythonTask("noop"), **fields)
        assert (spec.once, spec.recurring) == (once, recurring)
