"""Daylight saving by example. The vectors and the property tests cover the breadth."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from detent.when.rule import cron_rule, fires


def local_fires(
    expr: str, tz: str, start: str, count: int, gap: str = "next_valid", fold: str = "first"
) -> list[str]:
    zone = ZoneInfo(tz)
    after = datetime.fromisoformat(start).replace(tzinfo=zone)
    found = islice(fires(cron_rule(expr, tz, gap, fold), after), count)
    return [at.astimezone(zone).strftime("%d %H:%M%z") for at in found]


def test_a_time_in_the_gap_fires_at_its_end() -> None:
    assert local_fires("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 2) == [
        "29 03:00+0200",
        "30 02:30+0200",
    ]


def test_a_time_in_the_gap_is_left_out_when_asked_to() -> None:
    assert local_fires("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 1, gap="skip") == ["30 02:30+0200"]


def test_many_times_in_the_gap_collapse_into_one() -> None:
    assert local_fires("5,25,45 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 2) == [
        "29 03:00+0200",
        "30 02:05+0200",
    ]


def test_the_collapsed_fire_and_a_real_one_at_the_same_instant_are_one() -> None:
    assert local_fires("0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00", 2) == [
        "29 03:00+0200",
        "30 02:00+0200",
    ]


def test_asking_after_the_collapsed_fire_does_not_repeat_it() -> None:
    rule = cron_rule("30 2 * * *", "Europe/Berlin")
    end_of_gap = datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert next(fires(rule, end_of_gap - timedelta(microseconds=1))) == end_of_gap
    assert next(fires(rule, end_of_gap)) > end_of_gap + timedelta(hours=1)


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        ("first", ["25 02:30+0200", "26 02:30+0100"]),
        ("second", ["25 02:30+0100", "26 02:30+0100"]),
        ("both", ["25 02:30+0200", "25 02:30+0100"]),
    ],
)
def test_a_time_that_comes_twice_follows_the_policy(fold: str, expected: list[str]) -> None:
    assert local_fires("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", 2, fold=fold) == expected


@pytest.mark.parametrize("fold", ["first", "second", "both"])
@pytest.mark.parametrize("gap", ["next_valid", "skip"])
@pytest.mark.parametrize("expr", ["*/30 * * * *", "0,30 * * * *", "*/30 0-23 * * *", "*/30 1-4 * * *"])
def test_rules_with_a_star_in_minute_or_hour_follow_elapsed_time(expr: str, gap: str, fold: str) -> None:
    assert local_fires(expr, "Europe/Berlin", "2026-03-29T01:10", 3, gap, fold) == [
        "29 01:30+0100",
        "29 03:00+0200",
        "29 03:30+0200",
    ]
    assert local_fires(expr, "Europe/Berlin", "2026-10-25T02:10", 4, gap, fold) == [
        "25 02:30+0200",
        "25 02:00+0100",
        "25 02:30+0100",
        "25 03:00+0100",
    ]


def test_half_an_hour_is_shifted_on_lord_howe() -> None:
    assert local_fires("15 2 * * *", "Australia/Lord_Howe", "2025-10-04T12:00", 2) == [
        "05 02:30+1100",
        "06 02:15+1100",
    ]
    assert local_fires("45 1 * * *", "Australia/Lord_Howe", "2025-04-05T12:00", 2, fold="both") == [
        "06 01:45+1100",
        "06 01:45+1030",
    ]


def test_the_day_that_apia_skipped_becomes_one_fire_at_the_next_midnight() -> None:
    assert local_fires("0 9,12,15 30 12 *", "Pacific/Apia", "2011-12-28T00:00", 2) == [
        "31 00:00+1400",
        "30 09:00+1400",
    ]
    assert local_fires("0 9 30 12 *", "Pacific/Apia", "2011-12-28T00:00", 1, gap="skip") == ["30 09:00+1400"]


def test_midnight_that_does_not_exist_fires_at_one() -> None:
    assert local_fires("0 0 * * *", "Asia/Beirut", "2025-03-29T12:00", 2) == [
        "30 01:00+0300",
        "31 00:00+0300",
    ]


def test_midnight_that_comes_twice_fires_once() -> None:
    assert local_fires("0 0 * * *", "America/Havana", "2025-11-01T12:00", 2) == [
        "02 00:00-0400",
        "03 00:00-0500",
    ]


def test_a_rule_that_lives_only_in_gaps_ends_instead_of_searching_forever() -> None:
    rule = cron_rule("30 2 25-31 3 */7", "Europe/Berlin", "skip")
    after_the_law_of_1996 = datetime(2026, 1, 1, tzinfo=UTC)
    assert next(fires(rule, after_the_law_of_1996), None) is None
