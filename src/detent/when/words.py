"""A rule in one plain English sentence, for people: previews, lists, the status page.

Rules that name times of the day put the days first: "every weekday at 09:00 Europe/Berlin". Rules that
repeat within the hour put that first: "every 5 minutes of hours 9 to 17, every weekday, Europe/Berlin time".
The sentence has no full stop, is the same on every call, and leaves out the daylight saving policy. Which
words a cron expression needs is decided in `detent.when.phrases`.
"""

from __future__ import annotations

from detent.when.instant import format_instant
from detent.when.phrases import joined, of_cron
from detent.when.rule import Bounded, Cron, Every, Never, Once, Rule

_UNITS = (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60))


def in_words(rule: Rule) -> str:
    match rule:
        case Once():
            return f"once at {format_instant(rule.at)}"
        case Every():
            return f"every {_duration(rule.seconds)}"
        case Cron():
            return of_cron(rule.expression, rule.timezone)
        case Bounded():
            start = "" if rule.start_at is None else f" from {format_instant(rule.start_at)}"
            end = "" if rule.end_at is None else f" until {format_instant(rule.end_at)}"
            return f"{in_words(rule.rule)}{start}{end}"
        case Never():
            return "only when run by hand"


def _duration(seconds: float) -> str:
    whole, fraction = divmod(round(seconds * 1_000_000), 1_000_000)
    for unit, size in _UNITS:
        if not fraction and whole % size == 0:
            count = whole // size
            return unit if count == 1 else f"{count} {unit}s"
    if fraction:
        return f"{whole}.{fraction:06d}".rstrip("0") + " seconds"
    parts = []
    for unit, size in (*_UNITS[1:], ("second", 1)):
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return "second" if parts == ["1 second"] else joined(parts)
