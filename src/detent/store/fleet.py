"""Who is there: scheduler nodes, shard leases, workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from detent.store.database import Database
from detent.store.sql import Queries

queries = Queries.load()

# A node that is gone without a word is replaced after this and half a second, the longest wait for a beat.
LEASE_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class NodeRow:
    node_id: UUID
    host: str
    pid: int
    standby: bool
    leaving: bool
    beat_at: datetime
    skew_ms: float | None
    lag_ms: float
    started_at: datetime
    ended_at: datetime | None
    live: bool
    shards: int


@dataclass(frozen=True, slots=True)
class ShardRow:
    shard: int
    node_id: UUID | None
    epoch: int
    expires_at: datetime | None
    next_due_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkerRow:
    worker_id: UUID
    name: str
    host: str
    pid: int
    pools: list[str]
    slots: int
    tasks: list[str]
    status: str
    beat_at: datetime
    in_flight: int
    stale_writes: int
    started_at: datetime
    ended_at: datetime | None
    live: bool


async def list_nodes(db: Database, tenant: int, limit: int) -> list[NodeRow]:
    return [NodeRow(**dict(row)) for row in await db.fetch(queries.list_nodes, tenant, LEASE_SECONDS, limit)]


async def list_shards(db: Database, tenant: int) -> list[ShardRow]:
    return [ShardRow(**dict(row)) for row in await db.fetch(queries.list_shards, tenant)]


async def list_workers(db: Database, tenant: int, limit: int) -> list[WorkerRow]:
    return [WorkerRow(**dict(row)) for row in await db.fetch(queries.list_workers, tenant, limit)]


async def forget(db: Database, seconds: float) -> None:
    await db.execute(queries.forget_fleet, seconds)
