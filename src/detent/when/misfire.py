"""Misfires: what to do about instants that passed while nobody was looking.

The policy here is `latest`: of all the instants in [due, now] the last one fires, late, and the ones
before it are one skipped range of the ledger. A one-time job has one instant and so fires late rather than
never. The work does not grow with the length of the outage.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from detent.when.rule import Rule, count_fires, last_fire, next_fire

_INSTANT_BEFORE = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The decision: what fires, which range is skipped (both ends are instants), and what comes next."""

    fire_at: datetime | None
    skipped_from: datetime | None
    skipped_through: datetime | None
    skipped_count: int
    next_at: datetime | None


def catch_up(rule: Rule, due: datetime, now: datetime) -> CatchUp:
    """Decide about every instant in [due, now].

    `due` is what the timer says and counts as an instant, whatever the rule says about it.
    """
    if due > now:
        return CatchUp(None, None, None, 0, due)
    next_at = next_fire(rule, now)
    latest = last_fire(rule, due, now)
    if latest is None:
        return CatchUp(due, None, None, 0, next_at)
    before = last_fire(rule, due, latest - _INSTANT_BEFORE)
    return CatchUp(
        fire_at=latest,
        skipped_from=due,
        skipped_through=due if before is None else before,
        skipped_count=count_fires(rule, due, latest),
        next_at=next_at,
    )
