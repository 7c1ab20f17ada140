"""What a job is: its definition, as validated at the door and stored in a revision."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

Priority = Literal["critical", "high", "normal", "low"]
Backoff = Literal["exponential", "linear", "fixed"]
JobStatus = Literal["scheduled", "paused", "running", "completed", "failed", "cancelled"]
TimerStatus = Literal["scheduled", "paused", "idle", "done", "parked"]

CLASSES: dict[str, int] = {"critical": 0, "high": 1, "normal": 2, "low": 3}

PAYLOAD_LIMIT = 256 * 1024
RESULT_LIMIT = 64 * 1024


class PythonTask(msgspec.Struct, frozen=True, tag_field="kind", tag="python", forbid_unknown_fields=True):
    """A Python function registered in the workers under a name."""

    name: str


class ShellTask(msgspec.Struct, frozen=True, tag_field="kind", tag="shell", forbid_unknown_fields=True):
    """A shell script (one string) or a program with its arguments (a list, no shell in between)."""

    command: str | tuple[str, ...]
    env: dict[str, str] = {}
    cwd: str | None = None


Task = PythonTask | ShellTask


class Dst(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What happens to a wall-clock instant that daylight saving skips or repeats."""

    gap: Literal["next_valid", "skip"] = "next_valid"
    fold: Literal["first", "second", "both"] = "first"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler reads of a definition: when it fires, and what its executions wait and end by."""

    scheduled_at: datetime | None = None
    delay: float | None = None
    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"
    dst: Dst = Dst()
    start_at: datetime | None = None
    end_at: datetime | None = None
    priority: Priority = "normal"
    timeout_seconds: float = 3600.0
    max_retries: int = 3
    retry_backoff: Backoff = "exponential"
    retry_delay_seconds: float = 30.0
    deadline_seconds: float | None = None
    dead_letter: bool = True
    pool: str = "default"

    @property
    def once(self) -> bool:
        return self.scheduled_at is not None or self.delay is not None


class JobSpec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A definition without its payload, normalised. At most one of the schedule fields is set."""

    name: str
    task: Task
    scheduled_at: datetime | None = None
    delay: float | None = None
    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"
    dst: Dst = Dst()
    start_at: datetime | None = None
    end_at: datetime | None = None
    priority: Priority = "normal"
    timeout_seconds: float = 3600.0
    max_retries: int = 3
    retry_backoff: Backoff = "exponential"
    retry_delay_seconds: float = 30.0
    deadline_seconds: float | None = None
    dead_letter: bool = True
    callback_url: str | None = None
    tags: tuple[str, ...] = ()
    pool: str = "default"

    @property
    def once(self) -> bool:
        """A one-time job: the end of its execution is its own end."""
        return self.scheduled_at is not None or self.delay is not None

    @property
    def recurring(self) -> bool:
        return self.cron is not None or self.every is not None

    @property
    def schedule(self) -> tuple[object, ...]:
        """Everything that decides when: two specs with the same value fire at the same instants."""
        when = (self.scheduled_at, self.delay, self.cron, self.every, self.timezone, self.dst)
        return (*when, self.start_at, self.end_at)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is read: definition, current revision, and where its timer stands."""

    tenant: int
    job_id: UUID
    spec: JobSpec
    payload: str
    status: JobStatus
    next_run_at: datetime | None
    revision: int
    armed_at: datetime
    created_at: datetime
    updated_at: datetime
    idempotency_key: str | None = None
    parked_reason: str | None = None
