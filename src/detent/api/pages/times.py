"""Instants and spans of time as people say them. The page's own `now` is an argument everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from detent.api.pages.markup import Markup, el, join
from detent.when.instant import format_instant

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def span(length: timedelta) -> str:
    """`12 ms`, `1.2 s`, `34 s`, `3 min 4 s`, `2 h 5 min`, `3 d 4 h`."""
    seconds = length.total_seconds()
    if seconds < 0:
        return f"−{span(-length)}"
    if seconds < 0.9995:
        return f"{round(seconds * 1000)} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, part, part_size in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // part_size
            return f"{whole // size:,} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{whole} s"


def relative(at: datetime, now: datetime) -> str:
    """`in 34 s`, `now`, `5 min ago`."""
    ahead = at - now
    if abs(ahead) < timedelta(seconds=1):
        return "now"
    said = _roughly(abs(ahead))
    return f"in {said}" if ahead > timedelta(0) else f"{said} ago"


def coming(at: datetime, now: datetime) -> str:
    """Like `relative`, for what should not lie in the past."""
    behind = now - at
    return relative(at, now) if behind < timedelta(seconds=2) else f"overdue by {_roughly(behind)}"


def clock(at: datetime, now: datetime, zone: tzinfo = UTC) -> Markup:
    """The instant on the zone's wall clock, with its day if that is not today's, and in full when asked."""
    return _time(at, _wall(at, now, zone))


def ago(at: datetime, now: datetime) -> Markup:
    return _time(at, relative(at, now))


def both(at: datetime | None, now: datetime) -> Markup | None:
    """For a fact: the full instant, and how far from now it is."""
    if at is None:
        return None
    shown = at.astimezone(UTC)
    whole = f"{shown:%Y-%m-%d %H:%M:%S}.{shown.microsecond // 1000:03d} UTC"
    return join(_time(at, whole), " ", el("span", f"({relative(at, now)})", class_="quiet"))


def _roughly(length: timedelta) -> str:
    """In whole seconds at the finest, and in one unit where there are ten of it or more."""
    whole = timedelta(seconds=round(length.total_seconds()))
    if whole < timedelta(minutes=1):
        return f"{whole.seconds} s"
    number, unit, *_ = said = span(whole).split()
    return f"{number} {unit}" if len(number) > 1 else " ".join(said)


def _wall(at: datetime, now: datetime, zone: tzinfo) -> str:
    local, today = at.astimezone(zone), now.astimezone(zone).date()
    if local.date() == today:
        return f"{local:%H:%M:%S}"
    year = "" if local.year == today.year else f" {local.year}"
    return f"{_DAYS[local.weekday()]} {local.day} {_MONTHS[local.month - 1]}{year} {local:%H:%M:%S}"


def _time(at: datetime, shown: str) -> Markup:
    return el("time", shown, datetime=format_instant(at), title=format_instant(at))
