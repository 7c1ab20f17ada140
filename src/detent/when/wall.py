"""The wall clock: which local times an expression matches, in a zone that never changes its clock.

Local time is counted in whole seconds since 1970-01-01T00:00 on the wall, so that a day is always 86,400 of
them. Nothing is stepped through: the days of a month are looked up by the shape of the month (there are
28 shapes), the times of a day are one sorted tuple, and the first, last or number of matches in a span
comes from bisection. A year of a one-minute rule costs no more than a year of a yearly one to count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from typing import NamedTuple

from detent.when.cron import Expression

DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()


class Month(NamedTuple):
    """A month: its first day counted since 1970, that day's weekday (0 is Sunday), and its length."""

    number: int
    first: int
    weekday: int
    length: int


def days_of(expression: Expression, month: Month) -> tuple[int, ...]:
    """The days of this month (1 is the first) on which the expression fires: the one place that decides."""
    if month.number not in expression.month.values:
        return ()
    return _days(
        expression.day.values,
        expression.weekday.values,
        expression.both_days,
        month.weekday,
        month.length,
    )


@lru_cache(maxsize=8192)
def _days(
    days: tuple[int, ...], weekdays: tuple[int, ...], both: bool, first_weekday: int, length: int
) -> tuple[int, ...]:
    found = []
    for day in range(1, length + 1):
        by_day, by_weekday = day in days, (first_weekday + day - 1) % 7 in weekdays
        if (by_day and by_weekday) if both else (by_day or by_weekday):
            found.append(day)
    return tuple(found)


def matches(expression: Expression, low: int, high: int) -> Iterator[int]:
    """Every matching local second in [low, high), in order."""
    times = _times_of(expression)
    for day in _days_between(expression, low, high):
        base = day * DAY
        if base >= low and base + DAY <= high:
            for time in times:
                yield base + time
        else:
            for time in times[bisect_left(times, low - base) : bisect_left(times, high - base)]:
                yield base + time


def first_match(expression: Expression, low: int, high: int) -> int | None:
    return next(matches(expression, low, high), None)


def last_match(expression: Expression, low: int, high: int) -> int | None:
    """The last matching local second in [low, high)."""
    times = _times_of(expression)
    for month in _months_back(low, high):
        for number in reversed(days_of(expression, month)):
            base = (month.first + number - 1) * DAY
            until = bisect_left(times, high - base)
            if until:
                found = base + times[until - 1]
                return found if found >= low else None
    return None


def count_matches(expression: Expression, low: int, high: int) -> int:
    """How many local seconds in [low, high) match."""
    times = _times_of(expression)
    total = 0
    for month in _months(low, high):
        days = days_of(expression, month)
        base = month.first * DAY
        if base >= low and base + month.length * DAY <= high:
            total += len(days) * len(times)
            continue
        for number in days:
            base = (month.first + number - 1) * DAY
            total += max(0, bisect_left(times, high - base) - bisect_left(times, low - base))
    return total


def _days_between(expression: Expression, low: int, high: int) -> Iterator[int]:
    """The matching days, counted since 1970, that touch [low, high)."""
    first, end = low // DAY, -(-high // DAY)
    for month in _months(low, high):
        for number in days_of(expression, month):
            day = month.first + number - 1
            if day >= end:
                return
            if day >= first:
                yield day


def _months(low: int, high: int) -> Iterator[Month]:
    """The months that touch [low, high), in order."""
    begin = date.fromordinal(_EPOCH + low // DAY)
    index = begin.year * 12 + begin.month - 1
    while (month := _month(index)).first * DAY < high:
        yield month
        index += 1


def _months_back(low: int, high: int) -> Iterator[Month]:
    """The months that touch [low, high), the last one first."""
    end = date.fromordinal(_EPOCH + (high - 1) // DAY)
    index = end.year * 12 + end.month - 1
    while ((month := _month(index)).first + month.length) * DAY > low:
        yield month
        index -= 1


@lru_cache(maxsize=4096)
def _month(index: int) -> Month:
    """The month that is `index` months after January of the year 0."""
    first = date(index // 12, index % 12 + 1, 1)
    after = date((index + 1) // 12, (index + 1) % 12 + 1, 1)
    return Month(first.month, first.toordinal() - _EPOCH, first.isoweekday() % 7, (after - first).days)


def _times_of(expression: Expression) -> tuple[int, ...]:
    return _times(expression.hour.values, expression.minute.values)


@lru_cache(maxsize=512)  # at most 1,440 numbers each
def _times(hours: tuple[int, ...], minutes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(hour * 3600 + minute * 60 for hour in hours for minute in minutes)
