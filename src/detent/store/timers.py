"""Timers as the scheduler sees them, and firing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from sys import intern
from typing import NamedTuple
from uuid import UUID

from detent.model.ids import day_true
from detent.store.columns import column
from detent.store.database import Connection, Database, Record
from detent.store.sql import Queries

queries = Queries.load()


class DueTimer(NamedTuple):
    job_id: UUID
    tenant: int
    due_at: datetime
    version: int
    generation: int
    shard: int
    revision: int
    terms: str  # the definition as JSON, without what firing does not need
    armed_at: datetime
    decided_through: datetime | None = None


class Firing(NamedTuple):
    """One decided timer, in the order of the statement's parameters."""

    job_id: UUID
    version: int
    due_at: datetime
    fire_at: datetime
    next_at: datetime | None
    execution_id: UUID
    day: date
    revision: int
    pool: str
    klass: int
    ends_job: bool
    skipped_through: datetime | None
    skipped: int | None
    epoch: int
    deadline: timedelta | None = None


async def due(db: Database, shards: Sequence[int], horizon: datetime, per_shard: int) -> list[DueTimer]:
    return _timers(await db.fetch(queries.due_timers, list(shards), horizon, per_shard))


async def further(
    db: Database,
    shards: Sequence[int],
    places: Sequence[tuple[datetime, UUID]],
    horizon: datetime,
    per_shard: int,
) -> list[DueTimer]:
    """The next timers of each shard behind a place, (due_at, job_id), up to the horizon."""
    due_at, job_ids = [at for at, _ in places], [job_id for _, job_id in places]
    return _timers(await db.fetch(queries.further_timers, list(shards), due_at, job_ids, horizon, per_shard))


async def of_jobs(db: Database, job_ids: Sequence[UUID]) -> list[DueTimer]:
    return _timers(await db.fetch(queries.timers_of, list(job_ids)))


def _timers(rows: list[Record]) -> list[DueTimer]:
    return [
        DueTimer(
            job_id, tenant, due_at, version, generation, shard, revision, intern(terms), armed_at, decided
        )
        for job_id, tenant, due_at, version, generation, shard, revision, terms, armed_at, decided in rows
    ]


async def fire(
    db: Database | Connection,
    firings: Sequence[Firing],
    node_id: UUID,
    tzdata: str,
    now: datetime,
    lead: timedelta = timedelta(0),
) -> set[UUID]:
    """Fire a batch in one transaction, at what the caller believes to be `now`, and no instant that lies
    further ahead than the lead; answers the jobs whose timer moved.
    """
    columns = [column(values) for values in zip(*firings, strict=True)]
    if isinstance(db, Database) and len(firings) > 1:
        # One that was undone because of one row is halved by who fires it: the others are on time.
        rows = await db.fetch(queries.fire_batch, *columns, node_id, tzdata, now, lead, patient=False)
    else:
        rows = await db.fetch(queries.fire_batch, *columns, node_id, tzdata, now, lead)
    [(moved, told)] = rows
    if moved == len(firings):
        return {firing.job_id for firing in firings}
    return set(told or ())


async def park(db: Database, timer: DueTimer, reason: str, node_id: UUID, epoch: int, now: datetime) -> None:
    """Fire this timer no more, unless it has changed by now."""
    day = day_true(timer.due_at, now).date()
    await db.fetchval(
        queries.park_timer, timer.job_id, timer.version, timer.revision, reason[:2000], node_id, epoch, day
    )


async def clock_us(db: Database) -> int:
    return int(await db.fetchval(queries.clock_us))
