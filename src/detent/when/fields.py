"""One field of a cron expression: what may stand in it, and the values it means.

A field is a list of items separated by commas. Most items are values, ranges or steps and become plain
numbers here. The others name a day that depends on the month (`L`, `15W`, `fri#2`, …) and become a special
of `detent.when.days`. What is refused names the field, the text and what would be right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from detent.model.errors import InvalidInput
from detent.when.days import LastDay, LastWeekday, NearestWeekday, NthWeekday, Special
from detent.when.zone import END_YEAR, FIRST_YEAR

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True)
class Kind:
    """What one position of an expression may hold."""

    name: str
    low: int
    high: int
    example: str
    names: tuple[str, ...] = ()
    is_day: bool = False


SECOND = Kind("second", 0, 59, "'0', '*/10' or '0,30'")
MINUTE = Kind("minute", 0, 59, "'0', '*/15' or '0,30'")
HOUR = Kind("hour", 0, 23, "'9', '*/2' or '9-17'")
DAY = Kind("day of month", 1, 31, "'1', '1,15', 'L' or '*'", is_day=True)
MONTH = Kind("month", 1, 12, "'1', 'jan' or '*/3'", MONTHS)
WEEKDAY = Kind("day of week", 0, 7, "'1', 'mon-fri', 'fri#2' or '*'", WEEKDAYS, is_day=True)
YEAR = Kind("year", FIRST_YEAR, END_YEAR - 1, "'2030', '2026-2028' or '*'")

_LAST = re.compile(r"l(?:-([0-9]{1,2}))?(w?)")
_NEAREST = re.compile(r"([0-9]{1,2})w")
_OF_MONTH = re.compile(rf"([0-9]|{'|'.join(WEEKDAYS)})(?:l|#([0-9]))")
_SWAPPED_LAST = re.compile(rf"l([0-7]|{'|'.join(WEEKDAYS)})")


@dataclass(frozen=True, slots=True)
class Field:
    """One parsed field: its plain values in order (0 is Sunday, there is no 7), and its specials."""

    text: str
    values: tuple[int, ...]
    specials: tuple[Special, ...] = ()

    @property
    def starred(self) -> bool:
        """Whether it was written with a leading `*` (or `?`), which changes what the field means."""
        return self.text[0] in "*?"


def read_field(kind: Kind, text: str) -> Field:
    """The field, or InvalidInput for `cron`."""
    if not text.isascii():
        wrong(kind, text, "has characters that are not plain ASCII")
    if text == "?" and kind.is_day:
        return Field(text, _reduced(kind, range(kind.low, kind.high + 1)))
    if "" in (items := text.split(",")):
        wrong(kind, text, "has an empty item in its list")
    values: set[int] = set()
    specials: dict[Special, None] = {}  # a set that keeps its order
    for item in items:
        special = _special(kind, item) if kind.is_day else None
        if special is None:
            values.update(_item(kind, item))
        else:
            specials[special] = None
    return Field(text, _reduced(kind, values), tuple(specials))


def _special(kind: Kind, item: str) -> Special | None:
    if kind is WEEKDAY:
        return _special_weekday(item)
    if last := _LAST.fullmatch(item.lower()):
        before = int(last[1] or 0)
        if before > 30:
            wrong(kind, item, "goes back past the first day of every month, at most 'L-30' is possible")
        return LastDay(before, bool(last[2]))
    if nearest := _NEAREST.fullmatch(item.lower()):
        if not 1 <= int(nearest[1]) <= 31:
            wrong(kind, item, "is outside 1W–31W")
        return NearestWeekday(int(nearest[1]))
    return None


def _special_weekday(item: str) -> Special | None:
    low = item.lower()
    if low == "l":
        wrong(
            WEEKDAY, item, "needs a weekday before it (alone it means Saturday to Quartz: that is 'sat' here)"
        )
    if swapped := _SWAPPED_LAST.fullmatch(low):
        wrong(WEEKDAY, item, f"has its parts swapped: that is '{swapped[1]}L' here")
    found = _OF_MONTH.fullmatch(low)
    if found is None:
        return None
    weekday = read_value(WEEKDAY, item, found[1]) % 7
    if found[2] is None:
        return LastWeekday(weekday)
    if not 1 <= int(found[2]) <= 5:
        wrong(WEEKDAY, item, "is outside #1–#5, since a month has no weekday more than five times")
    return NthWeekday(weekday, int(found[2]))


def _item(kind: Kind, item: str) -> list[int]:
    span, slash, step = item.partition("/")
    if slash and not is_number(step):
        wrong(kind, item, "has a step that is not a number")
    every = int(step) if slash else 1
    if every == 0:
        wrong(kind, item, "has a step of 0, it must be at least 1")
    if span == "*":
        return list(range(kind.low, kind.high + 1, every))
    first, dash, last = span.partition("-")
    low = read_value(kind, item, first)
    if dash:
        return values_between(kind, item, low, read_value(kind, item, last))[::every]
    return list(range(low, kind.high + 1, every)) if slash else [low]


def values_between(kind: Kind, item: str, low: int, high: int) -> list[int]:
    """The values of a range in the order in which it runs; one that ends before it begins wraps around."""
    if kind is WEEKDAY and low == 7 and high < 7:
        low = 0  # a week that begins on Sunday may be written 7-4
    if low <= high:
        return list(range(low, high + 1))
    if kind is YEAR:
        wrong(kind, item, "runs backwards, and years do not come round again")
    top = 6 if kind is WEEKDAY else kind.high
    return [*range(low, top + 1), *range(kind.low, high + 1)]


def read_value(kind: Kind, item: str, text: str) -> int:
    """One value of an item, as a number or a name; for day of week 7 stays 7."""
    if text.lower() in kind.names:
        return kind.names.index(text.lower()) + kind.low
    if not is_number(text):
        if text == "":
            wrong(kind, item, "lacks a value")
        if item == "?":
            wrong(kind, item, "stands alone, and in the two day fields only")
        wrong(kind, item, "is not known here" if item == text else f"has a bad part, {shown(text)}")
    value = int(text)
    if not kind.low <= value <= kind.high:
        wrong(kind, item, f"is outside {kind.low}–{kind.high}")
    return value


def _reduced(kind: Kind, values: set[int] | range) -> tuple[int, ...]:
    if kind is WEEKDAY:
        return tuple(sorted({value % 7 for value in values}))
    return tuple(sorted(values))


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def refuse(message: str) -> NoReturn:
    raise InvalidInput.of("cron", message)


def wrong(kind: Kind, text: str, what: str) -> NoReturn:
    refuse(f"{kind.name}: {shown(text)} {what}; write for example {kind.example}")
