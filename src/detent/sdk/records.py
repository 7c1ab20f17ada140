"""Jobs and executions as a Client returns them.

The fields people use are attributes; everything the server said is in `raw`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

# The words of detent.model.execution, whose import costs a script more than all of this.
OPEN = frozenset({"held", "queued", "running", "retrying"})


@dataclass(frozen=True, slots=True)
class Job:
    job_id: str
    name: str
    status: str
    task: Mapping[str, Any]
    payload: Any
    next_run_at: datetime | None
    revision: int
    created_at: datetime
    updated_at: datetime
    tags: tuple[str, ...]
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Job:
        task = raw.get("task")
        created = _instant(raw["created_at"])
        updated = _instant(raw["updated_at"])
        assert created is not None
        assert updated is not None
        return cls(
            job_id=raw["job_id"],
            name=raw["name"],
            status=raw["status"],
            task=task if isinstance(task, dict) else {"kind": "python", "name": task},
            payload=raw.get("payload"),
            next_run_at=_instant(raw.get("next_run_at")),
            revision=raw["revision"],
            created_at=created,
            updated_at=updated,
            tags=tuple(raw.get("tags") or ()),
            raw=raw,
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    attempt: int
    outcome: str
    worker_id: str | None
    started_at: datetime | None
    finished_at: datetime | None
    error: Mapping[str, Any] | None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Attempt:
        return cls(
            attempt=raw["attempt"],
            outcome=raw["outcome"],
            worker_id=raw.get("worker_id"),
            started_at=_instant(raw.get("started_at")),
            finished_at=_instant(raw.get("finished_at")),
            error=raw.get("error"),
        )


@dataclass(frozen=True, slots=True)
class Execution:
    execution_id: str
    job_id: str
    status: str
    cause: str
    scheduled_for: datetime | None
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    duration_ms: float | None
    lateness_ms: float | None
    attempt: int
    progress_pct: float | None
    progress_message: str | None
    attempts: tuple[Attempt, ...]
    worker_id: str | None
    result: Any
    error: Mapping[str, Any] | None
    stdout: str | None
    stderr: str | None
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def closed(self) -> bool:
        """Whether it is over, one way or another."""
        return self.status not in OPEN

    @property
    def succeeded(self) -> bool:
        return self.status == "succeeded"

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Execution:
        return cls(
            execution_id=raw["execution_id"],
            job_id=raw["job_id"],
            status=raw["status"],
            cause=raw["cause"],
            scheduled_for=_instant(raw.get("scheduled_for")),
            queued_at=_instant(raw.get("queued_at")),
            started_at=_instant(raw.get("started_at")),
            finished_at=_instant(raw.get("finished_at")),
            duration_ms=raw.get("duration_ms"),
            lateness_ms=raw.get("lateness_ms"),
            attempt=raw.get("attempt") or 0,
            progress_pct=raw.get("progress_pct"),
            progress_message=raw.get("progress_message"),
            attempts=tuple(Attempt.of(one) for one in raw.get("attempts") or ()),
            worker_id=raw.get("worker_id"),
            result=raw.get("result"),
            error=raw.get("error"),
            stdout=raw.get("stdout"),
            stderr=raw.get("stderr"),
            raw=raw,
        )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An execution out of attempts: `waiting`, `replayed` or `discarded`."""

    execution_id: str
    job_id: str
    name: str
    status: str
    reason: str
    error: Mapping[str, Any] | None
    died_at: datetime | None
    replayed_as: str | None
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> DeadLetter:
        return cls(
            execution_id=raw["execution_id"],
            job_id=raw["job_id"],
            name=raw["name"],
            status=raw["status"],
            reason=raw["reason"],
            error=raw.get("error"),
            died_at=_instant(raw.get("died_at")),
            replayed_as=raw.get("replayed_as"),
            raw=raw,
        )


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
