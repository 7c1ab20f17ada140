"""What to do about one due timer. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec

from detent.model.ids import day_true, execution_id, filed_day, schedule_key
from detent.model.job import CLASSES, JobSpec
from detent.store.timers import DueTimer, Firing
from detent.when.cron import has_hash
from detent.when.hashed import PREVIEW_SEED
from detent.when.misfire import CatchUp, catch_up
from detent.when.of import rule_of
from detent.when.rule import NextFires, Once, Rule

_ANY = datetime(1970, 1, 1, tzinfo=UTC)
_decode = msgspec.json.Decoder(JobSpec).decode


@lru_cache(maxsize=20_000)
def _spec(text: str) -> JobSpec:
    return _decode(text)


@lru_cache(maxsize=20_000)
def _rule(text: str, armed_at: datetime, seed: int) -> Rule:
    return rule_of(_spec(text), armed_at, seed)


_has_hash = lru_cache(maxsize=20_000)(has_hash)


def rule_for(timer: DueTimer) -> Rule:
    """A cron rule without `H` depends neither on the job nor on when it was set: a million jobs share one."""
    cron = _spec(timer.spec).cron
    if cron is None:
        return _rule(timer.spec, timer.armed_at, PREVIEW_SEED)
    return _rule(timer.spec, _ANY, timer.job_id.int if _has_hash(cron) else PREVIEW_SEED)


def opens_at(timer: DueTimer) -> datetime | None:
    """Before which instant this one must not be fired, however long the lead; None if the lead alone decides.

    A job has at most one instant that is staged: the next one waits until the one before it has come.
    """
    if not may_be_staged(_spec(timer.spec)):
        return timer.due_at
    if timer.decided_through is None:
        return None
    return min(timer.decided_through, timer.due_at)


def may_be_staged(_spec: JobSpec) -> bool:
    """Whether a fire of this job may be decided ahead of its instant: not where a policy has to look at the
    instant itself, at what runs just then for one. None of today's policies does.
    """
    return True


def decide(timer: DueTimer, now: datetime, epoch: int, memo: NextFires) -> Firing:
    """The one firing of a due timer at `now`: its instant, or the latest of those that passed."""
    rule = rule_for(timer)
    spec = _spec(timer.spec)
    following = None if isinstance(rule, Once) else memo.next_fire(rule, timer.due_at)
    if following is None or following > now:
        fate = CatchUp(timer.due_at, None, None, 0, following)
    else:
        fate = catch_up(rule, timer.due_at, now)
    fire_at = fate.fire_at or timer.due_at
    key = schedule_key(timer.generation, fire_at)
    execution = execution_id(day_true(fire_at, now), timer.job_id, "schedule", key)
    return Firing(
        job_id=timer.job_id,
        version=timer.version,
        due_at=timer.due_at,
        fire_at=fire_at,
        next_at=fate.next_at,
        execution_id=execution,
        day=filed_day(execution),
        revision=timer.revision,
        pool=spec.pool,
        klass=CLASSES[spec.priority],
        ends_job=spec.once or fate.next_at is None,
        skipped_through=fate.skipped_through,
        skipped=fate.skipped_count or None,
        epoch=epoch,
        deadline=None if spec.deadline_seconds is None else timedelta(seconds=spec.deadline_seconds),
    )
