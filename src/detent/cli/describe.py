"""A job's task and schedule in words."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from detent.cli.times import local, span

TASK_WIDTH = 120


def task_words(task: Mapping[str, Any]) -> str:
    kind = task.get("kind")
    if kind == "python":
        return f"Python task {task.get('name')}"
    if kind == "shell":
        command = task.get("command", "")
        if not isinstance(command, str):
            return f"program {_cut(shlex.join(command))}"
        return f"shell {_cut(command)}"
    return str(kind)


def schedule_words(raw: Mapping[str, Any]) -> str:
    """A few words, for a column."""
    if cron := raw.get("cron"):
        zone = raw.get("timezone", "UTC")
        return f"{cron}" if zone == "UTC" else f"{cron}  {zone}"
    if (every := raw.get("every")) is not None:
        return f"every {span(every)}" if isinstance(every, int | float) else f"every {every}"
    if at := raw.get("scheduled_at"):
        return f"once at {local(datetime.fromisoformat(at))}"
    if (delay := raw.get("delay")) is not None:
        if not isinstance(delay, int | float):
            return f"once, {delay} after it was made"
        return f"once, {span(delay)} after it was made" if delay else "once, at once"
    return "on request"


def schedule_sentence(raw: Mapping[str, Any]) -> str:
    """The whole rule in English, followed by the expression it was written as."""
    cron = raw.get("cron")
    if not cron:
        return schedule_words(raw)
    from detent.when.hashed import PREVIEW_SEED
    from detent.when.rule import cron_rule
    from detent.when.words import in_words

    seed = UUID(raw["job_id"]).int if "job_id" in raw else PREVIEW_SEED
    return f"{in_words(cron_rule(cron, raw.get('timezone', 'UTC'), seed=seed))}  ({cron})"


def _cut(text: str) -> str:
    first, _, rest = text.strip().partition("\n")
    return first if len(first) <= TASK_WIDTH and not rest else f"{first[:TASK_WIDTH]}…"
