"""The words of the system as sentences, and which of them are good news."""

from __future__ import annotations

import shlex
from datetime import datetime

from detent.model.errors import InvalidInput
from detent.model.job import JobSpec, PythonTask, Task
from detent.when.of import rule_of
from detent.when.words import in_words

# What a rule that cannot be read may raise: such a job is parked, and its page must still open.
UNREADABLE = (InvalidInput, ValueError, ArithmeticError, LookupError, TypeError)

TONES = {
    "succeeded": "good",
    "completed": "good",
    "fired": "good",
    "failed": "bad",
    "timed_out": "bad",
    "dead_lettered": "bad",
    "worker_lost": "bad",
    "parked": "bad",
    "retrying": "warn",
    "held": "warn",
    "paused": "warn",
    "fired_late": "warn",
    "skipped_overlap": "warn",
    "skipped_misfire": "warn",
    "running": "busy",
}

DECISIONS = {
    "fired": "fired",
    "fired_late": "fired late",
    "skipped_overlap": "skipped: the run before was still open",
    "skipped_misfire": "skipped: too late",
    "skipped_calendar": "skipped by its calendar",
    "skipped_paused": "skipped: the job was paused",
    "skipped_by_user": "skipped on request",
    "skipped_end": "skipped: past the end of the schedule",
    "dst_gap": "not on the clock: daylight saving skipped it",
    "dst_fold": "twice on the clock: daylight saving repeated it",
    "parked": "parked: its rule could not be followed",
}

CAUSES = {
    "schedule": "its schedule",
    "manual": "run by hand",
    "event": "an event",
    "backfill": "a backfill",
    "replay": "a replay",
    "step": "a workflow",
}


def tone(status: str) -> str:
    return TONES.get(status, "calm")


def spaced(word: str) -> str:
    return word.replace("_", " ")


def reason(given: str) -> str:
    """A reason is a sentence or one of our words."""
    return spaced(given) if given.replace("_", "").isalpha() else given


def schedule(spec: JobSpec, armed_at: datetime, seed: int) -> str:
    try:
        return in_words(rule_of(spec, armed_at, seed))
    except UNREADABLE:
        return f"{spec.cron or 'a schedule'} (cannot be read)"


def task(one: Task) -> str:
    if isinstance(one, PythonTask):
        return one.name
    return one.command if isinstance(one.command, str) else shlex.join(one.command)


def task_kind(one: Task) -> str:
    if isinstance(one, PythonTask):
        return "Python task"
    return "Shell script" if isinstance(one.command, str) else "Program"


def count(number: int, most: int) -> str:
    """A figure that is counted only so far."""
    return f"{number:,}" if number < most else f"{most:,}+"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
