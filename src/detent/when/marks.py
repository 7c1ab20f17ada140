"""What daylight saving did to the instants of a rule, for people: `detent when` prints it beside them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from detent.when import wall
from detent.when.rule import Bounded, Cron, Rule
from detent.when.zone import Stretch, stretches

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


def mark(rule: Rule, at: datetime) -> str:
    """Why this instant is not like the others: the end of a gap, or one of two in a fold. Usually nothing."""
    rule = rule.rule if isinstance(rule, Bounded) else rule
    if not isinstance(rule, Cron):
        return ""
    second = (at - _EPOCH) // _SECOND
    stretch = next(stretches(rule.timezone, second, second + 1), None)
    if stretch is None:
        return ""
    offset = stretch.offset
    if second < stretch.start + stretch.before - offset:
        return f"second of two, {_back(stretch.start, stretch.before, offset)}"
    if second >= stretch.end - (offset - stretch.after):
        return f"first of two, {_back(stretch.end, offset, stretch.after)}"
    if second == stretch.start and stretch.before < offset and not rule.expression.follows_elapsed_time:
        lost, resumed = _lost(rule, stretch), second + offset
        if lost is not None and wall.first_match(rule.expression, resumed, resumed + 1) is None:
            return f"in place of {_clock(lost)}, {_forward(stretch)}"
    return ""


def skipped(rule: Rule, after: datetime, until: datetime) -> Iterator[tuple[datetime, str]]:
    """The ends of the gaps in (after, until] at which the policy `skip` dropped something, and what."""
    if not isinstance(rule, Cron) or rule.gap != "skip" or rule.expression.follows_elapsed_time:
        return
    start = (after - _EPOCH) // _SECOND + 1
    for stretch in stretches(rule.timezone, start, (until - _EPOCH) // _SECOND + 1):
        if stretch.before < stretch.offset and stretch.start >= start:
            lost = _lost(rule, stretch)
            if lost is not None:
                at = _EPOCH + timedelta(seconds=stretch.start)
                yield at, f"skipped {_clock(lost)}, {_forward(stretch)}"


def _lost(rule: Cron, stretch: Stretch) -> int | None:
    """The first local time that matches in the gap before the stretch."""
    start = stretch.start
    return wall.first_match(rule.expression, start + stretch.before, start + stretch.offset)


def _forward(stretch: Stretch) -> str:
    before, after = stretch.start + stretch.before, stretch.start + stretch.offset
    return f"clocks go from {_clock(before)} to {_clock(after, beside=before)}"


def _back(at: int, before: int, after: int) -> str:
    return f"clocks go from {_clock(at + before)} back to {_clock(at + after, beside=at + before)}"


def _clock(local: int, beside: int | None = None) -> str:
    """The time on the wall; with the day where it is another one than beside it."""
    shown = _EPOCH + timedelta(seconds=local)
    time = f"{shown:%H:%M}" if local % 60 == 0 else f"{shown:%H:%M:%S}"
    return time if beside is None or local // wall.DAY == beside // wall.DAY else f"{shown:%Y-%m-%d} {time}"
