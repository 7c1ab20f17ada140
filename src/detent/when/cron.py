"""Cron expressions: text to data.

    ┌─ minute 0–59        a field is a list of items separated by commas
    │ ┌─ hour 0–23        an item is `*`, a value, or a range `a-b`, each with an optional step `/n`
    │ │ ┌─ day of month 1–31            ranges may wrap: `22-2`, `fri-mon`
    │ │ │ ┌─ month 1–12 or jan–dec      `0/15` means from 0 to the end by 15
    │ │ │ │ ┌─ day of week 0–7 or sun–sat, both 0 and 7 are Sunday
    0 9 * * mon-fri                     `?` in a day field means `*`

Parsing yields an `Expression`: the values of each field, sorted, and the few facts that depend on how a field
was written. Which days match is decided in one place (`wall.days_of`) from the two day fields, the length of
the month and the weekday it begins with; nothing else looks at them.

The text is a stranger's. It is cut off at 255 characters before anything is done with it, and no step's
work grows with a number in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

from detent.model.errors import InvalidInput, NotAvailable

LONGEST = 255

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTH_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True, slots=True)
class _Kind:
    """What one position of an expression may hold."""

    name: str
    low: int
    high: int
    example: str
    names: tuple[str, ...] = ()
    is_day: bool = False


_MINUTE = _Kind("minute", 0, 59, "'0', '*/15' or '0,30'")
_HOUR = _Kind("hour", 0, 23, "'9', '*/2' or '9-17'")
_DAY = _Kind("day of month", 1, 31, "'1', '1,15' or '*'", is_day=True)
_MONTH = _Kind("month", 1, 12, "'1', 'jan' or '*/3'", _MONTHS)
_WEEKDAY = _Kind("day of week", 0, 7, "'1', 'mon-fri' or '*'", _WEEKDAYS, is_day=True)

# What the dialect will have one day, so that it is refused as unfinished and not as nonsense.
_HASHED = re.compile(r"h(\([0-9]+-[0-9]+\))?(/[0-9]+)?")
_LATER = {
    _DAY: re.compile(r"l|l-[0-9]{1,2}|lw|l-[0-9]{1,2}w|([1-9]|[12][0-9]|3[01])w"),
    _WEEKDAY: re.compile(rf"l|([0-7]|{'|'.join(_WEEKDAYS)})(l|#[1-5])"),
}
_INSTEAD = {_DAY: "a day such as '28'", _WEEKDAY: "a weekday such as 'fri'"}


@dataclass(frozen=True, slots=True)
class Field:
    """One parsed field: its matching values in order (day of week: 0 is Sunday, there is no 7)."""

    text: str
    values: tuple[int, ...]

    @property
    def starred(self) -> bool:
        """Whether it was written with a leading `*` (or `?`), which changes what the field means."""
        return self.text[0] in "*?"


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression. Two with the same text are equal; hashing one costs no more than its text."""

    text: str
    minute: Field = field(compare=False)
    hour: Field = field(compare=False)
    day: Field = field(compare=False)
    month: Field = field(compare=False)
    weekday: Field = field(compare=False)

    @property
    def both_days(self) -> bool:
        """Debian's rule: a day field that begins with `*` must match too, otherwise either one may."""
        return self.day.starred or self.weekday.starred

    @property
    def follows_elapsed_time(self) -> bool:
        """`*/15 * * * *` means every 15 minutes, whatever the wall clock does in between."""
        return self.minute.starred or self.hour.starred


def parse_cron(text: str) -> Expression:
    """The expression, or InvalidInput for `cron` that says which part is wrong and what would be right."""
    if not isinstance(text, str):
        _refuse("must be a string such as '0 9 * * mon-fri'")
    if len(text) > LONGEST:
        _refuse(f"is {len(text)} characters long, at most {LONGEST} are allowed")
    return _parse(text.strip(" \t\r\n"))


@lru_cache(maxsize=16_384)
def _parse(text: str) -> Expression:
    # Only these two separate: splitting at Unicode's blanks would let a no-break space pass.
    words = re.findall(r"[^ \t]+", _nickname(text) if text.startswith("@") else text)
    _check_count(text, words)
    minute, hour, day, month, weekday = (
        _field(kind, word) for kind, word in zip((_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY), words, strict=True)
    )
    expression = Expression(text, minute, hour, day, month, weekday)
    _check_can_fire(expression)
    return expression


