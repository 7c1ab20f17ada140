"""Cron expressions: text to data.

    ┌─ second 0–59        only in expressions of 6 or 7 fields
    │ ┌─ minute 0–59
    │ │ ┌─ hour 0–23      a field is a list of items separated by commas
    │ │ │ ┌─ day of month 1–31           an item is `*`, a value, or a range `a-b`,
    │ │ │ │ ┌─ month 1–12 or jan–dec     each with an optional step `/n`
    │ │ │ │ │ ┌─ day of week 0–7 or sun–sat, both 0 and 7 are Sunday
    │ │ │ │ │ │       ┌─ year, only in expressions of 7 fields
    0 0 9 * * mon-fri 2030

Ranges may wrap: `22-2`, `fri-mon`. `0/15` means from 0 to the end by 15, `?` in a day field means `*`. The
specials (`L`, `15W`, `fri#2`, …) are in `detent.when.fields`, `H` is in `detent.when.hashed`.

Parsing yields an `Expression`: the values of each field, sorted, and the few facts that depend on how a field
was written. Which days match is decided in one place (`detent.when.days`) from the two day fields, the length
of the month and the weekday it begins with; nothing else looks at them.

The text is a stranger's. It is cut off at 255 characters before anything is done with it, and no step's
work grows with a number in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache
from itertools import product

from detent.model.errors import InvalidInput
from detent.when.days import DayRule, days_of_shape
from detent.when.fields import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    YEAR,
    Field,
    Kind,
    read_field,
    refuse,
    shown,
)
from detent.when.hashed import PREVIEW_SEED, every_choice, is_hashed, written_out
from detent.when.strange import refuse_strangers

LONGEST = 255

_KINDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY, YEAR)
_NAMES = "minute, hour, day of month, month, day of week"
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
class Expression:
    """A parsed expression. Two with the same text are equal; hashing one costs no more than its text.

    `text` has each `H` written out, so that jobs for which it means the same share what is remembered.
    """

    text: str
    second: Field = field(compare=False)
    minute: Field = field(compare=False)
    hour: Field = field(compare=False)
    day: Field = field(compare=False)
    month: Field = field(compare=False)
    weekday: Field = field(compare=False)
    year: Field = field(compare=False)
    day_rule: DayRule = field(compare=False)
    any_year: bool = field(compare=False)

    @property
    def both_days(self) -> bool:
        """Debian's rule: a day field that begins with `*` must match too, otherwise either one may."""
        return self.day_rule.both

    @property
    def follows_elapsed_time(self) -> bool:
        """`*/15 * * * *` means every 15 minutes, whatever the wall clock does in between."""
        return self.minute.starred or self.hour.starred


def parse_cron(text: str, seed: int = PREVIEW_SEED) -> Expression:
    """The expression as it is for the job of this seed.

    InvalidInput for `cron` says which part is wrong and what would be right.
    """
    if not isinstance(text, str):
        refuse("must be a string such as '0 9 * * mon-fri'")
    if len(text) > LONGEST:
        refuse(f"is {len(text)} characters long, at most {LONGEST} are allowed")
    text = text.strip(" \t\r\n")
    return _parse(text, seed if has_hash(text) else PREVIEW_SEED)


def has_hash(text: str) -> bool:
    """Whether it depends on the job when this fires."""
    return "h" in text.lower() and any(map(is_hashed, _words(text)))


@lru_cache(maxsize=16_384)
def _parse(text: str, seed: int) -> Expression:
    refuse_strangers(text, NICKNAMES)
    words = _words(NICKNAMES.get(text.lower(), text))
    _check_count(text, words)
    try:
        return _expression(text, words, seed)
    except InvalidInput:
        _refuse_command(text, words)
        raise


def _expression(text: str, words: list[str], seed: int) -> Expression:
    if len(words) == 5:
        words = ["0", *words]
    if len(words) == 6:
        words = [*words, "*"]
    hashed = [is_hashed(word) for word in words]
    chosen = [
        written_out(kind, word, seed) if by_hash else word
        for kind, word, by_hash in zip(_KINDS, words, hashed, strict=True)
    ]
    fields = [read_field(kind, word) for kind, word in zip(_KINDS, chosen, strict=True)]
    second, minute, hour, day, month, weekday, year = fields
    rule = _day_rule(day, weekday)
    any_year = len(year.values) == YEAR.high - YEAR.low + 1
    if any(hashed):
        text = " ".join(chosen)
    expression = Expression(text, second, minute, hour, day, month, weekday, year, rule, any_year)
    _check_can_fire(expression, words)
    return expression


