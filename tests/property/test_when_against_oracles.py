"""The evaluator against slower and simpler ones: a scan of every minute, and two public libraries.

The minute scan knows nothing of parsing or of stretches. It is given the fields as sets, walks every minute,
and asks `zoneinfo` about each, around moments at which clocks changed.

The libraries are asked only what they read as we do: they have no ranges that wrap, both read a range from a
value to itself as more than that value, and they disagree about steps that begin at a weekday.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detent.when.rule import cron_rule, fires

MINUTE = timedelta(minutes=1)
CHANGES = [
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("America/New_York", "2025-03-09T07:00"),
    ("America/New_York", "2025-11-02T06:00"),
    ("Australia/Lord_Howe", "2025-04-05T15:00"),
    ("Australia/Lord_Howe", "2025-10-04T15:30"),
    ("Pacific/Apia", "2011-12-30T10:00"),
    ("Asia/Beirut", "2025-03-29T22:00"),
    ("America/Havana", "2025-11-02T05:00"),
    ("America/Sao_Paulo", "2018-02-18T02:00"),
    ("Pacific/Chatham", "2025-09-27T14:00"),
    ("Antarctica/Troll", "2025-10-26T01:00"),
    ("Africa/Casablanca", "2025-02-23T02:00"),
    ("Asia/Pyongyang", "2018-05-04T15:00"),
    ("Europe/Moscow", "2014-10-25T22:00"),
    ("Asia/Kathmandu", "1985-12-31T18:30"),
    ("UTC", "2024-02-29T00:00"),
]


class Field(NamedTuple):
    text: str
    values: frozenset[int]


@st.composite
def fields(draw: st.DrawFn, low: int, high: int, plain: bool = False) -> Field:
    """A field as text and, computed apart from the parser, as the set of what it matches."""
    size = high - low + 1
    texts, values = [], set()
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(low, high - 1 if plain else high))
        length = draw(st.integers(2, high - first + 1) if plain else st.integers(1, size))
        step = draw(st.integers(1, size))
        last = low + (first - low + length - 1) % size
        match draw(st.sampled_from(["value", "value", "range", "stepped", "onward", "star"])):
            case "range":
                texts.append(f"{first}-{last}")
                values.update(low + (first - low + i) % size for i in range(length))
            case "stepped":
                texts.append(f"{first}-{last}/{step}")
                values.update(low + (first - low + i) % size for i in range(0, length, step))
            case "onward" if high != 6:
                texts.append(f"{first}/{step}")
                values.update(range(first, high + 1, step))
            case "star":
                texts.append(f"*/{step}")
                values.update(range(low, high + 1, step))
            case _:
                texts.append(f"{first}")
                values.add(first)
    return Field(",".join(texts), frozenset(values))


def whole(low: int, high: int) -> st.SearchStrategy[Field]:
    return st.just(Field("*", frozenset(range(low, high + 1))))


class Expression(NamedTuple):
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        return " ".join(field.text for field in self)

    def matches(self, local: datetime) -> bool:
        if local.minute not in self.minute.values or local.hour not in self.hour.values:
            return False
        if local.month not in self.month.values:
            return False
        by_day, by_weekday = local.day in self.day.values, local.isoweekday() % 7 in self.weekday.values
        if self.day.text.startswith("*") or self.weekday.text.startswith("*"):
            return by_day and by_weekday
        return by_day or by_weekday


def expressions(plain: bool = False) -> st.SearchStrategy[Expression]:
    return st.builds(
        Expression,
        whole(0, 59) | fields(0, 59, plain) | fields(0, 59, plain),
        whole(0, 23) | fields(0, 23, plain) | fields(0, 23, plain),
        whole(1, 31) | whole(1, 31) | fields(1, 31, plain),
        whole(1, 12),
        whole(0, 6) | whole(0, 6) | fields(0, 6, plain),
    )


def scanned(
    expression: Expression, zone: ZoneInfo, gap: str, fold: str, start: datetime, end: datetime
) -> list[datetime]:
    """Every instant in [start, end), found one minute at a time."""
    found: set[datetime] = set()
    if expression.minute.text.startswith("*") or expression.hour.text.startswith("*"):
        at = start
        while at < end:
            if expression.matches(at.astimezone(zone)):
                found.add(at)
            at += MINUTE
        return sorted(found)
    local = (start - timedelta(days=2)).replace(tzinfo=None)  # wide enough for any offset and for Apia's day
    while local < end.replace(tzinfo=None) + timedelta(days=2):
        if expression.matches(local):
            found.update(happenings(local, zone, gap, fold))
        local += MINUTE
    return sorted(at for at in found if start <= at < end)


def happenings(local: datetime, zone: ZoneInfo, gap: str, fold: str) -> list[datetime]:
    """The instants at which a wall clock shows this, or what happens instead."""
    tries = [local.replace(tzinfo=zone, fold=i).astimezone(UTC) for i in (0, 1)]
    real = [at for at in tries if at.astimezone(zone).replace(tzinfo=None) == local]
    if not real:
        if gap == "skip":
            return []
        at = min(tries)
        while at.astimezone(zone).replace(tzinfo=None) < local:
            at += MINUTE
        return [at]
    return {"first": [min(real)], "second": [max(real)], "both": real}[fold]


@settings(max_examples=220, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    expression=expressions(),
    change=st.sampled_from(CHANGES),
    gap=st.sampled_from(["next_valid", "skip"]),
    fold=st.sampled_from(["first", "second", "both"]),
    lead=st.integers(0, 30 * 60),
)
def test_fires_are_those_of_a_scan_of_every_minute(
    expression: Expression, change: tuple[str, str], gap: str, fold: str, lead: int
) -> None:
    name, at = change
    start = datetime.fromisoformat(at).replace(tzinfo=UTC) - lead * MINUTE
    end = start + timedelta(hours=36)
    expected = scanned(expression, ZoneInfo(name), gap, fold, start, end)
    rule = cron_rule(expression.text, name, gap, fold)
    found = list(islice(fires(rule, start - timedelta(microseconds=1)), len(expected) + 1))
    assert [at for at in found if at < end] == expected


STARTS = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))  # noqa: DTZ001


@st.composite
def sparse(draw: st.DrawFn) -> Expression:
    """Any months too, but with a day that every month has: an impossible date is refused, not compared."""
    expression = draw(expressions(plain=True))
    month = draw(whole(1, 12) | fields(1, 12, plain=True))
    day = draw(whole(1, 31) | fields(1, 28, plain=True))
    return expression._replace(month=month, day=day)


@settings(max_examples=250, deadline=None)
@given(expression=sparse(), start=STARTS)
def test_fires_agree_with_cronsim(expression: Expression, start: datetime) -> None:
    found = list(islice(fires(cron_rule(expression.text), start), 10))
    assert found == list(islice(CronSim(expression.text, start), 10))


@settings(max_examples=250, deadline=None)
@given(expression=sparse(), start=STARTS)
def test_fires_agree_with_croniter_where_one_day_field_is_a_star(
    expression: Expression, start: datetime
) -> None:
    # With both fields given croniter never asks for both, whatever they begin with.
    expression = expression._replace(weekday=Field("*", frozenset(range(7))))
    found = list(islice(fires(cron_rule(expression.text), start), 10))
    theirs = croniter(expression.text, start, ret_type=datetime)
    assert found == [next(theirs) for _ in range(10)]


@settings(max_examples=150, deadline=None)
@given(
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    change=st.sampled_from([c for c in CHANGES if c[0] in {"Europe/Berlin", "America/New_York"}]),
    lead=st.integers(1, 3 * 1440),
)
def test_daily_times_agree_with_cronsim_where_clocks_change(
    minute: int, hour: int, change: tuple[str, str], lead: int
) -> None:
    zone = ZoneInfo(change[0])
    start = datetime.fromisoformat(change[1]).replace(tzinfo=UTC) - lead * MINUTE
    text = f"{minute} {hour} * * *"
    found = list(islice(fires(cron_rule(text, change[0]), start), 5))
    # In UTC: two zones' instants within a fold never compare as equal.
    theirs = islice(CronSim(text, start.astimezone(zone)), 5)
    assert found == [at.astimezone(UTC) for at in theirs]
