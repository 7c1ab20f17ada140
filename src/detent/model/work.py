"""What passes between a worker and the store: claimed work, ended attempts, and log lines.

These are the messages of the worker port. A worker beside the database and one that speaks HTTP see the
same ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec

from detent.model.execution import ErrorInfo, Outcome
from detent.model.job import JobSpec

UNKNOWN_TASK = "UnknownTask"  # the type of the error with which a worker hands such work back


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def us_of(at: datetime) -> int:
    """Microseconds since 1970: what instants are while work is under way, since a number costs a third of a
    datetime to make, send and receive.
    """
    return (at - _EPOCH) // _MICROSECOND


def instant_of(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


class Claim(msgspec.Struct, frozen=True, gc=False):
    """One claimed attempt. Every write about it carries (execution, attempt, token)."""

    execution_id: UUID
    job_id: UUID
    attempt: int
    token: int
    failures: int
    scheduled_us: int
    revision: int
    spec: JobSpec
    payload: str
    deadline_at: datetime | None = None

    @property
    def scheduled_for(self) -> datetime:
        return instant_of(self.scheduled_us)


class Staged(NamedTuple):
    """A claim that came ahead of its instant, and the monotonic nanosecond at which it may start."""

    claim: Claim
    start_ns: int


class Ahead(NamedTuple):
    """What a claim ahead brought, and in how many seconds the first is due of what it left, if any."""

    staged: list[Staged]
    next_in: float | None = None


class Finished(msgspec.Struct, frozen=True, gc=False):
    """How one attempt ended, as its worker saw it. Instants are on the database's clock; one that never
    started has no start.
    """

    claim: Claim
    outcome: Outcome
    started_us: int | None
    finished_us: int
    result: str | None = None
    error: ErrorInfo | None = None
    retryable: bool = True

    @property
    def started_at(self) -> datetime | None:
        return None if self.started_us is None else instant_of(self.started_us)

    @property
    def finished_at(self) -> datetime:
        return instant_of(self.finished_us)


class Progress(NamedTuple):
    """How far an attempt says it is, in percent."""

    execution_id: UUID
    attempt: int
    token: int
    pct: float
    message: str | None


@dataclass(frozen=True, slots=True)
class LogChunk:
    execution_id: UUID
    attempt: int
    token: int
    seq: int
    stream: Literal["stdout", "stderr", "log"]
    logged_at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One incarnation of a worker process."""

    worker_id: UUID
    name: str
    host: str
    pid: int
    pools: tuple[str, ...]
    slots: int
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Beat:
    """What a worker says of itself: what it believes to hold, as (execution, attempt, token), in how many
    seconds the first of it is out of time, and how many of its writes changed nothing because they came too
    late. Seconds and no instant: the worker's idea of the database's clock may be behind a jump of it.
    """

    holding: tuple[tuple[UUID, int, int], ...] = ()
    overdue_in: float | None = None
    stale_writes: int = 0


@dataclass(frozen=True, slots=True)
class Orders:
    """A heartbeat's answer: whether this incarnation is still trusted, and what it must stop: because
    somebody asked to cancel it, or because it is no longer its own.
    """

    alive: bool
    draining: bool
    cancel: tuple[tuple[UUID, int], ...] = ()
    stale: tuple[tuple[UUID, int], ...] = ()
