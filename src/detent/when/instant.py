"""Instants on the wire: ISO 8601, in with any offset, out in UTC with `Z` and milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

from detent.model.errors import InvalidInput

_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,30}))?)?"
    r"(?:([Zz])|([+-])([0-9]{2}):?([0-9]{2})?)?"
)
_EXAMPLE = "write for example '2026-01-01T09:00:00Z' or '2026-01-01T09:00:00+01:00'"
_LONGEST = 64
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


def parse_instant(field: str, text: object) -> datetime:
    """The instant in UTC. Digits beyond the microsecond are cut off, never rounded up."""
    if not isinstance(text, str):
        raise InvalidInput.of(field, f"must be an instant as a string; {_EXAMPLE}")
    match = _INSTANT.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise InvalidInput.of(field, f"{text[:_LONGEST]!r} is not an ISO 8601 instant; {_EXAMPLE}")
    year, month, day, hour, minute, second, fraction, utc, sign, off_hours, off_minutes = match.groups()
    if not (utc or sign):
        raise InvalidInput.of(
            field,
            f"{text!r} does not say in which zone; write '{text}Z' for UTC or '{text}+01:00' with its offset",
        )
    try:
        offset = timedelta(hours=int(off_hours or 0), minutes=_minutes(off_minutes))
        at = datetime(
            int(year), int(month), int(day), int(hour), int(minute), int(second or 0),
            int((fraction or "")[:6].ljust(6, "0")),
            tzinfo=timezone(-offset if sign == "-" else offset),
        ).astimezone(UTC)  # fmt: skip
    except ValueError as error:
        raise InvalidInput.of(field, f"{text!r} is not a possible instant ({error}); {_EXAMPLE}") from None
    except OverflowError:
        raise InvalidInput.of(field, f"{text!r} is past the year 9999 in UTC; {_EXAMPLE}") from None
    if at < _FIRST:
        raise InvalidInput.of(field, f"{text!r} is before 1970; {_EXAMPLE}")
    return at


@lru_cache(maxsize=4096)  # a job was made and last changed at one instant, and many are due at the same
def format_instant(at: datetime) -> str:
    """`2026-01-01T00:00:00.000Z`; what is finer than a millisecond is cut off."""
    if at.tzinfo is None:
        raise ValueError("an instant needs a zone")
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    return at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _minutes(text: str | None) -> int:
    minutes = int(text or 0)
    if minutes > 59:
        raise ValueError("minutes of the offset must be in 0..59")
    return minutes
