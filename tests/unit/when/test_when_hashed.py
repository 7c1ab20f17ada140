"""`H`: the same for one job, spread over many."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from uuid import UUID

import pytest

from detent.model.errors import InvalidInput
from detent.when.cron import has_hash, parse_cron
from detent.when.rule import NextFires, cron_rule

SEEDS = [UUID(int=n * 0x9E3779B97F4A7C15, version=4).int for n in range(1, 2001)]


def test_one_job_has_one_answer_and_another_process_the_same() -> None:
    # Written down: a change of the hash would move every job that uses H.
    assert parse_cron("H H * * *", 1).text == parse_cron("H H * * *", 1).text == "0 42 3 * * * *"


def test_jobs_spread_evenly_over_all_minutes_of_the_day() -> None:
    times = Counter(
        (e.minute.values, e.hour.values) for e in (parse_cron("H H * * *", seed) for seed in SEEDS)
    )
    assert len(times) > 1000
    assert max(times.values()) < 10
    assert len({minute for minute, _ in times}) == 60
    assert len({hour for _, hour in times}) == 24


@pytest.mark.parametrize(
    ("text", "attribute", "low", "high", "apart"),
    [
        ("H * * * *", "minute", 0, 59, None),
        ("H(0-29) * * * *", "minute", 0, 29, None),
        ("H/15 * * * *", "minute", 0, 59, 15),
        ("H(0-29)/10 * * * *", "minute", 0, 29, 10),
        ("0 0 H * *", "day", 1, 28, None),
        ("0 0 1 H *", "month", 1, 12, None),
        ("0 0 * * H", "weekday", 0, 6, None),
        ("0 0 * * H(mon-fri)", "weekday", 1, 5, None),
        ("H 0 0 * * *", "second", 0, 59, None),
    ],
)
def test_the_choice_stays_in_its_range_and_uses_all_of_it(
    text: str, attribute: str, low: int, high: int, apart: int | None
) -> None:
    seen: set[int] = set()
    for seed in SEEDS:
        values = getattr(parse_cron(text, seed), attribute).values
        seen.update(values)
        if apart is None:
            assert len(values) == 1
        else:
            assert values[0] < low + apart
            assert list(values) == list(range(values[0], high + 1, apart))
    assert seen == set(range(low, high + 1))


def test_a_range_may_wrap_and_h_may_stand_in_a_list() -> None:
    assert {h for seed in SEEDS for h in parse_cron("0 H(22-2) * * *", seed).hour.values} == {22, 23, 0, 1, 2}
    assert all(30 in parse_cron("H(0-9),30 * * * *", seed).minute.values for seed in SEEDS[:50])


def test_a_field_of_h_is_not_a_starred_one() -> None:
    assert not parse_cron("0 H * * *", 5).follows_elapsed_time
    assert not parse_cron("0 0 H * H", 5).both_days


def test_jobs_for_which_it_means_the_same_share_what_is_remembered() -> None:
    memo = NextFires()
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for seed in SEEDS:
        memo.next_fire(cron_rule("H(0-29)/10 9 * * *", seed=seed), at)
    assert memo.computed == 10


def test_an_expression_without_h_does_not_depend_on_the_job() -> None:
    assert parse_cron("0 9 * * thu", 1) is parse_cron("0 9 * * thu", 2)
    assert not has_hash("0 9 * mar thu")
    assert has_hash("0 9,H(12-14) * * *")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("H,H * * * *", "more than one H"),
        ("H() * * * *", "a range between its brackets"),
        ("H(5) * * * *", "a range between its brackets"),
        ("H(0-60) * * * *", "outside 0–59"),
        ("H/0 * * * *", "step of 0"),
        ("H-5 * * * *", "no form of H"),
        ("H(0-9 * * * *", "no form of H"),
        ("0 0 * * H#2", "no form of H"),
        ("0 0 0 * * * H", "cannot be chosen"),
        ("0 0 H(29-31) 2 *", "never"),
    ],
)
def test_what_is_no_form_of_it_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_cron(text, 7)
    assert says in refused.value.errors[0].message


def test_what_never_fires_for_some_job_is_refused_for_every_job() -> None:
    for seed in SEEDS[:50]:
        with pytest.raises(InvalidInput):
            parse_cron("0 0 30 H *", seed)
