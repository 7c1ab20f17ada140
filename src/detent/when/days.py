"""Which days of a month: the one place that decides.

It depends on the two day fields and on the shape of the month: its length and the weekday it begins with.
There are 28 shapes, so the days of any month are looked up. A special names at most one day of a month, and
none where the month lacks it: `31W` skips short months, `fri#5` months with four Fridays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

SATURDAY, SUNDAY = 6, 0


class Month(NamedTuple):
    """A month: its first day counted since 1970, that day's weekday (0 is Sunday), and its length."""

    year: int
    number: int
    first: int
    weekday: int
    length: int


@dataclass(frozen=True, slots=True)
class LastDay:
    """`L`, `L-3`: so many days before the last one; `LW`, `L-3W`: the weekday nearest to that."""

    before: int
    to_weekday: bool

    def day(self, first_weekday: int, length: int) -> int | None:
        day = length - self.before
        if day < 1:
            return None
        return _nearest_weekday(day, first_weekday, length) if self.to_weekday else day


@dataclass(frozen=True, slots=True)
class NearestWeekday:
    """`15W`: the weekday (Monday to Friday) of the same month that is nearest to the day."""

    of: int

    def day(self, first_weekday: int, length: int) -> int | None:
        return _nearest_weekday(self.of, first_weekday, length) if self.of <= length else None


@dataclass(frozen=True, slots=True)
class LastWeekday:
    """`5L`: the last Friday."""

    weekday: int

    def day(self, first_weekday: int, length: int) -> int | None:
        return length - (first_weekday + length - 1 - self.weekday) % 7


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """`fri#2`: the second Friday."""

    weekday: int
    nth: int

    def day(self, first_weekday: int, length: int) -> int | None:
        day = 1 + (self.weekday - first_weekday) % 7 + 7 * (self.nth - 1)
        return day if day <= length else None


Special = LastDay | NearestWeekday | LastWeekday | NthWeekday


class DayRule(NamedTuple):
    """The two day fields. `both`: a day must match both of them, otherwise either one."""

    days: tuple[int, ...]
    day_specials: tuple[Special, ...]
    weekdays: tuple[int, ...]
    weekday_specials: tuple[Special, ...]
    both: bool


@lru_cache(maxsize=8192)
def days_of_shape(rule: DayRule, first_weekday: int, length: int) -> tuple[int, ...]:
    """The days (1 is the first) of a month of this shape."""
    by_day = {*rule.days, *_named(rule.day_specials, first_weekday, length)}
    by_weekday = _named(rule.weekday_specials, first_weekday, length)
    found = []
    for day in range(1, length + 1):
        on_day = day in by_day
        on_weekday = (first_weekday + day - 1) % 7 in rule.weekdays or day in by_weekday
        if (on_day and on_weekday) if rule.both else (on_day or on_weekday):
            found.append(day)
    return tuple(found)


def _named(specials: tuple[Special, ...], first_weekday: int, length: int) -> set[int | None]:
    return {special.day(first_weekday, length) for special in specials}


def _nearest_weekday(day: int, first_weekday: int, length: int) -> int:
    weekday = (first_weekday + day - 1) % 7
    if weekday == SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == SUNDAY:
        return day + 1 if day < length else day - 2
    return day
