"""Durations, and the rule `every`: instants at anchor + k · every, k ≥ 1.

Arithmetic is on whole microseconds (`timedelta`), so after years a rule is still aligned to its anchor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from detent.model.errors import InvalidInput

LONGEST_SECONDS = 100 * 366 * 86_400
SHORTEST_EVERY_SECONDS = 1

_NUMBER = r"[0-9]{1,12}(?:[.,][0-9]{1,9})?"
_DURATION = re.compile(
    rf"P(?=[0-9T])(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_UNIT_SECONDS = (604_800, 86_400, 3_600, 60, 1)
_CALENDAR_UNITS = re.compile(r"P(?:[0-9.,]+[A-Z])*?[0-9.,]+[YM]")
_EXAMPLE = (
    "write seconds as a number, such as 90, or an ISO 8601 duration, such as 'PT15M', 'PT1H30M' or 'P1D'"
)


def parse_duration(field: str, value: object) -> float:
    """Seconds, to the microsecond, from a number or an ISO 8601 duration; never negative."""
    if isinstance(value, str):
        seconds = _from_iso(field, value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        # An int too large for a float must not raise from the conversion.
        seconds = float(value) if abs(value) <= LONGEST_SECONDS else math.inf
    else:
        raise InvalidInput.of(field, f"must be a duration; {_EXAMPLE}")
    if not math.isfinite(seconds) or seconds > LONGEST_SECONDS:
        raise InvalidInput.of(field, "is too long, at most 100 years are allowed")
    if seconds < 0:
        raise InvalidInput.of(field, f"must not be negative; {_EXAMPLE}")
    return round(seconds, 6)


def parse_every(value: object, field: str = "every") -> float:
    """Seconds between two fires: a duration of at least one second."""
    seconds = parse_duration(field, value)
    if seconds < SHORTEST_EVERY_SECONDS:
        raise InvalidInput.of(field, f"is {seconds:g} seconds, at least 1 is needed; {_EXAMPLE}")
    return seconds


def step_of(seconds: float) -> timedelta:
    return timedelta(microseconds=round(seconds * 1_000_000))


def multiples(anchor: datetime, step: timedelta, after: datetime) -> Iterator[datetime]:
    """anchor + k · step for k ≥ 1, strictly after `after`, until the calendar ends."""
    k = max(1, (after - anchor) // step + 1)
    try:
        at = anchor + k * step
        while True:
            yield at
            at += step
    except OverflowError:
        return


def _from_iso(field: str, text: str) -> float:
    shown = repr(text[:40])
    match = _DURATION.fullmatch(text.upper()) if len(text) <= 64 and text.isascii() else None
    if match is None:
        if len(text) <= 64 and _CALENDAR_UNITS.match(text.upper()):
            raise InvalidInput.of(
                field,
                f"{shown} has years or months, which differ in length; "
                "use 'cron' for those, for example '0 0 1 * *'",
            )
        raise InvalidInput.of(field, f"{shown} is not a duration; {_EXAMPLE}")
    given = [(part, unit) for part, unit in zip(match.groups(), _UNIT_SECONDS, strict=True) if part]
    if any(not part.isdigit() for part, _ in given[:-1]):
        raise InvalidInput.of(field, f"{shown} may have a fraction in its last part only; {_EXAMPLE}")
    return sum(float(part.replace(",", ".")) * unit for part, unit in given)
