"""Every change of every zone's clock from 2024 to 2037, under 40 rules and all policies, against the clock itself.

The oracle reads the zone's clock once for every minute around a change and knows nothing else: a local time that
it never showed was in a gap, one that it showed twice is in a fold. Which local times match is said beside each
rule in Python, apart from the parser. `make test` takes a seeded sample, `make test-long` all of them.
"""

from __future__ import annotations

import random
from calendar import monthrange
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import takewhile
from typing import NamedTuple

import pytest

from detent.when.dst import FOLDS, GAPS
from detent.when.rule import cron_rule, fires
from detent.when.zone import zone, zone_names

MINUTE, STRIDE = timedelta(minutes=1), timedelta(days=5)
AROUND = timedelta(hours=13)
FIRST, LAST = datetime(2024, 1, 1, tzinfo=UTC), datetime(2038, 1, 1, tzinfo=UTC)


class Change(NamedTuple):
    zone: str
    at: datetime


class Pattern(NamedTuple):
    text: str
    matches: Callable[[datetime], bool]

    @property
    def follows_elapsed_time(self) -> bool:
        minute, hour = self.text.split()[:2]
        return minute.startswith("*") or hour.startswith("*")


TIMES: dict[str, Callable[[datetime], bool]] = {
    "0 0": lambda at: (at.hour, at.minute) == (0, 0),
    "30 0": lambda at: (at.hour, at.minute) == (0, 30),
    "30 2": lambda at: (at.hour, at.minute) == (2, 30),
    "0,15,45 1-3": lambda at: at.hour in (1, 2, 3) and at.minute in (0, 15, 45),
    "10/25 22-2": lambda at: at.hour in (22, 23, 0, 1, 2) and at.minute in (10, 35),
    "*/15 *": lambda at: at.minute % 15 == 0,
    "30 *": lambda at: at.minute == 30,
    "*/20 2": lambda at: at.hour == 2 and at.minute % 20 == 0,
}
DAYS: dict[str, Callable[[datetime], bool]] = {
    "* * *": lambda _: True,
    "*/2 * *": lambda at: at.day % 2 == 1,
    "* * sun#1,sun#2,sunL": lambda at: (
        at.weekday() == 6 and (at.day <= 14 or at.day > monthrange(at.year, at.month)[1] - 7)
    ),
    "L,L-1 * *": lambda at: at.day >= monthrange(at.year, at.month)[1] - 1,
    "1 * sat-mon": lambda at: at.day == 1 or at.weekday() in (5, 6, 0),
}


def pattern(times: str, days: str) -> Pattern:
    return Pattern(f"{times} {days}", lambda at: TIMES[times](at) and DAYS[days](at))


PATTERNS = [pattern(times, days) for times in TIMES for days in DAYS]


@cache
def changes() -> list[Change]:
    """Found by asking the clock every five days, which none changes twice within; names with the same clock are asked once."""
    found: dict[tuple[tuple[datetime, timedelta | None], ...], str] = {}
    for name in sorted(zone_names()):
        found.setdefault(tuple(changes_of(name)), name)
    return [Change(name, at) for row, name in found.items() for at, _ in row]


def changes_of(name: str) -> Iterator[tuple[datetime, timedelta | None]]:
    tz = zone(name)
    at, offset = FIRST, FIRST.astimezone(tz).utcoffset()
    while at < LAST:
        following = at + STRIDE
        after = following.astimezone(tz).utcoffset()
        if after != offset:
            low, high = at, following
            while high - low > MINUTE:
                middle = low + (high - low) // MINUTE // 2 * MINUTE
                if middle.astimezone(tz).utcoffset() == offset:
                    low = middle
                else:
                    high = middle
            yield high, after
        at, offset = following, after


class Clock:
    """What the clock of a zone showed, minute by minute."""

    def __init__(self, change: Change) -> None:
        self.start, self.end = change.at - AROUND, change.at + AROUND
        tz = zone(change.zone)
        self.shown: list[tuple[datetime, datetime]] = []  # local time, instant
        self.when: dict[datetime, list[datetime]] = {}
        at = self.start
        while at < self.end:
            local = at.astimezone(tz).replace(tzinfo=None)
            self.shown.append((local, at))
            self.when.setdefault(local, []).append(at)
            at += MINUTE
        self.lost = self._lost()

    def _lost(self) -> list[tuple[datetime, datetime]]:
        """The local times that were never shown, with the instant at which the clock had passed them."""
        lost = []
        for (before, _), (after, at) in zip(self.shown, self.shown[1:], strict=False):
            local = before + MINUTE
            while local < after:
                lost.append((local, at))
                local += MINUTE
        return lost

    def expected(self, one: Pattern) -> dict[tuple[str, str], list[datetime]]:
        """By policy, gap and fold."""
        if one.follows_elapsed_time:
            every = [at for local, at in self.shown if one.matches(local)]
            return {(gap, fold): every for gap in GAPS for fold in FOLDS}
        matched = [instants for local, instants in self.when.items() if one.matches(local)]
        lost = [at for local, at in self.lost if one.matches(local)]
        taken = {
            "first": {instants[0] for instants in matched},
            "second": {instants[-1] for instants in matched},
            "both": {at for instants in matched for at in instants},
        }
        ends = {"next_valid": set(lost), "skip": set()}
        return {(gap, fold): sorted(taken[fold] | ends[gap]) for gap in GAPS for fold in FOLDS}


def mismatches(change: Change, patterns: list[Pattern]) -> list[str]:
    clock = Clock(change)
    wrong = []
    for one in patterns:
        for (gap, fold), expected in clock.expected(one).items():
            rule = cron_rule(one.text, change.zone, gap, fold)
            before = clock.start - timedelta(microseconds=1)
            if list(takewhile(lambda at: at < clock.end, fires(rule, before))) != expected:
                wrong.append(f"{one.text!r} {gap} {fold} {change.zone} {change.at:%Y-%m-%dT%H:%M}")
    return wrong


def test_a_sample_of_changes_is_followed_exactly() -> None:
    chosen = random.Random(5)
    sample = chosen.sample(changes(), 30)
    sample += [change for change in changes() if change.zone == "Australia/Lord_Howe"][:2]
    assert [line for change in sample for line in mismatches(change, chosen.sample(PATTERNS, 8))] == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_change_is_followed_exactly() -> None:
    assert len(PATTERNS) == 40
    assert len(changes()) > 800
    assert [line for change in changes() for line in mismatches(change, PATTERNS)] == []
