from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import perf_counter

import pytest

from detent.when.misfire import CatchUp, catch_up
from detent.when.rule import Every, Never, Once, Rule, cron_rule

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
YEAR = timedelta(days=365)


def test_on_time_fires_what_is_due_and_skips_nothing() -> None:
    assert catch_up(cron_rule("0 * * * *"), NOON, NOON) == CatchUp(NOON, None, None, 0, NOON + HOUR)


def test_a_little_late_still_fires_the_one_that_is_due() -> None:
    assert catch_up(Every(3600, NOON - HOUR), NOON, NOON + 30 * MINUTE) == CatchUp(
        NOON, None, None, 0, NOON + HOUR
    )


def test_of_two_the_second_fires_and_the_first_is_skipped() -> None:
    assert catch_up(cron_rule("0 * * * *"), NOON, NOON + HOUR) == CatchUp(
        NOON + HOUR, NOON, NOON, 1, NOON + 2 * HOUR
    )


def test_of_many_the_last_fires_and_the_others_are_one_range() -> None:
    decided = catch_up(cron_rule("*/10 * * * *"), NOON, NOON + 3 * HOUR + 5 * MINUTE)
    assert decided == CatchUp(
        fire_at=NOON + 3 * HOUR,
        skipped_from=NOON,
        skipped_through=NOON + 2 * HOUR + 50 * MINUTE,
        skipped_count=18,
        next_at=NOON + 3 * HOUR + 10 * MINUTE,
    )


@pytest.mark.parametrize(
    "rule", [cron_rule("* * * * *"), cron_rule("* * * * *", "Europe/Berlin"), Every(60, NOON)]
)
def test_a_year_of_minutes_is_counted_without_walking_through_it(rule: Rule) -> None:
    due = NOON + MINUTE
    best = 1.0
    for _ in range(3):
        began = perf_counter()
        decided = catch_up(rule, due, NOON + YEAR)
        best = min(best, perf_counter() - began)
    assert decided == CatchUp(NOON + YEAR, due, NOON + YEAR - MINUTE, 365 * 1440 - 1, NOON + YEAR + MINUTE)
    assert best < 0.010


def test_a_one_time_job_fires_late_rather_than_never() -> None:
    assert catch_up(Once(NOON), NOON, NOON + YEAR) == CatchUp(NOON, None, None, 0, None)


def test_what_is_not_due_yet_does_not_fire() -> None:
    assert catch_up(cron_rule("0 * * * *"), NOON, NOON - MINUTE) == CatchUp(None, None, None, 0, NOON)


def test_a_due_instant_that_the_rule_does_not_know_counts_as_one() -> None:
    odd = NOON + timedelta(seconds=1)
    assert catch_up(Never(), odd, NOON + HOUR) == CatchUp(odd, None, None, 0, None)
    assert catch_up(cron_rule("0 * * * *"), odd, NOON + HOUR) == CatchUp(
        NOON + HOUR, odd, odd, 1, NOON + 2 * HOUR
    )


def test_a_rare_rule_after_a_long_outage_finds_its_last_instant() -> None:
    rule = cron_rule("0 0 29 2 *")
    due = datetime(1972, 2, 29, tzinfo=UTC)
    decided = catch_up(rule, due, NOON)
    assert decided.fire_at == datetime(2024, 2, 29, tzinfo=UTC)
    assert decided.skipped_through == datetime(2020, 2, 29, tzinfo=UTC)
    assert decided.skipped_count == 13
    assert decided.next_at == datetime(2028, 2, 29, tzinfo=UTC)
