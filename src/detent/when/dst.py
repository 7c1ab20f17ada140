"""Daylight saving: from local times that match to instants that happen.

Within one stretch of constant offset there is nothing to decide. At its two ends there is:

    gap    the wall clock jumped over some local times. With `next_valid` those of them that match collapse
           into one instant, the first one after the gap; with `skip` they do not happen.
    fold   some local times come twice: at the end of the stretch before the change and at the beginning of
           the one after it. `first` drops the second coming, `second` the first, `both` neither.

Rules that follow elapsed time (their minute or hour begins with `*`) take every instant whose local time
matches: nothing in a gap, both in a fold, whatever the policy says. Because every stretch is cut to a `_Span`
once, walking, counting and looking back can not come to different answers.

All times here are whole seconds since 1970, UTC or local.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from detent.when import wall
from detent.when.cron import Expression
from detent.when.zone import END_YEAR, Stretch, stretches, year_start

Gap = Literal["next_valid", "skip"]
Fold = Literal["first", "second", "both"]
GAPS: tuple[Gap, ...] = ("next_valid", "skip")
FOLDS: tuple[Fold, ...] = ("first", "second", "both")

THE_END = year_start(END_YEAR)
_MARGIN = 2 * 86_400  # more than any zone is off, and than any has skipped


class _Span(NamedTuple):
    """A stretch as one rule sees it."""

    offset: int
    low: int  # local, the matches in [low, high) happen
    high: int
    collapsed: (
        int | None
    )  # local, happens in place of matches in the gap before it, and is not in [low, high)


def instants(
    expression: Expression, timezone: str, gap: Gap, fold: Fold, start: int, end: int = THE_END
) -> Iterator[int]:
    """The instants in [start, end), in order."""
    for span in _spans(expression, timezone, gap, fold, start, end):
        if span.collapsed is not None:
            yield span.collapsed - span.offset
        for local in wall.matches(expression, span.low, span.high):
            yield local - span.offset


def count_instants(expression: Expression, timezone: str, gap: Gap, fold: Fold, start: int, end: int) -> int:
    total = 0
    for span in _spans(expression, timezone, gap, fold, start, end):
        total += wall.count_matches(expression, span.low, span.high) + (span.collapsed is not None)
    return total


def last_instant(
    expression: Expression, timezone: str, gap: Gap, fold: Fold, start: int, end: int
) -> int | None:
    """The last instant in [start, end)."""
    for span in reversed(list(_spans(expression, timezone, gap, fold, start, end))):
        local = wall.last_match(expression, span.low, span.high)
        if local is None:
            local = span.collapsed
        if local is not None:
            return local - span.offset
    return None


def _spans(
    expression: Expression, timezone: str, gap: Gap, fold: Fold, start: int, end: int
) -> Iterator[_Span]:
    elapsed = expression.follows_elapsed_time
    start, end = _in_years(expression, start, end)
    for stretch in _touched(expression, timezone, start, end):
        offset = stretch.offset
        low = max(start, stretch.start) + offset
        high = min(end, stretch.end) + offset
        if elapsed:
            yield _Span(offset, low, high, None)
            continue
        if fold == "first":
            low = max(low, stretch.start + stretch.before)
        elif fold == "second":
            high = min(high, stretch.end + stretch.after)
        collapsed = None
        if gap == "next_valid" and stretch.before < offset and stretch.start >= start:
            collapsed = _collapsed(expression, stretch.start + stretch.before, stretch.start + offset)
        yield _Span(offset, low, high, collapsed)


def _touched(expression: Expression, timezone: str, start: int, end: int) -> Iterator[Stretch]:
    """The stretches in which something may match: a rule of every leap day skips four years at once."""
    if expression.any_year and len(expression.month.values) == 12:
        yield from stretches(timezone, start, end)
        return
    nothing_before = start
    for stretch in stretches(timezone, start, end):
        if stretch.end <= nothing_before:
            continue
        day = wall.first_day(expression, max(stretch.start, start) - _MARGIN, end + _MARGIN)
        if day is None:
            return
        nothing_before = day * wall.DAY - _MARGIN
        if stretch.end > nothing_before:
            yield stretch


def _in_years(expression: Expression, start: int, end: int) -> tuple[int, int]:
    """The part of [start, end) that the years of the expression can touch, in any zone."""
    if expression.any_year:
        return start, end
    first, last = expression.year.values[0], expression.year.values[-1]
    return max(start, year_start(first) - _MARGIN), min(end, year_start(last + 1) + _MARGIN)


def _collapsed(expression: Expression, vanished: int, resumed: int) -> int | None:
    """The end of the gap, if something in it matched and nothing happens there anyway."""
    if wall.first_match(expression, vanished, resumed) is None:
        return None
    if wall.first_match(expression, resumed, resumed + 1) is not None:
        return None
    return resumed
