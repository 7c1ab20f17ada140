"""A rule in one plain English sentence, for people: previews, lists, the status page.

Rules that name times of the day put the days first: "every weekday at 09:00 Europe/Berlin". Rules that
repeat within the hour put that first: "every 5 minutes of hours 9 to 17, every weekday, Europe/Berlin time".
The sentence has no full stop, is the same on every call, and leaves out the daylight saving policy.
"""

from __future__ import annotations

from collections.abc import Sequence

from detent.when.cron import Expression
from detent.when.instant import format_instant
from detent.when.rule import Cron, Every, Never, Once, Rule

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_UNITS = (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60))
_MOST_TIMES = 6  # more clock times than these are said as minutes of hours
_RUN = 3  # so many in a row are said as a range


def in_words(rule: Rule) -> str:
    match rule:
        case Once():
            return f"once at {format_instant(rule.at)}"
        case Every():
            return f"every {_duration(rule.seconds)}"
        case Cron():
            return _cron(rule.expression, rule.timezone)
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
    return "second" if parts == ["1 second"] else _joined(parts)


def _cron(expression: Expression, timezone: str) -> str:
    days, repetition = _days(expression), _repetition(expression)
    if repetition is None:
        return f"{days or 'every day'} at {_times(expression)} {timezone}"
    round_the_clock = not days and len(expression.hour.values) == 24
    clock = "" if round_the_clock and timezone == "UTC" else f"{timezone} time"
    return ", ".join(part for part in (repetition, days, clock) if part)


def _repetition(expression: Expression) -> str | None:
    """How often, for rules that repeat within the hour, or once an hour round the clock."""
    hours, minutes = expression.hour.values, expression.minute.values
    all_hours = len(hours) == 24
    during = "" if all_hours else f" of {_numbered('hour', hours)}"
    if len(minutes) == 60:
        return f"every minute{during}"
    step = minutes[1] - minutes[0] if len(minutes) > 1 else 60
    even = 60 % step == 0 and minutes == tuple(range(0, 60, step))
    if even and step < 60 and (all_hours or not _few_times(expression)):
        return f"every {step} minutes{during}"
    if not all_hours:
        return None
    return "every hour" if even else f"every hour at {_numbered('minute', minutes)}"


def _few_times(expression: Expression) -> bool:
    return len(expression.hour.values) * len(expression.minute.values) <= _MOST_TIMES


def _times(expression: Expression) -> str:
    hours, minutes = expression.hour.values, expression.minute.values
    if _few_times(expression) or len(minutes) == 1:
        return _joined([f"{hour:02d}:{minute:02d}" for hour in hours for minute in minutes])
    return f"{_numbered('minute', minutes)} of {_numbered('hour', hours)}"


def _days(expression: Expression) -> str:
    """Which days, or nothing for all of them."""
    day, weekday = expression.day.values, expression.weekday.values
    any_day, any_weekday = len(day) == 31, len(weekday) == 7
    months = "" if len(expression.month.values) == 12 else _months(expression.month.values)
    in_months = f" in {months}" if months else ""
    either_is_any = not expression.both_days and (any_day or any_weekday)
    if either_is_any or (any_day and any_weekday):
        return f"every day{in_months}" if months else ""
    if any_day:
        return f"every {_weekdays(weekday)}{in_months}"
    of_month = f"{_numbered('day', day)} of {months or 'the month'}"
    if any_weekday:
        return f"on {of_month}"
    if expression.both_days:
        return f"every {_weekdays(weekday)} that falls on {of_month}"
    return f"on {of_month} and every {_weekdays(weekday)}{in_months}"


def _weekdays(values: Sequence[int]) -> str:
    if tuple(values) == (1, 2, 3, 4, 5):
        return "weekday"
    monday_first = sorted(values, key=lambda value: (value - 1) % 7)
    return _joined([_WEEKDAYS[value] for value in monday_first])


def _months(values: Sequence[int]) -> str:
    return _joined([_MONTHS[value - 1] for value in values])


def _numbered(noun: str, values: Sequence[int]) -> str:
    runs = _runs(values)
    plural = "s" if len(values) > 1 else ""
    return f"{noun}{plural} {_joined(runs)}"


def _runs(values: Sequence[int]) -> list[str]:
    """1, 2, 3, 7 as "1 to 3" and "7"."""
    found: list[list[int]] = []
    for value in values:
        if found and value == found[-1][-1] + 1:
            found[-1].append(value)
        else:
            found.append([value])
    words: list[str] = []
    for run in found:
        words.extend([f"{run[0]} to {run[-1]}"] if len(run) >= _RUN else map(str, run))
    return words


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
