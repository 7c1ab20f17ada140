"""/schedules/preview: when a rule would fire, without making a job of it."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
from litestar import post

from detent.api import render, values
from detent.api.answer import Answer
from detent.api.body import AnyRequest, Fields, read_object, value_of
from detent.api.job_fields import read_definition
from detent.api.refusals import Refusals
from detent.api.state import state_of
from detent.api.vocabulary import refuse_unknown
from detent.model.errors import InvalidInput
from detent.model.job import JobSpec
from detent.when.instant import parse_instant
from detent.when.of import rule_of
from detent.when.rule import fires
from detent.when.strange import hash_hints, hints
from detent.when.words import in_words

SCHEDULE_FIELDS = ("cron", "every", "scheduled_at", "delay", "at", "schedule", "timezone", "dst", "start_at",
                   "end_at", "type")  # fmt: skip
LATER = ("event", "calendar", "jitter_seconds", "window_seconds", "max_runs")
COUNT, MOST = 10, 1_000


@post("/schedules/preview", status_code=200)
async def preview(request: AnyRequest) -> Answer:
    state = state_of(request)
    fields = await read_object(request)
    refusals = Refusals()
    refuse_unknown(fields, (*SCHEDULE_FIELDS, *LATER, "from", "count"), refusals)
    after = _read(fields, "from", refusals, parse_instant) or state.clock.now()
    count = _read(fields, "count", refusals, lambda name, value: values.whole(name, value, 1, MOST)) or COUNT
    spec = _spec(fields, refusals)
    refusals.raise_any()
    assert spec is not None
    try:
        # Delays and intervals count from where the preview begins, as those of a job made then would.
        rule = rule_of(spec, values.to_millisecond(after))
    except OverflowError:
        raise InvalidInput.of("from", "is too close to the end of the year 9999", "out_of_range") from None
    body = {
        "fires": [render.instant(at) for at in islice(fires(rule, after), count)],
        "description": in_words(rule),
        "hints": [*hints(spec.cron or ""), *hash_hints(spec.cron or "")],
    }
    return render.json_answer(body)


def _read(fields: Fields, name: str, refusals: Refusals, read: Any) -> Any:
    if name not in fields:
        return None
    value = value_of(fields[name], name, refusals)
    if value is None:
        return None
    try:
        found: datetime | int = read(name, value)
    except InvalidInput as refusal:
        refusals.take(refusal)
        return None
    return found


def _spec(fields: Fields, refusals: Refusals) -> JobSpec | None:
    """Read as the schedule of a job: what is refused there is refused here, in the same words."""
    schedule = {name: raw for name, raw in fields.items() if name in (*SCHEDULE_FIELDS, *LATER)}
    definition = read_definition({**schedule, "name": msgspec.Raw(b'"preview"')}, refusals)
    if definition is None:
        return None
    if not (definition.spec.once or definition.spec.recurring):
        refusals.add("cron", "is needed, or 'every' or 'scheduled_at': a schedule to look at", "required")
    return definition.spec
