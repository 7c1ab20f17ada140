"""The words for one cron expression: which days, which times, or how often.

Times of the day are named while there are few of them. Otherwise the finest field that repeats says how often
("every 5 minutes", "at seconds 10 to 15"), and the coarser ones say within what ("of hours 9 to 17").
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from detent.when.cron import Expression
from detent.when.days import LastDay, LastWeekday, NearestWeekday, NthWeekday, Special

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_ORDINALS = ("", "first", "second", "third", "fourth", "fifth")
_MOST_TIMES = 6  # more clock times than these are said as minutes of hours
_MOST_YEARS = 6  # more years than these, evenly apart, are said by their distance
_RUN = 3  # so many in a row are said as a range


def of_cron(expression: Expression, timezone: str) -> str:
    days, repetition = _days_and_years(expression), _repetition(expression)
    if repetition is None:
        return f"{days or 'every day'} at {_times(expression)} {timezone}"
    round_the_clock = not days and len(expression.hour.values) == 24
    clock = "" if round_the_clock and timezone == "UTC" else f"{timezone} time"
    return ", ".join(part for part in (repetition, days, clock) if part)


def joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _repetition(expression: Expression) -> str | None:
    """How often, for rules that repeat within the hour, or once an hour round the clock."""
    seconds = expression.second.values
    if seconds == (0,):
        return _repetition_of_minutes(expression)
    if _few_times(expression):
        return None
    minutes = expression.minute.values
    every_minute, every_hour = len(minutes) == 60, len(expression.hour.values) == 24
    step = _step(seconds)
    if step is None:
        how_often = f"at {_numbered('second', seconds)}"
    else:
        how_often = "every second" if step == 1 else f"every {step} seconds"
        if every_minute and every_hour:
            return how_often
    of_minutes = "every minute" if every_minute else _numbered("minute", minutes)
    if every_hour:
        return f"{how_often} of {of_minutes}" + ("" if every_minute else " of every hour")
    return f"{how_often} of {of_minutes} of {_numbered('hour', expression.hour.values)}"


def _repetition_of_minutes(expression: Expression) -> str | None:
    hours, minutes = expression.hour.values, expression.minute.values
    all_hours = len(hours) == 24
    during = "" if all_hours else f" of {_numbered('hour', hours)}"
    if len(minutes) == 60:
        return f"every minute{during}"
    step = _step(minutes)
    if step is not None and (all_hours or not _few_times(expression)):
        return f"every {step} minutes{during}"
    if not all_hours:
        return None
    return "every hour" if minutes == (0,) else f"every hour at {_numbered('minute', minutes)}"


def _step(values: Sequence[int]) -> int | None:
    """The distance, if they are spread evenly over the sixty from 0 on."""
    if len(values) < 2:
        return None
    step = values[1] - values[0]
    return step if 60 % step == 0 and tuple(values) == tuple(range(0, 60, step)) else None


def _few_times(expression: Expression) -> bool:
    hours, minutes, seconds = expression.hour.values, expression.minute.values, expression.second.values
    return len(hours) * len(minutes) * len(seconds) <= _MOST_TIMES


def _times(expression: Expression) -> str:
    hours, minutes, seconds = expression.hour.values, expression.minute.values, expression.second.values
    if not _few_times(expression) and len(minutes) > 1:
        return f"{_numbered('minute', minutes)} of {_numbered('hour', hours)}"
    ends = [f":{second:02d}" for second in seconds] if seconds != (0,) else [""]
    return joined([f"{hour:02d}:{minute:02d}{end}" for hour in hours for minute in minutes for end in ends])


def _days_and_years(expression: Expression) -> str:
    days = _days(expression)
    if expression.any_year:
        return days
    return f"{days or 'every day'} {_years(expression.year.values)}"


def _years(values: Sequence[int]) -> str:
    steps = {later - earlier for earlier, later in pairwise(values)}
    if len(values) > _MOST_YEARS and len(steps) == 1 and (step := steps.pop()) > 1:
        return f"every {step} years from {values[0]} to {values[-1]}"
    return f"in {joined(_runs(values))}"


def _days(expression: Expression) -> str:
    """Which days, or nothing for all of them."""
    any_day, any_weekday = len(expression.day.values) == 31, len(expression.weekday.values) == 7
    months = "" if len(expression.month.values) == 12 else _months(expression.month.values)
    in_months = f" in {months}" if months else ""
    either_is_any = not expression.both_days and (any_day or any_weekday)
    if either_is_any or (any_day and any_weekday):
        return f"every day{in_months}" if months else ""
    if any_day:
        return _weekdays(expression, months)
    of_month = f"{_days_of_month(expression)} of {months or 'the month'}"
    if any_weekday:
        return f"on {of_month}"
    weekdays = _weekdays(expression, "" if expression.both_days else months)
    if expression.both_days:
        return f"{weekdays} that falls on {of_month}"
    return f"on {of_month} and {weekdays}"


def _days_of_month(expression: Expression) -> str:
    plain = [_numbered("day", expression.day.values)] if expression.day.values else []
    return joined([*plain, *map(_special_day, expression.day.specials)])


def _special_day(special: Special) -> str:
    match special:
        case LastDay(0, to_weekday):
            return "the last weekday" if to_weekday else "the last day"
        case LastDay(before, to_weekday):
            day = f"{before} day{'s' if before > 1 else ''} before the last day"
            return f"the weekday nearest to {day}" if to_weekday else day
        case NearestWeekday(day):
            return f"the weekday nearest to day {day}"
        case _:
            raise AssertionError(f"{special} is none of a day of the month")


def _weekdays(expression: Expression, months: str) -> str:
    """With the months in which; a special one is always of something."""
    plain, specials = expression.weekday.values, expression.weekday.specials
    of_month = months or "the month"
    every = f"every {_plain_weekdays(plain)}" if plain else ""
    if not specials:
        return f"{every} in {months}" if months else every
    special = f"{joined(list(map(_special_weekday, specials)))} of {of_month}"
    if not plain:
        return f"on {special}"
    return f"{every}{f' in {months}' if months else ''} and on {special}"


def _plain_weekdays(values: Sequence[int]) -> str:
    if tuple(values) == (1, 2, 3, 4, 5):
        return "weekday"
    monday_first = sorted(values, key=lambda value: (value - 1) % 7)
    return joined([_WEEKDAYS[value] for value in monday_first])


def _special_weekday(special: Special) -> str:
    match special:
        case LastWeekday(weekday):
            return f"the last {_WEEKDAYS[weekday]}"
        case NthWeekday(weekday, nth):
            return f"the {_ORDINALS[nth]} {_WEEKDAYS[weekday]}"
        case _:
            raise AssertionError(f"{special} is none of a day of the week")


def _months(values: Sequence[int]) -> str:
    return joined([_MONTHS[value - 1] for value in values])


def _numbered(noun: str, values: Sequence[int]) -> str:
    plural = "s" if len(values) > 1 else ""
    return f"{noun}{plural} {joined(_runs(values))}"


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
