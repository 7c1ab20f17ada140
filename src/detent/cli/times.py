"""Instants and durations as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    return datetime.now(UTC)


def local(at: datetime | None) -> str:
    """In this machine's zone, which is named; milliseconds only where there are any."""
    if at is None:
        return "–"
    here = at.astimezone()
    fraction = f".{here.microsecond // 1000:03d}" if here.microsecond >= 1000 else ""
    return f"{here:%Y-%m-%d %H:%M:%S}{fraction} {here:%Z}"


def relative(at: datetime | None, then: datetime | None = None) -> str:
    """`in 42 s`, `3 min ago`."""
    if at is None:
        return ""
    seconds = (at - (then or now())).total_seconds()
    if abs(seconds) < 0.5:
        return "now"
    size = span(abs(seconds))
    return f"in {size}" if seconds > 0 else f"{size} ago"


def both(at: datetime | None) -> str:
    return f"{local(at)}  ({relative(at)})" if at else "–"


def span(seconds: float) -> str:
    """One or two units are enough for a person."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.0f} s"
    for size, unit, smaller, below in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            whole, rest = divmod(round(seconds), size)
            rest //= smaller
            return f"{whole} {unit} {rest} {below}" if rest and whole < 10 else f"{whole} {unit}"
    return f"{seconds:.0f} s"


def milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return (
        f"{value:.0f} ms"
        if value < 1000
        else f"{value / 1000:.2f} s"
        if value < 60_000
        else span(value / 1000)
    )
