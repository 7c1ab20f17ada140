"""What an execution is, and the words for where it stands."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

OpenStatus = Literal["held", "queued", "running", "retrying"]
ClosedStatus = Literal["succeeded", "failed", "timed_out", "cancelled", "skipped", "dead_lettered"]
ExecutionStatus = Literal[
    "held", "queued", "running", "retrying",
    "succeeded", "failed", "timed_out", "cancelled", "skipped", "dead_lettered",
]  # fmt: skip
Outcome = Literal["succeeded", "failed", "timed_out", "cancelled", "worker_lost", "released"]
Cause = Literal["schedule", "manual", "event", "backfill", "replay", "step"]

OPEN: frozenset[str] = frozenset({"held", "queued", "running", "retrying"})
CLOSED: frozenset[str] = frozenset(
    {"succeeded", "failed", "timed_out", "cancelled", "skipped", "dead_lettered"}
)


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an attempt did not succeed."""

    type: str
    message: str
    traceback: str | None = None
    exit_code: int | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    attempt: int
    outcome: Outcome | Literal["running"]
    worker_id: UUID | None
    started_at: datetime | None
    finished_at: datetime | None
    error: ErrorInfo | None = None


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """An execution as it is read, open or closed."""

    execution_id: UUID
    job_id: UUID
    status: ExecutionStatus
    cause: Cause
    scheduled_for: datetime
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    worker_id: UUID | None
    result: str | None
    error: ErrorInfo | None
    revision: int
    reason: str | None = None
    source_id: UUID | None = None
