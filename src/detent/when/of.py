"""The rule that a definition means."""

from __future__ import annotations

from datetime import datetime, timedelta

from detent.model.job import JobSpec
from detent.when.rule import Every, Never, Once, Rule, cron_rule


def rule_of(spec: JobSpec, armed_at: datetime) -> Rule:
    """`armed_at` is when the schedule was set: delays count from it, and intervals are aligned to it."""
    if spec.scheduled_at is not None:
        return Once(spec.scheduled_at)
    if spec.delay is not None:
        return Once(armed_at + timedelta(seconds=spec.delay))
    if spec.every is not None:
        return Every(spec.every, armed_at)
    if spec.cron is not None:
        return cron_rule(spec.cron, spec.timezone, spec.dst.gap, spec.dst.fold)
    return Never()
