"""Checks of single values. Each returns the value in its final form or raises InvalidInput for `field`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from detent.model.errors import InvalidInput
from detent.when.every import parse_duration
from detent.when.instant import parse_instant

DAY = 86_400
LONGEST_TIMEOUT = 30 * DAY
LONGEST_RETRY_DELAY = 30 * DAY
LONGEST_DEADLINE = 366 * DAY
MOST_TAGS, LONGEST_TAG = 50, 100
LONGEST_NAME = 255
LONGEST_URL = 2_000

# Control characters, the line separators of Unicode, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_POOL = re.compile(r"[a-z0-9_-]{1,63}")


def refuse(field: str, message: str, code: str = "invalid") -> InvalidInput:
    return InvalidInput.of(field, message, code)


def text(field: str, value: Any, longest: int = LONGEST_NAME, *, one_line: bool = True) -> str:
    if not isinstance(value, str):
        raise refuse(field, "must be a string", "wrong_type")
    if not value:
        raise refuse(field, "must not be empty", "too_short")
    if len(value) > longest:
        raise refuse(field, f"has {len(value)} characters, at most {longest:,} are allowed", "too_long")
    if one_line and _UNPRINTABLE.search(value):
        raise refuse(field, "must not contain control characters or line breaks")
    if "\0" in value:
        raise refuse(field, "must not contain the character NUL")
    return value


def choice(field: str, value: Any, words: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in words:
        raise refuse(field, f"must be one of {', '.join(words)}")
    return value


def flag(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise refuse(field, "must be true or false", "wrong_type")
    return value


def whole(field: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise refuse(field, f"must be a whole number from {least:,} to {most:,}", "wrong_type")
    if not least <= value <= most:
        raise refuse(field, f"must be from {least:,} to {most:,}", "out_of_range")
    return value


def seconds(field: str, value: Any, least: float, most: float) -> float:
    """A duration within bounds."""
    found = parse_duration(field, value)
    if not least <= found <= most:
        raise refuse(field, f"must be from {least:g} to {most:,.0f} seconds", "out_of_range")
    return found


def timeout(field: str, value: Any) -> float:
    return seconds(field, value, 0.001, LONGEST_TIMEOUT)


def timeout_ms(field: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise refuse(field, "must be a number of milliseconds", "wrong_type")
    if not 1 <= value <= LONGEST_TIMEOUT * 1000:
        raise refuse(field, f"must be from 1 to {LONGEST_TIMEOUT * 1000:,} milliseconds", "out_of_range")
    return value / 1000


def instant(field: str, value: Any) -> datetime:
    """An instant on a whole millisecond, as answers show it: rounded up, so that nothing is ever early."""
    try:
        return to_millisecond(parse_instant(field, value))
    except OverflowError:
        raise refuse(field, "is too far in the future", "out_of_range") from None


def to_millisecond(at: datetime) -> datetime:
    rest = at.microsecond % 1000
    return at if rest == 0 else at + timedelta(microseconds=1000 - rest)


def tags(field: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise refuse(field, "must be a list of strings", "wrong_type")
    checked = dict.fromkeys(text(f"{field}[{i}]", tag, LONGEST_TAG) for i, tag in enumerate(value[:1000]))
    if len(value) > 1000 or len(checked) > MOST_TAGS:
        raise refuse(field, f"has {len(value)} tags, at most {MOST_TAGS} are allowed", "too_many")
    return tuple(checked)


def pool(field: str, value: Any) -> str:
    if not isinstance(value, str) or not _POOL.fullmatch(value):
        raise refuse(field, "must be 1 to 63 of the characters a-z, 0-9, '_' and '-', such as 'reports'")
    return value


def callback(field: str, value: Any) -> str:
    url = text(field, value, LONGEST_URL)
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine or " " in url or not url.isascii():
        raise refuse(field, "must be an http or https address, such as 'https://example.org/done'")
    if "@" in parts.netloc:
        raise refuse(field, "must not contain a user name or password")
    return url
