"""The wall clock: which local times an expression matches, in a zone that never changes its clock.

Local time is counted in whole seconds since 1970-01-01T00:00 on the wall, so that a day is always 86,400 of
them. Nothing is stepped through: the days of a month are looked up by the shape of the month (there are
28 shapes), the times of a day are counted without listing them, and the first, last or number of matches
in a span comes from bisection. To count a year of a one-minute rule costs no more than that of a yearly one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from itertools import count

from detent.when.cron import Expression
from detent.when.days import Month, days_of_shape

DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()


def days_of(expression: Expression, month: Month) -> tuple[int, ...]:
    """The days of this month (1 is the first) on which the expression fires."""
    if month.number not in expression.month.values or not _in_year(expression, month.year):
        return ()
    return days_of_shape(expression.day_rule, month.weekday, month.length)


class Times:
    """The times of a day that match, in order: a tuple of minutes, each with the same seconds.

    Up to 86,400 of them, of which no list is ever made.
    """

    def __init__(self, hours: tuple[int, ...], minutes: tuple[int, ...], seconds: tuple[int, ...]) -> None:
        self._minutes = tuple(hour * 3600 + minute * 60 for hour in hours for minute in minutes)
        self._seconds = seconds
        self.count = len(self._minutes) * len(seconds)

    def before(self, time: int) -> int:
        """How many of them come before this second of the day, which may lie outside of it."""
        second = time % 60
        whole = bisect_left(self._minutes, time - second)
        found = whole * len(self._seconds)
        if second and whole < len(self._minutes) and self._minutes[whole] == time - second:
            found += bisect_left(self._seconds, second)
        return found

    def __getitem__(self, index: int) -> int:
        minute, second = divmod(index, len(self._seconds))
        return self._minutes[minute] + self._seconds[second]


def matches(expression: Expression, low: int, high: int) -> Iterator[int]:
    """Every matching local second in [low, high), in order."""
    times = _times_of(expression)
    for day in _days_between(expression, low, high):
        base = day * DAY
        begin = 0 if base >= low else times.before(low - base)
        end = times.count if base + DAY <= high else times.before(high - base)
        for index in range(begin, end):
            yield base + times[index]


def first_match(expression: Expression, low: int, high: int) -> int | None:
    return next(matches(expression, low, high), None)


def last_match(expression: Expression, low: int, high: int) -> int | None:
    """The last matching local second in [low, high)."""
    times = _times_of(expression)
    for month in _months_back(low, high):
        for number in reversed(days_of(expression, month)):
            base = (month.first + number - 1) * DAY
            until = times.before(high - base)
            if until:
                found = base + times[until - 1]
                return found if found >= low else None
    return None


def count_matches(expression: Expression, low: int, high: int) -> int:
    """How many local seconds in [low, high) match."""
    times = _times_of(expression)
    total = 0
    for month in _months(expression, low, high):
        days = days_of(expression, month)
        base = month.first * DAY
        if base >= low and base + month.length * DAY <= high:
            total += len(days) * times.count
            continue
        for number in days:
            base = (month.first + number - 1) * DAY
            total += max(0, times.before(high - base) - times.before(low - base))
    return total


def first_day(expression: Expression, low: int, high: int) -> int | None:
    """The first matching day, counted since 1970, that touches [low, high)."""
    return next(_days_between(expression, low, high), None)


def _days_between(expression: Expression, low: int, high: int) -> Iterator[int]:
    """The matching days, counted since 1970, that touch [low, high)."""
    first, end = low // DAY, -(-high // DAY)
    for month in _months(expression, low, high):
        for number in days_of(expression, month):
            day = month.first + number - 1
            if day >= end:
                return
            if day >= first:
                yield day


def _months(expression: Expression, low: int, high: int) -> Iterator[Month]:
    """The months of the expression that touch [low, high), in order; the others are not even looked at."""
    begin = date.fromordinal(_EPOCH + low // DAY)
    numbers = expression.month.values
    for year in count(begin.year):
        if not _in_year(expression, year):
            if _month(year * 12).first * DAY >= high:
                return
            continue
        for number in numbers:
            if number < begin.month and year == begin.year:
                continue
            month = _month(year * 12 + number - 1)
            if month.first * DAY >= high:
                return
            yield month


def _in_year(expression: Expression, year: int) -> bool:
    return expression.any_year or year in expression.year.values


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
    return Month(
        first.year, first.month, first.toordinal() - _EPOCH, first.isoweekday() % 7, (after - first).days
    )


def _times_of(expression: Expression) -> Times:
    return _times(expression.hour.values, expression.minute.values, expression.second.values)


_times = lru_cache(maxsize=512)(Times)  # at most 1,500 numbers each
