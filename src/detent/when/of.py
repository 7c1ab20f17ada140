"""The rule that a definition means."""

from __future__ import annotations

from datetime import datetime, timedelta

from detent.model.job import JobSpec, Terms
from detent.when.every import step_of
from detent.when.hashed import PREVIEW_SEED
from detent.when.rule import Bounded, Cron, Every, Never, Once, Rule, cron_rule


def rule_of(spec: JobSpec | Terms, armed_at: datetime, seed: int = PREVIEW_SEED) -> Rule:
    """`armed_at` is when the schedule was set: delays count from it, and intervals without a `start_at` are
    aligned to it. `seed` stands for the job, see `detent.when.hashed`.
    """
    if spec.scheduled_at is not None:
        return Once(spec.scheduled_at)
    if spec.delay is not None:
        return Once(armed_at + timedelta(seconds=spec.delay))
    rule: Every | Cron
    if spec.every is not None:
        # An interval that has a beginning is aligned to it, and the beginning itself is its first instant.
        anchor = armed_at if spec.start_at is None else spec.start_at - step_of(spec.every)
        rule = Every(spec.every, anchor)
    elif spec.cron is not None:
        rule = cron_rule(spec.cron, spec.timezone, spec.dst.gap, spec.dst.fold, seed)
    else:
        return Never()
    if spec.start_at is None and spec.end_at is None:
        return rule
    return Bounded(rule, spec.start_at, spec.end_at)
