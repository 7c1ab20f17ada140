"""Everything a worker asks of the system.

The worker knows no database. A worker beside PostgreSQL and one that speaks HTTP differ only in the adapter
behind this port. `claim`, `claim_ahead`, `finish`, `release` and `log` may raise StoreUnavailable: the worker
keeps what it has to say and says it again, which is safe because an adapter reads back by identity.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol
from uuid import UUID

from detent.model.work import Ahead, Beat, Claim, Finished, LogChunk, Orders, Progress, WorkerInfo


class Port(Protocol):
    """The worker's side of claims, results and logs, used from the worker's own event loop."""

    async def register(self, info: WorkerInfo, lease_seconds: float) -> None:
        """Join the fleet as a new incarnation."""

    async def claim(self, worker_id: UUID, pools: Sequence[str], limit: int) -> list[Claim]:
        """Take up to `limit` attempts that are due."""

    async def claim_ahead(self, worker_id: UUID, pools: Sequence[str], limit: int) -> Ahead:
        """Take up to `limit` attempts that will be due within seconds, to be held until they are."""

    async def finish(self, batch: Sequence[Finished]) -> set[tuple[UUID, int]]:
        """Record ended attempts. Answers the (execution, attempt) pairs that were stale."""

    async def release(self, worker_id: UUID, claims: Sequence[Claim]) -> None:
        """Hand claims back; the attempts are not counted."""

    async def log(self, chunks: Sequence[LogChunk]) -> set[tuple[UUID, int]]:
        """Store output. Answers the (execution, attempt) pairs that are stale."""

    async def stop(self, worker_id: UUID) -> None:
        """Leave the fleet."""


class Pulse(Protocol):
    """The heartbeat's own connection, used from the heartbeat's own thread and loop."""

    async def beat(self, worker_id: UUID, beat: Beat) -> Orders:
        """Say that this incarnation lives, and hear what it must stop."""

    async def progress(self, told: Sequence[Progress]) -> set[tuple[UUID, int]]:
        """Keep what attempts say of their progress. Answers the (execution, attempt) pairs that are stale."""

    async def close(self) -> None:
        """Give the connection up."""


PulseFactory = Callable[[], Awaitable[Pulse]]
