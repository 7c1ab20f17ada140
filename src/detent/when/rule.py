"""Rules, and the one function that answers "when".

A rule is a frozen value. `fires(rule, after)` yields its instants strictly after `after`, in order, as aware
UTC datetimes; the engine, the preview and the tests all ask it. Nothing here knows what time it is.

`last_fire` and `count_fires` answer the two questions of a catch-up, over (after, through], without walking
through all the instants in between; they agree with `fires` by construction (see `dst`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import takewhile

from detent.model.errors import InvalidInput
from detent.when.cron import Expression, parse_cron
from detent.when.dst import FOLDS, GAPS, Fold, Gap, count_instants, instants, last_instant
from detent.when.every import SHORTEST_EVERY_SECONDS, multiples, step_of
from detent.when.hashed import PREVIEW_SEED
from detent.when.zone import zone

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Once:
    """One instant."""

    at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", _utc(self.at))


@dataclass(frozen=True, slots=True)
class Every:
    """anchor + k · seconds, k ≥ 1."""

    seconds: float
    anchor: datetime

    def __post_init__(self) -> None:
        if not self.seconds >= SHORTEST_EVERY_SECONDS:
            raise ValueError("a rule fires at most once a second")
        object.__setattr__(self, "anchor", _utc(self.anchor))


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression on the wall clock of a zone. Build it with `cron_rule`, which checks every part."""

    text: str
    expression: Expression = field(compare=False, repr=False)
    timezone: str = "UTC"
    gap: Gap = "next_valid"
    fold: Fold = "first"


@dataclass(frozen=True, slots=True)
class Bounded:
    """The instants of a rule from `start_at` to `end_at`, both of which count."""

    rule: Every | Cron
    start_at: datetime | None = None
    end_at: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("start_at", "end_at"):
            if (bound := getattr(self, name)) is not None:
                object.__setattr__(self, name, _utc(bound))

    def begin(self, after: datetime) -> datetime:
        """Strictly after which instant those that count begin."""
        return after if self.start_at is None else max(after, self.start_at - _MICROSECOND)

    def finish(self, through: datetime) -> datetime:
        return through if self.end_at is None else min(through, self.end_at)


@dataclass(frozen=True, slots=True)
class Never:
    """No schedule: runs only when asked to."""


Rule = Once | Every | Cron | Bounded | Never


def cron_rule(
    text: str,
    timezone: str = "UTC",
    gap: str = "next_valid",
    fold: str = "first",
    seed: int = PREVIEW_SEED,
) -> Cron:
    """The rule, or InvalidInput that names every field at fault: cron, timezone, dst.gap, dst.fold.

    `seed` stands for the job, see `detent.when.hashed`.
    """
    refusals: list[InvalidInput] = []
    expression = None
    try:
        expression = parse_cron(text, seed)
    except InvalidInput as refusal:
        refusals.append(refusal)
    try:
        zone(timezone)
    except InvalidInput as refusal:
        refusals.append(refusal)
    checked_gap = next((known for known in GAPS if known == gap), None)
    if checked_gap is None:
        refusals.append(InvalidInput.of("dst.gap", f"must be one of {', '.join(GAPS)}"))
    checked_fold = next((known for known in FOLDS if known == fold), None)
    if checked_fold is None:
        refusals.append(InvalidInput.of("dst.fold", f"must be one of {', '.join(FOLDS)}"))
    if len(refusals) == 1:
        raise refusals[0]
    if expression is None or checked_gap is None or checked_fold is None or refusals:
        raise InvalidInput(*(error for refusal in refusals for error in refusal.errors))
    return Cron(expression.text, expression, timezone, checked_gap, checked_fold)


def fires(rule: Rule, after: datetime) -> Iterator[datetime]:
    """The instants of the rule strictly after `after`, in order; ends when there are no more."""
    match rule:
        case Cron():
            start = _next_second(after)
            return (
                _EPOCH + timedelta(seconds=at)
                for at in instants(rule.expression, rule.timezone, rule.gap, rule.fold, start)
            )
        case Every():
            return multiples(rule.anchor, step_of(rule.seconds), after)
        case Bounded():
            found = fires(rule.rule, rule.begin(after))
            end = rule.end_at
            return found if end is None else takewhile(lambda at: at <= end, found)
        case Once():
            return iter((rule.at,) if rule.at > after else ())
        case Never():
            return iter(())


def next_fire(rule: Rule, after: datetime) -> datetime | None:
    return next(fires(rule, after), None)


def last_fire(rule: Rule, after: datetime, through: datetime) -> datetime | None:
    """The last instant in (after, through]."""
    match rule:
        case Cron():
            at = last_instant(
                rule.expression,
                rule.timezone,
                rule.gap,
                rule.fold,
                _next_second(after),
                _next_second(through),
            )
            return None if at is None else _EPOCH + timedelta(seconds=at)
        case Every():
            step = step_of(rule.seconds)
            k = (through - rule.anchor) // step
            if k < 1 or rule.anchor + k * step <= after:
                return None
            return rule.anchor + k * step
        case Bounded():
            return last_fire(rule.rule, rule.begin(after), rule.finish(through))
        case _:
            at_once = next_fire(rule, after)
            return at_once if at_once is not None and at_once <= through else None


def count_fires(rule: Rule, after: datetime, through: datetime) -> int:
    """How many instants lie in (after, through]."""
    match rule:
        case Cron():
            return count_instants(
                rule.expression,
                rule.timezone,
                rule.gap,
                rule.fold,
                _next_second(after),
                _next_second(through),
            )
        case Every():
            step = step_of(rule.seconds)
            return max(0, max(0, (through - rule.anchor) // step) - max(0, (after - rule.anchor) // step))
        case Bounded():
            return count_fires(rule.rule, rule.begin(after), rule.finish(through))
        case _:
            return int(last_fire(rule, after, through) is not None)


class NextFires:
    """Remembers next instants: a million timers with the same rule and instant cost one computation.

    Bounded; the least recently asked is forgotten. A rule that raises is not remembered.
    """

    def __init__(self, capacity: int = 65_536) -> None:
        self._remembered = lru_cache(maxsize=capacity)(next_fire)

    def next_fire(self, rule: Rule, after: datetime) -> datetime | None:
        return self._remembered(rule, after)

    @property
    def computed(self) -> int:
        """How often the answer was not remembered."""
        return self._remembered.cache_info().misses


def _next_second(after: datetime) -> int:
    """The first whole second strictly after: instants of cron are whole seconds."""
    return (after - _EPOCH) // _SECOND + 1


def _utc(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise ValueError("an instant needs a zone")
    return at.astimezone(UTC)
