"""Zones: IANA names, and the stretches of constant offset they are made of.

Everything about daylight saving follows from one picture. A zone is a row of stretches; within a stretch
local time is UTC plus a constant, so a wall-clock rule is plain arithmetic there. Between two stretches the
wall clock jumps: forward, and some local times do not exist (a gap), or backward, and some exist twice (a
fold). `stretches` yields that row; `dst` decides what a rule does at the jumps.

The rules are those of the `tzdata` package, never of the operating system, whose own database is of another
age on every machine: all nodes must agree, and the ledger names the package's version.

`zoneinfo` does not tell where its transitions are, so they are found once per zone and year: the offset is
sampled every three days and each change narrowed down to its second. Since 1970 no zone has had two
transitions within six days, which a test checks. Stretches are cut at the turn of the year as well;
such a cut has the same offset on both sides and is neither gap nor fold.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]  # it is data

from detent.model.errors import InvalidInput

FIRST_YEAR = 1970
END_YEAR = 2200  # zone rules that far ahead are guesses; a search that reaches it has no more instants

_SAMPLE_SECONDS = 3 * 86_400
_LONGEST_NAME = 64
_NO_PLACE = frozenset({"Factory"})  # what a machine shows whose zone was never set
_DATA = Path(tzdata.__file__).parent


class Stretch(NamedTuple):
    """A span of UTC seconds [start, end) with one offset, and the offsets on either side of it."""

    start: int
    end: int
    offset: int
    before: int
    after: int


def zone(name: str, field: str = "timezone") -> ZoneInfo:
    """The zone of that name; a name that is not one of the database's never reaches the file system."""
    if not isinstance(name, str):
        raise InvalidInput.of(field, "must be the name of an IANA zone, such as 'Europe/Berlin'")
    if name not in zone_names():
        raise InvalidInput.of(field, _unknown(name))
    return _load(name)


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    return frozenset(_DATA.joinpath("zones").read_text(encoding="ascii").split()) - _NO_PLACE


@cache  # bounded by the names of the database
def _load(name: str) -> ZoneInfo:
    with _DATA.joinpath("zoneinfo", *name.split("/")).open("rb") as rules:
        return ZoneInfo.from_file(rules, key=name)


def stretches(name: str, start: int, end: int) -> Iterator[Stretch]:
    """The stretches that touch the UTC seconds [start, end), in order; none outside the years covered."""
    start = max(start, year_start(FIRST_YEAR))
    end = min(end, year_start(END_YEAR))
    if start >= end:
        return
    year = datetime.fromtimestamp(start, UTC).year
    while year_start(year) < end:
        for stretch in _stretches_of(name, year):
            if stretch.end > start and stretch.start < end:
                yield stretch
        year += 1


@lru_cache(maxsize=1024)
def year_start(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


@lru_cache(maxsize=16_384)
def _stretches_of(name: str, year: int) -> tuple[Stretch, ...]:
    tz = zone(name)
    first, end = year_start(year), year_start(year + 1)
    before = _offset(tz, first - 1)
    found: list[Stretch] = []
    start, offset, seen = first, _offset(tz, first), first
    while seen < end:
        ahead = min(seen + _SAMPLE_SECONDS, end)
        changed = _offset(tz, ahead)
        if changed != offset:
            at = _first_second_of(tz, changed, seen, ahead)
            # A change at `end` belongs to the next year, which finds it as its own beginning.
            if at < end:
                found.append(Stretch(start, at, offset, before, changed))
                start, before, offset = at, offset, changed
        seen = ahead
    found.append(Stretch(start, end, offset, before, _offset(tz, end)))
    return tuple(found)


def _first_second_of(tz: ZoneInfo, offset: int, low: int, high: int) -> int:
    """The transition within (low, high]: the zone has `offset` at `high` and another one at `low`."""
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(tz, middle) == offset:
            high = middle
        else:
            low = middle
    return high


def _offset(tz: ZoneInfo, at: int) -> int:
    offset = datetime.fromtimestamp(at, tz).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _unknown(name: str) -> str:
    shown = repr(name[:_LONGEST_NAME])
    near = _near(name) if len(name) <= _LONGEST_NAME else []
    if near:
        return f"{shown} is not an IANA zone; did you mean {' or '.join(repr(n) for n in near)}?"
    return f"{shown} is not an IANA zone; write one such as 'Europe/Berlin', 'America/New_York' or 'UTC'"


def _near(name: str) -> list[str]:
    """Up to three zones that were probably meant: by case, then by city, then by spelling."""
    wanted = "_".join(name.lower().split())
    by_lower = {known.lower(): known for known in sorted(zone_names())}
    if wanted in by_lower:
        return [by_lower[wanted]]
    city = wanted.rsplit("/", 1)[-1]
    by_city: dict[str, list[str]] = {}
    for known in by_lower.values():
        by_city.setdefault(known.lower().rsplit("/", 1)[-1], []).append(known)
    if city in by_city:
        return by_city[city][:3]
    near = [by_lower[n] for n in difflib.get_close_matches(wanted, by_lower, n=3, cutoff=0.75)]
    if near:
        return near
    return [by_city[n][0] for n in difflib.get_close_matches(city, by_city, n=2, cutoff=0.75)]
