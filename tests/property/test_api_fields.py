"""Whatever JSON comes, a job's definition is read from it or refused by field; nothing else happens."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.api import render
from detent.api.body import MalformedBody, fields_of
from detent.api.job_fields import Definition, read_definition
from detent.api.keys import definition_hash
from detent.api.refusals import Refusals
from detent.api.vocabulary import ANSWERS_ONLY, KNOWN, LATER
from detent.model.errors import InvalidInput
from detent.model.job import Job, JobSpec
from detent.store.job_create import encode_spec

EARLIEST, LATEST = datetime(1970, 1, 2), datetime(9999, 1, 1)  # noqa: DTZ001 - a zone comes on top
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(sorted({*KNOWN, *LATER, *ANSWERS_ONLY})) | st.text(max_size=8)

text = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=40)
seconds = st.floats(0.001, 1e6) | st.integers(1, 10**6) | st.sampled_from(["PT5M", "P1DT2H", "PT0.5S"])
schedules = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"cron": st.sampled_from(["* * * * *", "0 9 * * mon-fri", "@daily", "5/7 1,2 1 * *"])}
    ),
    st.fixed_dictionaries({"every": st.integers(1, 10**6) | st.just("PT90S")}),
    st.fixed_dictionaries({"delay": seconds}),
    st.fixed_dictionaries(
        {"scheduled_at": st.datetimes(EARLIEST, LATEST).map(lambda d: f"{d.isoformat()}Z")}
    ),
)
tasks = st.one_of(
    st.none(),
    text,
    st.fixed_dictionaries({"kind": st.just("python"), "name": text}),
    st.fixed_dictionaries(
        {
            "kind": st.just("shell"),
            "command": text.filter(str.strip) | st.lists(text, min_size=1, max_size=3),
        },
        optional={
            "env": st.dictionaries(st.text("ABC_", min_size=1, max_size=4), text, max_size=3),
            "cwd": text,
        },
    ),
)
definitions = st.builds(
    lambda schedule, rest: {**schedule, **rest},
    schedules,
    st.fixed_dictionaries(
        {"name": text},
        optional={
            "task": tasks,
            "payload": anything,
            "timezone": st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York"]),
            "dst": st.fixed_dictionaries({}, optional={"gap": st.just("skip"), "fold": st.just("both")}),
            "priority": st.sampled_from(["critical", "high", "normal", "low"]),
            "timeout_seconds": seconds,
            "max_retries": st.integers(0, 1000),
            "retry_backoff": st.sampled_from(["exponential", "linear", "fixed"]),
            "retry_delay_seconds": seconds,
            "dead_letter": st.booleans(),
            "tags": st.lists(text, max_size=5),
            "pool": st.text("abc019_-", min_size=1, max_size=63),
        },
    ),
)


def read(body: Any, current: Definition | None = None) -> Definition | Refusals:
    refusals = Refusals()
    found = read_definition(fields_of(json.dumps(body).encode()), refusals, current=current)
    assert (found is None) == bool(refusals)
    return refusals if found is None else found


@settings(max_examples=300)
@given(st.dictionaries(names, anything, max_size=6))
def test_any_object_is_read_or_refused_by_its_own_fields(body: dict[str, Any]) -> None:
    try:
        found = read(body)
    except MalformedBody:
        assert any(0xD800 <= ord(c) <= 0xDFFF for c in json.dumps(body, ensure_ascii=False))
        return
    if isinstance(found, Refusals):
        for error in found.errors:
            field = error.field.split(".")[0].split("[")[0]
            # Names are shown cut short; a name that has a dot of its own is cut at it here.
            assert field == "name" or any(name[:100].startswith(field) for name in body), error
            assert error.message
            assert error.code


@settings(max_examples=300)
@given(definitions)
def test_what_is_accepted_comes_back_as_it_was_and_means_the_same(body: dict[str, Any]) -> None:
    found = read(body)
    assert isinstance(found, Definition), getattr(found, "errors", found)
    stored = msgspec.json.decode(encode_spec(found.spec), type=JobSpec)
    assert stored == found.spec
    answer = _shown(Definition(stored, found.payload))
    again = read({name: value for name, value in answer.items() if name not in ANSWERS_ONLY})
    assert isinstance(again, Definition), getattr(again, "errors", again)
    assert again.spec == found.spec
    assert definition_hash(again) == definition_hash(found)


@given(definitions, definitions)
def test_an_edit_by_a_whole_definition_is_that_definition(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    first, second = read(before), read(after)
    assert isinstance(first, Definition)
    assert isinstance(second, Definition)
    whole = _shown(second)
    edited = read({name: value for name, value in whole.items() if name not in ANSWERS_ONLY}, first)
    assert isinstance(edited, Definition), getattr(edited, "errors", edited)
    assert edited.spec == second.spec


@given(definitions, st.randoms())
def test_the_order_of_fields_and_blanks_mean_nothing(body: dict[str, Any], random: Any) -> None:
    keys = list(body)
    random.shuffle(keys)
    spaced = json.dumps({key: body[key] for key in keys}, indent=3).encode()
    found = read(body)
    refusals = Refusals()
    other = read_definition(fields_of(spaced), refusals)
    assert isinstance(found, Definition)
    assert other is not None
    assert definition_hash(other) == definition_hash(found)


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_an_object_or_refused_with_a_place(body: bytes) -> None:
    try:
        fields_of(body)
    except MalformedBody as refusal:
        assert "line" in str(refusal) or "empty" in str(refusal)
    except InvalidInput as refusal:
        assert [error.field for error in refusal.errors] == ["body"]


def _shown(definition: Definition) -> dict[str, Any]:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    job = Job(
        tenant=1,
        job_id=UUID(int=1),
        spec=definition.spec,
        payload=definition.payload,
        status="scheduled",
        next_run_at=None,
        revision=1,
        armed_at=at,
        created_at=at,
        updated_at=at,
    )
    shown: dict[str, Any] = json.loads(msgspec.json.encode(render.job(job)))
    shown.pop("idempotency_key")
    return shown
