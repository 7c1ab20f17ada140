from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from detent.model.errors import InvalidInput
from detent.when.instant import format_instant, parse_instant

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T00:00:00Z", "2026-01-01T00:00Z", "2026-01-01 00:00:00z", "2026-01-01T00:00:00.000Z",
        "2026-01-01T01:00:00+01:00", "2026-01-01T01:00:00+0100", "2026-01-01T01:00+01",
        "2025-12-31T19:00:00-05:00", "2026-01-01T00:00:00.0000009Z", "2026-01-01T05:45:00+05:45",
    ],
)  # fmt: skip
def test_instants_are_read_into_utc(text: str) -> None:
    at = parse_instant("scheduled_at", text)
    assert at == NEW_YEAR
    assert at.tzinfo is UTC


def test_more_than_microseconds_are_cut_off() -> None:
    assert parse_instant("at", "2026-01-01T00:00:00.999999999Z") == NEW_YEAR + timedelta(microseconds=999_999)
    assert parse_instant("at", "2026-01-01T00:00:00.5Z") == NEW_YEAR + timedelta(milliseconds=500)


def refusal(value: object) -> str:
    with pytest.raises(InvalidInput) as refused:
        parse_instant("scheduled_at", value)
    (error,) = refused.value.errors
    assert error.field == "scheduled_at"
    assert len(error.message) < 400
    return error.message


def test_an_instant_without_a_zone_is_refused_with_what_would_be_right() -> None:
    message = refusal("2026-01-01T09:00:00")
    assert "'2026-01-01T09:00:00Z'" in message
    assert "'2026-01-01T09:00:00+01:00'" in message


@pytest.mark.parametrize(
    "value",
    [
        "", "tomorrow", "2026-01-01", "2026-01-01Z", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z",
        "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:60Z", "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+01:75", "2026-01-01T00:00:00Z\n", " 2026-01-01T00:00:00Z",
        "2026-01-01x00:00:00Z",
        "2026-01-01T00:00:00.Z", "0000-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00", "２０２６-01-01T00:00:00Z", "2" * 10_000,
        "2026-01-01T00:00:00+", None, 1767225600, 1.5, True, [], "2026-01-01T00:00:00\x00Z", "\ud800",
        "2026-01-01T00:00:00." + "9" * 40 + "Z",
    ],
)  # fmt: skip
def test_what_is_not_an_instant_is_refused(value: object) -> None:
    assert "'2026-01-01T09:00:00Z'" in refusal(value)


def test_the_ends_of_the_range_are_accepted() -> None:
    assert parse_instant("at", "1970-01-01T00:00:00Z") == datetime(1970, 1, 1, tzinfo=UTC)
    assert parse_instant("at", "9999-12-31T23:59:59.999999Z") == datetime.max.replace(tzinfo=UTC)


def test_instants_are_written_in_utc_with_milliseconds() -> None:
    assert format_instant(NEW_YEAR) == "2026-01-01T00:00:00.000Z"
    east = timezone(timedelta(hours=2))
    assert format_instant(datetime(2026, 1, 1, 2, 0, 0, 123_999, tzinfo=east)) == "2026-01-01T00:00:00.123Z"
    with pytest.raises(ValueError, match="zone"):
        format_instant(datetime(2026, 1, 1))  # noqa: DTZ001


def test_what_is_written_is_read_back() -> None:
    text = "2026-07-08T09:10:11.123Z"
    assert format_instant(parse_instant("at", text)) == text
