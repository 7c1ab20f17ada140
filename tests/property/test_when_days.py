"""The days that depend on the month, against the calendar, for every month of 40 years."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import islice

import pytest
from croniter import croniter
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.when.rule import cron_rule, fires

NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
Days = Callable[[int, int], set[int]]


def length(year: int, month: int) -> int:
    return monthrange(year, month)[1]


def near(year: int, month: int, day: int) -> set[int]:
    """The Monday to Friday of the month that is nearest to the day."""
    if not 1 <= day <= length(year, month):
        return set()
    weekdays = [d for d in range(1, length(year, month) + 1) if date(year, month, d).weekday() < 5]
    return {min(weekdays, key=lambda d: abs(d - day))}


def those(year: int, month: int, weekday: int) -> list[int]:
    return [d for d in range(1, length(year, month) + 1) if date(year, month, d).weekday() == weekday]


SPECIALS: dict[str, Days] = {"L * *": lambda y, m: {length(y, m)}}
for n in range(31):
    SPECIALS[f"L-{n} * *"] = lambda y, m, n=n: {length(y, m) - n} - {0, -1, -2}  # type: ignore[misc]
    SPECIALS[f"L-{n}W * ?"] = lambda y, m, n=n: near(y, m, length(y, m) - n)  # type: ignore[misc]
    SPECIALS[f"{n + 1}W * *"] = lambda y, m, n=n: near(y, m, n + 1)  # type: ignore[misc]
for n, name in enumerate(NAMES):
    SPECIALS[f"* * {name}L"] = lambda y, m, n=n: {those(y, m, n)[-1]}  # type: ignore[misc]
    for nth in range(1, 6):
        SPECIALS[f"? * {name}#{nth}"] = lambda y, m, n=n, k=nth: set(those(y, m, n)[k - 1 : k])  # type: ignore[misc]


def test_every_special_names_the_day_that_the_calendar_has() -> None:
    start, end = datetime(2000, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
    wrong = []
    for text, days in SPECIALS.items():
        expected = [
            date(year, month, day)
            for year in range(2000, 2040)
            for month in range(1, 13)
            for day in sorted(days(year, month))
        ]
        found = []
        for at in fires(cron_rule(f"0 0 {text}"), start - timedelta(seconds=1)):
            if at >= end:
                break
            found.append(at.date())
        if found != expected:
            wrong.append(text)
    assert wrong == []
    assert len(SPECIALS) == 136


STARTS = st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))  # noqa: DTZ001
TIMES = st.tuples(st.integers(0, 59), st.integers(0, 23)).map(lambda time: f"{time[0]} {time[1]}")
MONTHS = st.sampled_from(["*", "*", "2", "1,4,7", "6-9", "*/2"])


@settings(max_examples=150, deadline=None)
@given(
    times=TIMES,
    month=MONTHS,
    day=st.sampled_from(["L", "LW"]),
    start=STARTS,
)
def test_last_days_agree_with_cronsim(times: str, month: str, day: str, start: datetime) -> None:
    text = f"{times} {day} {month} *"
    assert list(islice(fires(cron_rule(text), start), 8)) == list(islice(CronSim(text, start), 8))


@settings(max_examples=150, deadline=None)
@given(
    times=TIMES,
    month=MONTHS,
    weekday=st.integers(0, 6),
    which=st.sampled_from(["L", "#1", "#2", "#3", "#4"]),
    start=STARTS,
)
def test_weekdays_of_a_month_agree_with_both_libraries(
    times: str, month: str, weekday: int, which: str, start: datetime
) -> None:
    text = f"{times} * {month} {weekday}{which}"
    found = list(islice(fires(cron_rule(text), start), 8))
    assert found == list(islice(CronSim(text, start), 8))
    theirs = croniter(
        f"{times} * {month} {f'L{weekday}' if which == 'L' else f'{weekday}{which}'}",
        start,
        ret_type=datetime,
    )
    assert found == [next(theirs) for _ in range(8)]


@settings(max_examples=100, deadline=None)
@given(
    second=st.sampled_from(["0", "*", "*/7", "10-20", "3,59"]),
    minute=st.sampled_from(["0", "*", "*/15", "5-6"]),
    hour=st.sampled_from(["*", "3", "9-17"]),
    year=st.sampled_from(["*", "2030", "2026-2031/2", "2027,2029"]),
    start=st.datetimes(datetime(2025, 1, 1), datetime(2026, 6, 1)).map(lambda at: at.replace(tzinfo=UTC)),  # noqa: DTZ001
)
def test_seconds_and_years_agree_with_croniter(
    second: str, minute: str, hour: str, year: str, start: datetime
) -> None:
    text = f"{second} {minute} {hour} * * * {year}"
    found = list(islice(fires(cron_rule(text), start), 8))
    theirs = croniter(text, start, ret_type=datetime, second_at_beginning=True)
    assert found == [next(theirs) for _ in range(8)]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_hundred_thousand_previews_take_less_than_twenty_seconds_of_one_core() -> None:
    from time import process_time

    texts = ["0 9 * * mon-fri", "*/15 * * * *", "0 9 LW * *", "30 2 * * *", "*/10 * * * * *",
             "0 0 29 2 *", "0 0 * * fri#2", "0 9 1,15 * fri", "H H * * *", "0 0 12 ? 6 5L 2026-2199"]  # fmt: skip
    zones = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    began = process_time()
    for index in range(100_000):
        rule = cron_rule(texts[index % 10], zones[index // 10 % 5], seed=index)
        assert len(list(islice(fires(rule, start + timedelta(minutes=index * 17)), 10))) == 10
    assert process_time() - began < 20
