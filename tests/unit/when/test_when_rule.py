from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Any

import pytest

from detent.model.errors import InvalidInput
from detent.model.job import JobSpec, PythonTask
from detent.when import rule as rules
from detent.when.of import rule_of
from detent.when.rule import (
    Bounded,
    Every,
    Never,
    NextFires,
    Once,
    Rule,
    count_fires,
    cron_rule,
    fires,
    last_fire,
    next_fire,
)
from detent.when.words import in_words

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_once_fires_at_its_instant_and_not_again() -> None:
    rule = Once(NOON)
    assert list(fires(rule, NOON - SECOND)) == [NOON]
    assert list(fires(rule, NOON)) == []


def test_once_in_the_past_still_comes_next_for_someone_who_asks_from_before_it() -> None:
    assert next_fire(Once(datetime(1999, 1, 1, tzinfo=UTC)), datetime(1998, 1, 1, tzinfo=UTC)) is not None


def test_once_is_an_instant_whatever_zone_it_was_given_in() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=9)))
    assert Once(elsewhere) == Once(NOON)
    assert Once(elsewhere).at.tzinfo is UTC


def test_a_rule_without_a_schedule_never_fires() -> None:
    assert list(fires(Never(), NOON)) == []
    assert next_fire(Never(), NOON) is None


@pytest.mark.parametrize("rule", [Once(NOON), Every(60, NOON), cron_rule("* * * * *")])
def test_instants_are_utc_and_strictly_after(rule: Rule) -> None:
    after = NOON - timedelta(microseconds=1)
    for at in islice(fires(rule, after), 5):
        assert at.tzinfo is UTC
        assert at > after
        after = at


def test_cron_is_strictly_after_a_fraction_of_a_second() -> None:
    rule = cron_rule("0 12 * * *")
    assert next_fire(rule, NOON - timedelta(microseconds=1)) == NOON
    assert next_fire(rule, NOON) == NOON + timedelta(days=1)
    assert next_fire(rule, NOON + timedelta(microseconds=1)) == NOON + timedelta(days=1)


def test_naive_instants_are_a_mistake_of_the_caller() -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    for rule in (cron_rule("* * * * *"), Every(60, NOON), Once(NOON)):
        with pytest.raises(TypeError):
            next_fire(rule, naive)
    with pytest.raises(ValueError, match="zone"):
        Once(naive)


def test_the_rarest_rule_is_found_across_a_century_without_a_leap_day() -> None:
    rule = cron_rule("0 0 29 2 */7")  # a Sunday, because both fields must match
    assert [at.year for at in fires(rule, datetime(2060, 1, 1, tzinfo=UTC))] == [2060, 2088, 2128, 2156, 2184]


def test_a_search_that_leaves_the_years_covered_ends() -> None:
    rule = cron_rule("0 0 1 1 *", "Pacific/Auckland")
    assert [at.year for at in fires(rule, datetime(2197, 6, 1, tzinfo=UTC))] == [2197, 2198, 2199]
    assert next_fire(rule, datetime(2199, 12, 31, 23, tzinfo=UTC)) is None
    assert next_fire(rule, datetime.max.replace(tzinfo=UTC)) is None


def test_before_1970_the_first_instant_is_the_first_since() -> None:
    assert next_fire(cron_rule("0 0 * * *"), datetime.min.replace(tzinfo=UTC)) == datetime(
        1970, 1, 1, tzinfo=UTC
    )


def test_a_zone_with_seconds_in_its_offset_is_exact() -> None:
    at = next_fire(cron_rule("0 0 * * *", "Africa/Monrovia"), datetime(1971, 1, 1, tzinfo=UTC))
    assert at == datetime(1971, 1, 1, 0, 44, 30, tzinfo=UTC)


def test_every_wrong_part_of_a_cron_rule_is_reported_together() -> None:
    with pytest.raises(InvalidInput) as refused:
        cron_rule("61 * * * *", "Nowhere/City", "never", "thrice")
    assert [error.field for error in refused.value.errors] == ["cron", "timezone", "dst.gap", "dst.fold"]


def test_rules_are_values() -> None:
    assert cron_rule("0 9 * * *", "UTC") == cron_rule("0 9 * * *", "UTC")
    assert cron_rule("0 9 * * *", "UTC") != cron_rule("0 9 * * *", "Europe/Berlin")
    assert cron_rule("0 9 * * *", gap="skip") != cron_rule("0 9 * * *")
    assert len({Never(), Never(), Once(NOON), Once(NOON), Every(60, NOON), Every(60.0, NOON)}) == 3


