"""What to do about one due timer. Pure.

Many timers have the same terms; what follows from terms alone is worked out once and kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec

from detent.model.ids import day_true, execution_id, filed_day, schedule_key
from detent.model.job import CLASSES, Terms
from detent.store.timers import DueTimer, Firing
from detent.when.cron import has_hash
from detent.when.hashed import PREVIEW_SEED
from detent.when.misfire import catch_up
from detent.when.of import rule_of
from detent.when.rule import NextFires, Once, Rule

_ANY = datetime(1970, 1, 1, tzinfo=UTC)
_decode = msgspec.json.Decoder(Terms).decode


@dataclass(frozen=True, slots=True)
class Plan:
    """What terms mean. A rule that depends on the job, or on when it was set, is not theirs alone."""

    terms: Terms
    rule: Rule | None
    pool: str
    klass: int
    once: bool
    deadline: timedelta | None
    may_be_staged: bool


@lru_cache(maxsize=20_000)
def _plan(text: str) -> Plan:
    terms = _decode(text)
    own = (
        terms.delay is not None
        or terms.every is not None
        or (terms.cron is not None and has_hash(terms.cron))
    )
    return Plan(
        terms,
        # A cron rule without `H` depends neither on the job nor on when it was set: a million jobs share one.
        None if own else rule_of(terms, _ANY),
        terms.pool,
        CLASSES[terms.priority],
        terms.once,
        None if terms.deadline_seconds is None else timedelta(seconds=terms.deadline_seconds),
        may_be_staged(terms),
    )


@lru_cache(maxsize=20_000)
def _rule(text: str, armed_at: datetime, seed: int) -> Rule:
    return rule_of(_plan(text).terms, armed_at, seed)


def rule_for(timer: DueTimer) -> Rule:
    plan = _plan(timer.terms)
    if plan.rule is not None:
        return plan.rule
    if plan.terms.cron is not None:  # with `H`: it depends on the job alone
        return _rule(timer.terms, _ANY, timer.job_id.int)
    return _rule(timer.terms, timer.armed_at, PREVIEW_SEED)


def opens_at(timer: DueTimer) -> datetime | None:
    """Before which instant this one must not be fired, however long the lead; None if the lead alone decides.

    A job has at most one instant that is staged: the next one waits until the one before it has come.
    """
    if not _plan(timer.terms).may_be_staged:
        return timer.due_at
    if timer.decided_through is None:
        return None
    return min(timer.decided_through, timer.due_at)


def may_be_staged(_terms: Terms) -> bool:
    """Whether a fire of this job may be decided ahead of its instant: not where a policy has to look at the
    instant itself, at what runs just then for one. None of today's policies does.
    """
    return True


def decide(timer: DueTimer, now: datetime, epoch: int, memo: NextFires) -> Firing:
    """The one firing of a due timer at `now`: its instant, or the latest of those that passed."""
    plan = _plan(timer.terms)
    rule = rule_for(timer)
    fire_at = timer.due_at
    next_at = None if isinstance(rule, Once) else memo.next_fire(rule, fire_at)
    skipped_through, skipped = None, None
    if next_at is not None and next_at <= now:
        fate = catch_up(rule, fire_at, now)
        fire_at, next_at = fate.fire_at or fire_at, fate.next_at
        skipped_through, skipped = fate.skipped_through, fate.skipped_count or None
    key = schedule_key(timer.generation, fire_at)
    execution = execution_id(day_true(fire_at, now), timer.job_id, "schedule", key)
    return Firing(  # by position: one for every timer, and names would be half of its cost
        timer.job_id,
        timer.version,
        timer.due_at,
        fire_at,
        next_at,
        execution,
        filed_day(execution),
        timer.revision,
        plan.pool,
        plan.klass,
        plan.once or next_at is None,
        skipped_through,
        skipped,
        epoch,
        plan.deadline,
    )
