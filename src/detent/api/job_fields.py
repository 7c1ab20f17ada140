"""A job's definition from the fields of a request.

The same reading serves creation, replacement and edits: an edit starts from the definition as it is, and
what it gives replaces what was there. Everything that is wrong is noted; nothing is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from detent.api import values
from detent.api.body import value_of
from detent.api.refusals import Refusals
from detent.api.task_fields import read_task
from detent.api.vocabulary import ALIASES, DEFINITION, EITHER_SCHEDULE, SCHEDULES, Given, sort_fields
from detent.model.errors import InvalidInput
from detent.model.job import PAYLOAD_LIMIT, Dst, JobSpec, PythonTask
from detent.when.cron import parse_cron
from detent.when.every import LONGEST_SECONDS, parse_every
from detent.when.zone import zone

GAPS = ("next_valid", "skip")
FOLDS = ("first", "second", "both")
PRIORITIES = ("critical", "high", "normal", "low")
BACKOFFS = ("exponential", "linear", "fixed")
TYPES = ("one_time", "recurring")
_DATE_LIKE = re.compile(r"\s*[0-9]{4}-[0-9]{2}")
NOTHING = "null"


@dataclass(frozen=True, slots=True)
class Definition:
    spec: JobSpec
    payload: str
    idempotency_key: str | None = None


def _timezone(field: str, value: Any) -> str:
    zone(value, field)
    return str(value)


def _cron(_field: str, value: Any) -> str:
    parse_cron(value)
    return str(value).strip()  # as it was written: what an H means depends on the job


READERS: dict[str, Callable[[str, Any], Any]] = {
    "name": values.text,
    "scheduled_at": values.instant,
    "delay": lambda field, value: values.seconds(field, value, 0, LONGEST_SECONDS),
    "cron": _cron,
    "every": lambda field, value: parse_every(value, field),
    "timezone": _timezone,
    "start_at": values.instant,
    "end_at": values.instant,
    "priority": lambda field, value: values.choice(field, value, PRIORITIES),
    "timeout_seconds": values.timeout,
    "max_retries": lambda field, value: values.whole(field, value, 0, 1000),
    "retry_backoff": lambda field, value: values.choice(field, value, BACKOFFS),
    "retry_delay_seconds": lambda field, value: values.seconds(field, value, 0, values.LONGEST_RETRY_DELAY),
    "deadline_seconds": lambda field, value: values.seconds(field, value, 0.001, values.LONGEST_DEADLINE),
    "callback_url": values.callback,
    "tags": values.tags,
    "pool": values.pool,
    "dead_letter": values.flag,
}


def read_definition(
    fields: Mapping[str, msgspec.Raw], refusals: Refusals, *, current: Definition | None = None
) -> Definition | None:
    """The definition that a request asks for, or None after noting what is wrong with it."""
    given = _gather(fields, refusals)
    changes: dict[str, Any] = {}
    for name, label, value in given:
        read = READERS.get(name)
        if read is not None and value is not None:
            try:
                changes[name] = (values.timeout_ms if label == "timeout_ms" else read)(label, value)
            except InvalidInput as refusal:
                # A reader of one value does not know under which name the request gave it.
                own = all(error.field.startswith(label) for error in refusal.errors)
                refusals.take(refusal, None if own else label)
    if "task" in given and given.value("task") is not None:
        changes["task"] = read_task("task", given.value("task"), refusals)
    if given.value("dst") is not None:
        changes["dst"] = _dst(given.value("dst"), refusals)
    payload = _payload(given, refusals, current.payload if current else NOTHING)
    key = _idempotency_key(given, refusals, editing=current is not None)
    _check_schedules(given, refusals)
    spec = _assemble(given, changes, current.spec if current else None, refusals)
    if spec is None:
        return None
    _check_type(given, spec, refusals)
    _check_bounds(spec, refusals)
    return None if refusals else Definition(spec, payload, key)


def _gather(fields: Mapping[str, msgspec.Raw], refusals: Refusals) -> Given:
    """Values by their real names. The payload stays the text it came as."""
    given = Given()
    for label, raw in sort_fields(fields, refusals).items():
        name = ALIASES.get(label, label)
        if name == "payload":
            given.put(name, label, raw, refusals)
            continue
        before = len(refusals.errors)
        value = value_of(raw, label, refusals)
        if len(refusals.errors) > before:
            continue
        if label in EITHER_SCHEDULE:
            if not isinstance(value, str | None):
                refusals.add(label, "must be a cron expression or an instant as a string", "wrong_type")
                continue
            if value is None:  # no schedule at all, whichever there was
                for schedule in SCHEDULES:
                    given.put(schedule, label, None, refusals)
                continue
            name = "scheduled_at" if _DATE_LIKE.match(value) else "cron"
        given.put(name, label, value, refusals)
    return given


def _check_schedules(given: Given, refusals: Refusals) -> None:
    wanted = [given.label(name) for name in SCHEDULES if given.value(name) is not None]
    for label in wanted[1:]:
        refusals.add(
            label, f"cannot be combined with {wanted[0]!r}: a job has one schedule", "conflicting_fields"
        )


def _assemble(
    given: Given, changes: dict[str, Any], current: JobSpec | None, refusals: Refusals
) -> JobSpec | None:
    merged: dict[str, Any] = msgspec.structs.asdict(current) if current else {}
    if any(given.value(name) is not None for name in SCHEDULES):
        for name in SCHEDULES:  # a new schedule takes the place of whichever was there
            merged.pop(name, None)
    if merged:
        for name in DEFINITION:
            if name in given:
                merged.pop(name, None)  # null means the default
    merged.update(changes)
    if "name" not in merged:
        if given.value("name") is None:  # otherwise it was refused already
            refusals.add("name", "is needed: a name for people, such as 'nightly report'", "required")
        return None
    if "task" not in merged:
        merged["task"] = PythonTask(merged["name"])
    if any(value is None for name, value in changes.items() if name in ("task", "dst")):
        return None
    return JobSpec(**merged)


def _check_type(given: Given, spec: JobSpec, refusals: Refusals) -> None:
    """`type` repeats what the schedule says; it is checked and then forgotten."""
    kind = given.value("type")
    if kind is None:
        return
    if kind not in TYPES:
        refusals.add("type", f"must be one of {', '.join(TYPES)}")
    elif kind == "one_time" and not spec.once:
        refusals.add("type", "is 'one_time', which needs 'scheduled_at' or 'delay'", "mismatch")
    elif kind == "recurring" and not spec.recurring:
        refusals.add("type", "is 'recurring', which needs 'cron' or 'every'", "mismatch")


def _check_bounds(spec: JobSpec, refusals: Refusals) -> None:
    if not spec.recurring:
        for name in ("start_at", "end_at"):
            if getattr(spec, name) is not None:
                refusals.add(name, "bounds a recurring schedule: it needs 'cron' or 'every'", "mismatch")
    elif spec.start_at is not None and spec.end_at is not None and spec.end_at < spec.start_at:
        refusals.add("end_at", "must not be before 'start_at'", "out_of_range")


def _dst(value: Any, refusals: Refusals) -> Dst | None:
    if not isinstance(value, dict):
        refusals.add("dst", "must be an object with 'gap' and 'fold'", "wrong_type")
        return None
    before = len(refusals.errors)
    for name in value:
        if name not in ("gap", "fold"):
            refusals.add(f"dst.{name[:100]}", "is no known field; known are fold, gap", "unknown_field")
    chosen = {"gap": GAPS[0], "fold": FOLDS[0], **{k: v for k, v in value.items() if v is not None}}
    gap, fold = chosen["gap"], chosen["fold"]
    for name, word, words in (("gap", gap, GAPS), ("fold", fold, FOLDS)):
        if word not in words:
            refusals.add(f"dst.{name}", f"must be one of {', '.join(words)}")
    return msgspec.convert({"gap": gap, "fold": fold}, Dst) if len(refusals.errors) == before else None


def _payload(given: Given, refusals: Refusals, current: str) -> str:
    if "payload" not in given:
        return current
    return read_payload(given.label("payload"), given.value("payload"), refusals)


def read_payload(label: str, raw: msgspec.Raw, refusals: Refusals) -> str:
    """The payload as compact JSON text."""
    before = len(refusals.errors)
    value_of(raw, label, refusals)  # as a worker will: a text that it cannot read must not get in
    if len(refusals.errors) > before:
        return NOTHING
    compact = msgspec.json.format(bytes(raw), indent=-1)
    if len(compact) > PAYLOAD_LIMIT:
        refusals.add(label, f"has {len(compact):,} bytes, at most {PAYLOAD_LIMIT:,} are allowed", "too_large")
    return compact.decode()


def _idempotency_key(given: Given, refusals: Refusals, *, editing: bool) -> str | None:
    value = given.value("idempotency_key")
    if value is None:
        return None
    if editing:
        refusals.add("idempotency_key", "is set at creation and cannot be changed", "read_only")
        return None
    try:
        return values.text("idempotency_key", value)
    except InvalidInput as refusal:
        refusals.take(refusal)
        return None