def test_last_and_count_look_at_what_lies_after_and_through() -> None:
    rule = cron_rule("0 12 * * *")
    assert last_fire(rule, NOON - SECOND, NOON) == NOON
    assert last_fire(rule, NOON, NOON + SECOND) is None
    assert count_fires(rule, NOON, NOON + timedelta(days=10)) == 10
    assert count_fires(cron_rule("* * * * *"), NOON, NOON + timedelta(days=365)) == 365 * 1440
    assert last_fire(Every(60, NOON), NOON, NOON + 90 * SECOND) == NOON + 60 * SECOND
    assert last_fire(Every(60, NOON), NOON - timedelta(days=999), NOON) is None
    assert count_fires(Every(60, NOON), NOON - timedelta(days=1), NOON + timedelta(hours=1)) == 60
    assert last_fire(Once(NOON), NOON - SECOND, NOON) == NOON
    assert count_fires(Once(NOON), NOON, NOON + SECOND) == 0
    assert count_fires(Never(), NOON, NOON + SECOND) == 0


def test_a_thousand_timers_with_the_same_rule_and_instant_cost_one_computation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = 0
    truth = rules.fires

    def counted(rule: Rule, after: datetime) -> Iterator[datetime]:
        nonlocal asked
        asked += 1
        return truth(rule, after)

    monkeypatch.setattr(rules, "fires", counted)
    memo = NextFires()
    for _ in range(1000):  # a rule of its own each time, as read from a row
        assert memo.next_fire(cron_rule("0 0 * * *", "Europe/Berlin"), NOON) == NOON + timedelta(hours=11)
    assert (asked, memo.computed) == (1, 1)
    memo.next_fire(cron_rule("0 0 * * *", "Europe/Berlin"), NOON + SECOND)
    memo.next_fire(cron_rule("0 0 * * *", "UTC"), NOON)
    memo.next_fire(cron_rule("0 0 * * *", "Europe/Berlin", "skip"), NOON)
    assert (asked, memo.computed) == (4, 4)


def test_the_next_instants_of_a_million_jobs_with_fifty_rules_cost_fifty_computations() -> None:
    memo = NextFires()
    distinct = [cron_rule(f"{minute} 9 * * *", "Europe/Berlin") for minute in range(50)]
    for job in range(1_000_000):
        memo.next_fire(distinct[job % 50], NOON)
    assert memo.computed == 50
    memo.next_fire(distinct[0], NOON + SECOND)
    assert memo.computed == 51


def test_the_memo_is_bounded_and_forgets_the_least_recently_asked() -> None:
    memo = NextFires(capacity=2)
    rule = cron_rule("0 0 * * *")
    for after in (NOON, NOON + SECOND, NOON, NOON + 2 * SECOND, NOON):
        memo.next_fire(rule, after)
    assert memo.computed == 3
    memo.next_fire(rule, NOON + SECOND)
    assert memo.computed == 4


START, END = datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 3, 9, tzinfo=UTC)


def test_both_bounds_count_as_instants() -> None:
    rule = Bounded(cron_rule("0 9 * * *"), datetime(2026, 3, 1, 9, tzinfo=UTC), END)
    found = list(fires(rule, datetime(2020, 1, 1, tzinfo=UTC)))
    assert found == [datetime(2026, 3, day, 9, tzinfo=UTC) for day in (1, 2, 3)]
    assert list(fires(rule, found[0])) == found[1:]
    assert next_fire(rule, END) is None


def test_what_is_counted_and_found_last_keeps_to_the_bounds() -> None:
    rule = Bounded(cron_rule("*/10 * * * *"), START, END)
    before, after = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    all_of_them = list(fires(rule, before))
    assert count_fires(rule, before, after) == len(all_of_them) == 45 * 6 + 1
    assert last_fire(rule, before, after) == END
    assert last_fire(rule, before, START - timedelta(seconds=1)) is None
    assert count_fires(rule, END, after) == 0
    assert last_fire(rule, END, after) is None


def test_bounds_are_told_in_words() -> None:
    told = in_words(Bounded(cron_rule("0 9 * * *"), START, END))
    assert told == "every day at 09:00 UTC from 2026-03-01T12:00:00.000Z until 2026-03-03T09:00:00.000Z"


def spec_of(**fields: Any) -> JobSpec:
    return JobSpec(name="n", task=PythonTask("n"), **fields)


def test_an_interval_with_a_beginning_is_aligned_to_it_and_fires_there_first() -> None:
    rule = rule_of(spec_of(every=3600.0, start_at=START), datetime(2026, 1, 1, 0, 30, tzinfo=UTC))
    assert next_fire(rule, datetime(2026, 1, 1, tzinfo=UTC)) == START
    assert next_fire(rule, START) == START + timedelta(hours=1)
    # An outage does not move it: the next multiple, not an interval from now.
    assert next_fire(rule, START + timedelta(hours=7, minutes=12)) == START + timedelta(hours=8)


def test_a_rule_without_bounds_is_not_wrapped() -> None:
    assert rule_of(spec_of(cron="0 9 * * *"), START) == cron_rule("0 9 * * *")


def test_h_depends_on_the_seed_alone() -> None:
    spec = spec_of(cron="H H * * *")
    assert rule_of(spec, START, 1) == rule_of(spec, END, 1) != rule_of(spec, START, 2)
