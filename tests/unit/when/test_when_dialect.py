"""Seconds, years, and the days that depend on the month."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice

import pytest

from detent.model.errors import InvalidInput
from detent.when.cron import parse_cron
from detent.when.rule import count_fires, cron_rule, fires, last_fire
from detent.when.strange import hints


def days(text: str, year: int = 2026, count: int = 12) -> list[str]:
    start = datetime(year, 1, 1, tzinfo=UTC) - timedelta(seconds=1)
    return [f"{at:%m-%d}" for at in islice(fires(cron_rule(text), start), count) if at.year == year]


def test_the_last_day_and_days_before_it() -> None:
    assert days("0 0 L * *", 2024)[:4] == ["01-31", "02-29", "03-31", "04-30"]
    assert days("0 0 L-3 * *")[:3] == ["01-28", "02-25", "03-28"]
    assert days("0 0 L-30 * *") == ["01-01", "03-01", "05-01", "07-01", "08-01", "10-01", "12-01"]


def test_the_last_weekday_of_a_month_and_the_one_nearest_to_a_day_before_its_end() -> None:
    assert days("0 0 LW * *")[:6] == ["01-30", "02-27", "03-31", "04-30", "05-29", "06-30"]
    # 25 April 2026 is a Saturday, 25 October a Sunday.
    assert days("0 0 L-5W 4 *") == ["04-24"]
    assert days("0 0 L-6W 10 *") == ["10-26"]


def test_the_weekday_nearest_to_a_day_never_leaves_the_month() -> None:
    assert days("0 0 1W * *")[:8] == ["01-01", "02-02", "03-02", "04-01", "05-01", "06-01", "07-01", "08-03"]
    assert days("0 0 31W * *") == ["01-30", "03-31", "05-29", "07-31", "08-31", "10-30", "12-31"]


def test_specials_stand_in_lists_beside_each_other_and_beside_plain_days() -> None:
    assert days("0 0 1,15W,LW 1 *") == ["01-01", "01-15", "01-30"]
    assert days("0 0 * 3 mon#1,5L,3") == ["03-02", "03-04", "03-11", "03-18", "03-25", "03-27"]


def test_the_nth_and_the_last_of_a_weekday() -> None:
    assert days("0 0 * * fri#2")[:3] == ["01-09", "02-13", "03-13"]
    assert days("0 0 * * 7#5") == ["03-29", "05-31", "08-30", "11-29"]
    assert days("0 0 ? * SUNL")[:2] == ["01-25", "02-22"]


def test_two_day_fields_neither_starred_fire_on_either() -> None:
    assert days("0 0 L * 5#1", count=4) == ["01-02", "01-31", "02-06", "02-28"]


def test_a_starred_day_field_and_a_special_must_both_match() -> None:
    found = days("0 0 */2 * 5#1")
    assert found
    assert all(int(day[3:]) % 2 == 1 and int(day[3:]) <= 7 for day in found)
    assert all(date(2026, int(day[:2]), int(day[3:])).isoweekday() == 5 for day in found)


def test_seconds_come_first_and_years_last() -> None:
    start = datetime(2026, 3, 1, 8, 59, 50, tzinfo=UTC)
    found = list(islice(fires(cron_rule("*/20 59 8 1 3 ? 2026-2028"), start), 6))
    assert [f"{at:%Y %H:%M:%S}" for at in found] == [
        "2027 08:59:00", "2027 08:59:20", "2027 08:59:40", "2028 08:59:00", "2028 08:59:20", "2028 08:59:40",
    ]  # fmt: skip


def test_a_year_that_is_over_has_no_more_fires() -> None:
    rule = cron_rule("0 0 0 * * * 2025", "Pacific/Kiritimati")
    assert list(fires(rule, datetime(2025, 12, 31, 9, 59, tzinfo=UTC))) == []
    assert list(fires(rule, datetime(2025, 12, 30, 9, 59, 59, tzinfo=UTC))) == [
        datetime(2025, 12, 30, 10, tzinfo=UTC)
    ]


def test_years_far_apart_are_found_without_walking_there_for_long() -> None:
    rule = cron_rule("0 0 0 29 2 ? 2028,2196", "Europe/Berlin")
    found = list(fires(rule, datetime(2026, 1, 1, tzinfo=UTC)))
    assert [at.year for at in found] == [2028, 2196]


def test_a_year_of_seconds_is_counted_without_walking() -> None:
    rule = cron_rule("* * * * * *", "Europe/Berlin")
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    assert count_fires(rule, start, end) == 365 * 86_400
    assert last_fire(rule, start, end) == end
    odd = cron_rule("5,35 10-12 9 * * *")
    assert count_fires(odd, start, end) == 365 * 6
    assert count_fires(odd, start + timedelta(hours=9, minutes=10, seconds=5), end) == 365 * 6 - 1


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("60 * * * * *", ["second", "'60'", "0–59", "'*/10'"]),
        ("* * * * * * 1969", ["year", "'1969'", "1970–2199", "'2030'"]),
        ("* * * * * * 2200", ["year", "'2200'"]),
        ("* * * * * * 2030-2020", ["year", "'2030-2020'", "backwards"]),
        ("0 0 0W * *", ["day of month", "'0W'", "1W–31W"]),
        ("0 0 1-5W * *", ["day of month", "'5W'"]),
        ("0 0 L/2 * *", ["day of month", "'L'"]),
        ("0 0 L-31 * *", ["day of month", "'L-31'", "'L-30'"]),
        ("0 0 * * L", ["day of week", "Saturday", "'sat'"]),
        ("0 0 * * L5", ["day of week", "'5L'"]),
        ("0 0 * * 8L", ["day of week", "'8L'", "0–7"]),
        ("0 0 * * fri#0", ["day of week", "'fri#0'", "#1–#5"]),
        ("0 0 * * 5#1-5#2", ["day of week", "'5#1-5#2'"]),
        ("0 0 0 * * 5W", ["day of week", "'5W'"]),
    ],
)
def test_a_refusal_names_the_field_the_text_and_what_would_be_right(text: str, names: list[str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_cron(text)
    message = refused.value.errors[0].message
    for name in [*names, "write for example"]:
        assert name in message, message


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ("0 9 * * * /usr/bin/backup --all", "'0 9 * * *'"),
        ("17 * * * * root cd / && run-parts /etc/cron.hourly", "'17 * * * *'"),
        ("0 9 * * * backup", "'0 9 * * *'"),
        ("@daily /usr/bin/backup", "'@daily'"),
        ("CRON_TZ=Europe/Berlin 0 9 * * *", "'timezone'"),
        ("R/2024-01-01T00:00:00Z/PT1H", "'every'"),
        ("@reboot", "'@daily'"),
        ("@fortnightly", "@weekly"),
    ],
)
def test_what_is_right_elsewhere_is_refused_with_what_to_write_here(text: str, write: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_cron(text)
    assert write in refused.value.errors[0].message


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("0 0 9 ? * 2", "Tuesday"),
        ("0 0 9 ? * 2-6", "Tuesday"),
        ("0 0 9 ? * 5#2 2026", "Friday"),
        ("0 0 9 ? * 6L", "Saturday"),
        ("0 0 9 ? * mon,7", "Sunday"),
    ],
)
def test_day_numbers_that_quartz_counts_differently_get_a_hint(text: str, day: str) -> None:
    (hint,) = hints(text)
    assert f"is {day};" in hint
    assert "Quartz" in hint


@pytest.mark.parametrize(
    "text",
    [
        "0 9 * * 2",
        "0 0 9 ? * mon-fri",
        "0 0 9 * * *",
        "0 0 9 * * 0",
        "0 0 9 ? * fri#2",
        "@daily",
        "0 0 9 ? * */2",
    ],
)
def test_what_means_the_same_everywhere_gets_no_hint(text: str) -> None:
    assert hints(text) == ()
