"""Figures about the whole, and whether the store can be worked with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from detent.model.errors import SchemaMismatch
from detent.model.ids import first_id_of
from detent.store.alerts import Alert, open_alerts
from detent.store.database import Database
from detent.store.migrate import Applied, compare, known
from detent.store.sql import Queries

CAP = 10_000
CAP_IN_A_SHARD = 100
ALERTS = 20
# Executions are filed under their nominal instant: one that closed today may have been due before.
LOOK_BACK = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Fleet:
    database_time: datetime
    read_only: bool
    shards_leased: int
    workers_live: int
    slots_live: int


@dataclass(frozen=True, slots=True)
class Overview:
    """Counts stop at CAP, those of what is due at CAP_IN_A_SHARD in each shard."""

    jobs: dict[str, int]
    open: dict[str, int]
    closed_last_hour: dict[str, int]
    closed_last_day: dict[str, int]
    due_next_minute: int
    due_next_hour: int
    dead_letters_waiting: int
    stale_writes: int
    alerts: list[Alert]
    fleet: Fleet


async def read_fleet(database: Database, tenant: int) -> Fleet:
    row = await database.fetchrow(Queries.load().read_fleet, tenant)
    assert row is not None
    return Fleet(**dict(row))


async def read_overview(database: Database, tenant: int, now: datetime) -> Overview:
    queries = Queries.load()
    async with database.connection() as connection:
        jobs = await connection.fetchrow(queries.count_jobs, tenant, CAP)
        opened = await connection.fetch(queries.count_open, tenant, CAP)
        since = first_id_of((now - LOOK_BACK).date())
        closed = await connection.fetch(queries.count_closed, tenant, since, now, CAP)
        due = await connection.fetchrow(queries.count_due, tenant, now, CAP_IN_A_SHARD)
        trouble = await connection.fetchrow(queries.count_trouble, tenant, CAP)
    assert jobs is not None
    assert due is not None
    assert trouble is not None
    return Overview(
        jobs=dict(jobs),
        open={row["state"]: row["n"] for row in opened},
        closed_last_hour={row["status"]: row["hour"] for row in closed if row["hour"]},
        closed_last_day={row["status"]: row["day"] for row in closed},
        due_next_minute=due["minute"],
        due_next_hour=due["hour"],
        dead_letters_waiting=trouble["dead_letters_waiting"],
        stale_writes=trouble["stale_writes"],
        alerts=await open_alerts(database, tenant, ALERTS),
        fleet=await read_fleet(database, tenant),
    )


async def schema_problem(database: Database) -> str | None:
    """What is wrong with the schema for this program; None if it is current."""
    queries = Queries.load()
    if not await database.fetchval(queries.has_migrations):
        return "the database has no schema yet: run detent migrate"
    applied = [Applied(*row) for row in await database.fetch(queries.list_migrations)]
    try:
        missing = compare(known(), applied)
    except SchemaMismatch as error:
        return str(error)
    return f"the schema lacks {len(missing)} migrations: run detent migrate" if missing else None
