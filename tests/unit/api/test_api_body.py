"""Reading bodies: where they break, how deep they go, whose key it is."""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any

import msgspec
import pytest

from detent.api.body import MOST_LEVELS, MalformedBody, fields_of, header_key, too_deep, value_of
from detent.api.refusals import MOST, Refusals
from detent.model.errors import InvalidInput


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b'{"a": 1,\n "b": }', "line 2, column 7"),
        ('{"ü": "ü", x}'.encode(), "line 1, column 12"),
        (b'{"a": "\\x"}', "line 1, column"),
        (b'{"a": "\\ud83d\\ude00", "b": "\\ud83d"}', "half of a surrogate pair at line 1, column 29"),
        (b'{"a": "\\\\ud83d", "b": "\\ude00"}', "half of a surrogate pair at line 1, column 24"),
    ],
)
def test_a_broken_body_is_refused_with_the_place(body: bytes, place: str) -> None:
    with pytest.raises(MalformedBody, match="malformed JSON") as refused:
        fields_of(body)
    assert place in str(refused.value)


def test_an_escaped_backslash_in_front_of_u_is_no_surrogate() -> None:
    assert fields_of(b'{"a": "\\\\ud800"}')


@pytest.mark.parametrize(
    ("value", "deep"),
    [
        ("[" * MOST_LEVELS + "]" * MOST_LEVELS, False),
        ("[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1), True),
        ('{"a":' * 300 + "1" + "}" * 300, True),
        (json.dumps([[]] * 5_000), False),
        (json.dumps("[" * 5_000), False),
        (json.dumps(['\\"[{' * 500]), False),
    ],
)
def test_levels_are_counted_and_brackets_in_strings_are_not(value: str, deep: bool) -> None:
    assert too_deep(msgspec.Raw(value.encode())) == deep


@pytest.mark.parametrize(
    "text", [b"[" * 500_000, b'"' + b"\\\\" * 250_000 + b'"', b'["' + b"[" * 500_000 + b'"]']
)
def test_counting_levels_takes_no_time(text: bytes) -> None:
    began = perf_counter()
    too_deep(msgspec.Raw(text))
    assert perf_counter() - began < 1


@pytest.mark.parametrize(("raw", "code"), [(b"1e999", "out_of_range"), (b"[" * 201 + b"]" * 201, "invalid")])
def test_a_value_that_cannot_be_read_is_refused_by_name(raw: bytes, code: str) -> None:
    refusals = Refusals("jobs[3]")
    assert value_of(msgspec.Raw(raw), "payload", refusals) is None
    assert [(error.field, error.code) for error in refusals.errors] == [("jobs[3].payload", code)]


def test_a_refusal_names_no_more_than_anybody_reads() -> None:
    refusals = Refusals()
    for n in range(MOST * 3):
        refusals.add(f"f{n}", "is wrong")
    with pytest.raises(InvalidInput) as refused:
        refusals.raise_any()
    assert len(refused.value.errors) == MOST


@pytest.mark.parametrize("key", ["k", "a b", "0189-~!", "x" * 255])
def test_a_key_in_the_header_is_taken_as_it_is(key: str) -> None:
    assert header_key({"idempotency-key": key}) == key


@pytest.mark.parametrize("headers", [{"idempotency-key": key} for key in ("", "ü", "a\tb", "x" * 256)])
def test_a_wrong_key_in_the_header_is_refused(headers: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        header_key(headers)
    assert [error.field for error in refused.value.errors] == ["Idempotency-Key"]


def test_no_header_is_no_key() -> None:
    assert header_key({}) is None
