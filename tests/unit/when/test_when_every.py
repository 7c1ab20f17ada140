from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from detent.model.errors import InvalidInput
from detent.when.every import parse_duration, parse_every
from detent.when.rule import Every, fires, next_fire

ANCHOR = datetime(2026, 1, 1, tzinfo=UTC)


def refusal(value: object) -> str:
    with pytest.raises(InvalidInput) as refused:
        parse_duration("delay", value)
    (error,) = refused.value.errors
    assert error.field == "delay"
    return error.message


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0), (1, 1), (2.5, 2.5), (1e-7, 0), ("PT15M", 900), ("P1D", 86_400), ("P1W", 604_800),
        ("PT1H30M", 5_400), ("P1DT1S", 86_401), ("PT0.5S", 0.5), ("PT1,5S", 1.5), ("PT1.5H", 5_400),
        ("pt15m", 900), ("PT0S", 0), ("P1W2D", 777_600), ("PT90S", 90),
    ],
)  # fmt: skip
def test_durations_are_read(value: object, seconds: float) -> None:
    assert parse_duration("delay", value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "", "P", "PT", "P1DT", "15M", "15m", "60", "1h", "PT1S1M", "-PT1S", "PT-1S", "P1", "PT1.5H1M",
        "PT" + "9" * 100 + "S", "P١D", "PT1e3S", None, True, [], {}, -1, -0.5, math.nan, math.inf, 10**400,
        1e300, "P999999999999W", "\ud800", "PT15M ",
    ],
)  # fmt: skip
def test_what_is_not_a_duration_is_refused(value: object) -> None:
    assert len(refusal(value)) < 300


@pytest.mark.parametrize("value", ["P1Y", "P1M", "P1Y2M", "P2W1M", "P1M1D", "P1MT1H", "P1Y6M1DT3H"])
def test_years_and_months_are_refused_with_a_hint_to_cron(value: str) -> None:
    assert "'cron'" in refusal(value)


def test_the_refusal_shows_what_would_be_right() -> None:
    assert "'PT15M'" in refusal("15m")


def test_every_is_at_least_one_second() -> None:
    assert parse_every(1) == 1
    for value in (0, 0.999, "PT0.5S"):
        with pytest.raises(InvalidInput) as refused:
            parse_every(value)
        assert refused.value.errors[0].field == "every"
    with pytest.raises(ValueError, match="once a second"):
        Every(0.5, ANCHOR)


def test_instants_are_multiples_after_the_anchor_and_never_the_anchor_itself() -> None:
    rule = Every(900, ANCHOR)
    long_before = ANCHOR - timedelta(days=400)
    quarter = timedelta(minutes=15)
    assert list(islice(fires(rule, long_before), 3)) == [
        ANCHOR + quarter,
        ANCHOR + 2 * quarter,
        ANCHOR + 3 * quarter,
    ]
    assert next_fire(rule, ANCHOR) == ANCHOR + quarter
    assert next_fire(rule, ANCHOR + quarter) == ANCHOR + 2 * quarter
    assert next_fire(rule, ANCHOR + quarter - timedelta(microseconds=1)) == ANCHOR + quarter


def test_fractions_do_not_drift() -> None:
    rule = Every(1.1, ANCHOR)
    year_later = ANCHOR + timedelta(days=365)
    at = next_fire(rule, year_later)
    assert at is not None
    assert (at - ANCHOR) % timedelta(seconds=1.1) == timedelta(0)


def test_the_end_of_the_calendar_ends_the_rule() -> None:
    rule = Every(86_400, ANCHOR)
    assert list(fires(rule, datetime(9999, 12, 29, tzinfo=UTC))) == [
        datetime(9999, 12, 30, tzinfo=UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
    ]
    assert next_fire(rule, datetime.max.replace(tzinfo=UTC)) is None