def _nickname(text: str) -> str:
    known = NICKNAMES.get(text.lower())
    if known is not None:
        return known
    word = text.split()[0].lower()
    if word == "@reboot":
        _refuse(
            "'@reboot' has no meaning here, since no one machine's start is the cluster's; "
            "write for example '@daily' or '0 9 * * *'"
        )
    if word == "@every":
        _refuse("'@every' is not cron; use the field 'every', for example \"every\": \"PT15M\"")
    if word in NICKNAMES:
        _refuse(f"{_shown(text)}: nothing may follow {word!r}; write just {word!r}")
    raise InvalidInput.of("cron", f"{_shown(text)} is not a nickname; write one of {', '.join(NICKNAMES)}")


def _check_count(text: str, words: list[str]) -> None:
    count = len(words)
    if count == 5:
        return
    if not text.isascii():
        _refuse(
            f"{_shown(text)} has characters that are not plain ASCII; write for example '0 9 * * mon-fri'"
        )
    if count in (6, 7):
        raise NotAvailable.of(
            "cron",
            f"{count} fields were found; expressions with seconds or years are not available yet; "
            "write 5: minute, hour, day of month, month, day of week, for example '*/5 * * * *'",
            "not_available",
        )
    found = "no fields were" if count == 0 else "1 field was" if count == 1 else f"{count} fields were"
    _refuse(
        f"{found} found in {_shown(text)}, 5 are needed: minute, hour, day of month, month, day of week; "
        "write for example '0 9 * * mon-fri'"
    )


def _field(kind: _Kind, text: str) -> Field:
    if not text.isascii():
        _wrong(kind, text, "has characters that are not plain ASCII")
    if text == "?" and kind.is_day:
        return Field(text, _reduced(kind, range(kind.low, kind.high + 1)))
    if "" in (items := text.split(",")):
        _wrong(kind, text, "has an empty item in its list")
    return Field(text, _reduced(kind, {value for item in items for value in _item(kind, item)}))


def _item(kind: _Kind, item: str) -> list[int]:
    _check_available(kind, item)
    span, slash, step = item.partition("/")
    if slash and not _is_number(step):
        _wrong(kind, item, "has a step that is not a number")
    every = int(step) if slash else 1
    if every == 0:
        _wrong(kind, item, "has a step of 0, it must be at least 1")
    if span == "*":
        return list(range(kind.low, kind.high + 1, every))
    first, dash, last = span.partition("-")
    low = _value(kind, item, first)
    if dash:
        return _range(kind, low, _value(kind, item, last))[::every]
    return list(range(low, kind.high + 1, every)) if slash else [low]


def _check_available(kind: _Kind, item: str) -> None:
    later = _LATER.get(kind)
    if later is not None and later.fullmatch(item.lower()):
        instead = _INSTEAD[kind]
    elif _HASHED.fullmatch(item.lower()):
        instead = f"a fixed value such as '{kind.low + 3}'"
    else:
        return
    raise NotAvailable.of(
        "cron", f"{kind.name}: {_shown(item)} is not available yet; write {instead}", "not_available"
    )


def _range(kind: _Kind, low: int, high: int) -> list[int]:
    if kind is _WEEKDAY and low == 7 and high < 7:
        low = 0  # a week that begins on Sunday may be written 7-4
    if low <= high:
        return list(range(low, high + 1))
    top = 6 if kind is _WEEKDAY else kind.high
    return [*range(low, top + 1), *range(kind.low, high + 1)]


def _value(kind: _Kind, item: str, text: str) -> int:
    if text.lower() in kind.names:
        return kind.names.index(text.lower()) + kind.low
    if not _is_number(text):
        if text == "":
            _wrong(kind, item, "lacks a value")
        if item == "?":
            _wrong(kind, item, "stands alone, and in the two day fields only")
        _wrong(kind, item, "is not known here" if item == text else f"has a bad part, {_shown(text)}")
    value = int(text)
    if not kind.low <= value <= kind.high:
        _wrong(kind, item, f"is outside {kind.low}–{kind.high}")
    return value


def _reduced(kind: _Kind, values: set[int] | range) -> tuple[int, ...]:
    if kind is _WEEKDAY:
        return tuple(sorted({value % 7 for value in values}))
    return tuple(sorted(values))


def _check_can_fire(expression: Expression) -> None:
    """Only the calendar can make an expression impossible: a day that none of its months has."""
    if not expression.both_days:
        return  # some weekday always comes
    longest = max(_MONTH_LENGTHS[month - 1] for month in expression.month.values)
    if expression.day.values[0] > longest:
        _refuse(
            f"day of month: {_shown(expression.day.text)} never comes in month "
            f"{_shown(expression.month.text)}, so this would never fire; write for example '0 0 28 2 *'"
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _refuse(message: str) -> NoReturn:
    raise InvalidInput.of("cron", message)


def _wrong(kind: _Kind, text: str, what: str) -> NoReturn:
    _refuse(f"{kind.name}: {_shown(text)} {what}; write for example {kind.example}")