def _day_rule(day: Field, weekday: Field) -> DayRule:
    both = day.starred or weekday.starred
    return DayRule(day.values, day.specials, weekday.values, weekday.specials, both)


def _words(text: str) -> list[str]:
    # Only these two separate: splitting at Unicode's blanks would let a no-break space pass.
    return re.findall(r"[^ \t]+", text)


def _check_count(text: str, words: list[str]) -> None:
    count = len(words)
    if 5 <= count <= 7:
        return
    if not text.isascii():
        refuse(f"{shown(text)} has characters that are not plain ASCII; write for example '0 9 * * mon-fri'")
    _refuse_command(text, words)
    found = "no fields were" if count == 0 else "1 field was" if count == 1 else f"{count} fields were"
    refuse(
        f"{found} found in {shown(text)}, 5 are needed: {_NAMES} (6 with seconds before them, 7 with a year "
        "after them too); write for example '0 9 * * mon-fri'"
    )


_COMMAND = re.compile(r"[.~$&|;>=]|/[^0-9]|[a-z_]{4}", re.IGNORECASE)


def _refuse_command(text: str, words: list[str]) -> None:
    """If this is a line of a crontab, say so: five fields that are right, and then something else."""
    if len(words) < 6 or not _COMMAND.match(words[5]):
        return
    rule = " ".join(words[:5])
    try:
        _parse(rule, PREVIEW_SEED)
    except InvalidInput:
        return
    refuse(
        f"{shown(' '.join(words[5:]))} stands after the five fields; a command goes into 'task', "
        f'for example {{"kind": "shell", "command": "…"}}; write just {shown(rule)}'
    )


def _check_can_fire(expression: Expression, words: list[str]) -> None:
    """Only the calendar can make an expression impossible: days that none of its months has.

    With an `H` among them this must hold for every job, not for the one at hand: a text is not right for one
    job and wrong for another.
    """
    days = _choices(DAY, words[3], expression.day)
    months = _choices(MONTH, words[4], expression.month)
    weekdays = _choices(WEEKDAY, words[5], expression.weekday)
    for day, month, weekday in product(days, months, weekdays):
        _check_days(day, month, weekday, expression.year)


def _choices(kind: Kind, word: str, chosen: Field) -> list[Field]:
    if not is_hashed(word):
        return [chosen]
    return [replace(read_field(kind, text), text=word) for text in every_choice(kind, word)]


def _check_days(day: Field, month: Field, weekday: Field, year: Field) -> None:
    rule = _day_rule(day, weekday)
    if not rule.both and weekday.values:
        return  # every month has every weekday
    if any(days_of_shape(rule, first, length) for first, length in _shapes(month.values, year.values)):
        return
    longest = max(_MONTH_LENGTHS[number - 1] for number in month.values)
    if rule.both and not day.specials and day.values[0] > longest:
        refuse(
            f"day of month: {shown(day.text)} never comes in month {shown(month.text)}, "
            "so this would never fire; write for example '0 0 28 2 *'"
        )
    refuse(
        f"day of month: {shown(day.text)} and day of week {shown(weekday.text)} never come in month "
        f"{shown(month.text)} of year {shown(year.text)}, so this would never fire; "
        "write for example '0 0 28 2 *'"
    )


def _shapes(months: tuple[int, ...], years: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """The shapes that these months have in these years: the weekday of the first day, and the length."""
    seen: set[tuple[int, int]] = set()
    for year in years:
        for month in months:
            length = _MONTH_LENGTHS[month - 1]
            if month == 2 and (year % 4 or (year % 100 == 0 and year % 400)):
                length = 28
            shape = (date(year, month, 1).isoweekday() % 7, length)
            if shape not in seen:
                seen.add(shape)
                yield shape
