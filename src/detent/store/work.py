"""Claims, endings, logs and workers: the writes of running work, each fenced by its token."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from detent.model.ids import DEFAULT_TENANT
from detent.model.work import Finished, LogChunk, WorkerInfo
from detent.store.columns import column
from detent.store.database import Connection, Database, Record
from detent.store.sql import Queries

queries = Queries.load()

Pair = tuple[UUID, int]


class Closing(NamedTuple):
    """One attempt that closes its execution, in the order of the statement's parameters."""

    execution_id: UUID
    attempt: int
    token: int
    status: str
    outcome: str
    started_at: datetime | None
    finished_at: datetime
    result: str | None
    error: str | None
    callback_url: str | None
    counted: int
    reason: str | None


class Returning(NamedTuple):
    """One attempt that leaves its execution open, in the order of the statement's parameters."""

    execution_id: UUID
    attempt: int
    token: int
    state: str
    outcome: str
    started_at: datetime | None
    finished_at: datetime
    error: str | None
    delay: timedelta
    counted: int
    reason: str | None


async def register(db: Database, info: WorkerInfo, lease_seconds: float) -> None:
    await db.execute(
        queries.register_worker, info.worker_id, DEFAULT_TENANT, info.name, info.host, info.pid,
        list(info.pools), info.slots, list(info.tasks), lease_seconds,
    )  # fmt: skip


async def claim(
    db: Database | Connection,
    worker_id: UUID,
    pool: str,
    limit: int,
    ranges: Sequence[tuple[int, int, int, int]],
    lead: timedelta = timedelta(0),
) -> list[Record]:
    """Take up to `limit` from ranges of rank: (class, low, high, at most), due or due within the lead."""
    return await db.fetch(queries.claim, worker_id, pool, limit, *zip(*ranges, strict=True), lead)


async def upcoming(db: Database, pool: str, ranges: Sequence[tuple[int, int, int, int]]) -> float | None:
    """In how many seconds the first of what waits within these ranges is due."""
    classes, lows, highs, _ = zip(*ranges, strict=True)
    seconds: float | None = await db.fetchval(queries.upcoming, pool, classes, lows, highs)
    return seconds


async def left_behind(db: Database, pool: str, ranges: Sequence[tuple[int, int, int, int]]) -> bool:
    """Whether work is due that claims from these ranges do not see."""
    classes, lows, highs, _ = zip(*ranges, strict=True)
    return bool(await db.fetchval(queries.left_behind, pool, classes, lows, highs))


async def definitions(db: Database, wanted: Sequence[tuple[UUID, int]]) -> list[Record]:
    jobs, revisions = zip(*wanted, strict=True)
    return await db.fetch(queries.definitions, list(jobs), list(revisions))


async def inputs(db: Database, executions: Sequence[UUID]) -> dict[UUID, str]:
    rows = await db.fetch(queries.inputs_of, list(executions))
    return {row["execution_id"]: row["payload"] for row in rows}


async def unknown_tasks(db: Database, handed_back: Sequence[tuple[UUID, str]], patience: float) -> set[UUID]:
    """Those that nobody who knew their task could have taken for so long."""
    ids, tasks = zip(*handed_back, strict=True)
    return {row[0] for row in await db.fetch(queries.unknown_tasks, list(ids), list(tasks), patience)}


async def close_waiting(
    db: Database, rows: Sequence[tuple[UUID, int, str, str | None]], error: str, reason: str
) -> set[Pair]:
    columns = [list(values) for values in zip(*rows, strict=True)]
    return {(row[0], row[1]) for row in await db.fetch(queries.close_waiting, *columns, error, reason)}


async def close(db: Database | Connection, batch: Sequence[Closing]) -> set[Pair]:
    return await _batch(db, queries.close_batch, batch)


async def succeed(db: Database | Connection, batch: Sequence[Finished]) -> int:
    """Close successes that have nobody to call, in the order of their ids; answers how many were closed."""
    claims = [finished.claim for finished in batch]
    [row] = await db.fetch(
        queries.close_succeeded,
        [claim.execution_id for claim in claims], [claim.attempt for claim in claims],
        [claim.token for claim in claims],
        [finished.started_us for finished in batch], [finished.finished_us for finished in batch],
        column(tuple([finished.result for finished in batch])),
    )  # fmt: skip
    closed: int = row[0]
    return closed


async def put_back(db: Database | Connection, batch: Sequence[Returning]) -> set[Pair]:
    return await _batch(db, queries.return_batch, batch)


async def _batch(db: Database | Connection, query: str, batch: Sequence[Closing | Returning]) -> set[Pair]:
    columns = [column(values) for values in zip(*batch, strict=True)]
    return set(map(tuple, await db.fetch(query, *columns)))


async def recorded(db: Database, ended: Sequence[tuple[UUID, int, int, datetime]], since: date) -> set[Pair]:
    columns = [list(values) for values in zip(*ended, strict=True)]
    rows = await db.fetch(queries.recorded_attempts, *columns, since)
    return {(row[0], row[1]) for row in rows}


async def append_logs(db: Database, chunks: Sequence[LogChunk]) -> set[Pair]:
    """Store chunks; answers the attempts that still hold their lease."""
    rows = await db.fetch(
        queries.append_logs,
        [c.execution_id for c in chunks], [c.attempt for c in chunks], [c.token for c in chunks],
        [c.seq for c in chunks], [c.stream for c in chunks], [c.logged_at for c in chunks],
        [c.text for c in chunks],
    )  # fmt: skip
    return {(row[0], row[1]) for row in rows}


async def stop(db: Database, worker_id: UUID) -> None:
    await db.execute(queries.stop_worker, worker_id)
