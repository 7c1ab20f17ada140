"""What is there before a measurement starts: one job with a long queue, or many jobs with their timers.

A few thousand jobs are made as the program makes them. More are copies of one that was made so, whatever columns
the tables have: a row for each in `jobs`, `job_revisions` and `timers`, with an id and an instant of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from bench.server import Connection
from detent.model.ids import DEFAULT_TENANT, new_job_id
from detent.model.job import CLASSES, JobSpec, PythonTask
from detent.runtime.notify import EVERYTHING, TIMERS
from detent.store.database import Database
from detent.store.jobs import Draft, create_jobs

CREATE_BATCH = 5000
COPY_CHUNK = 250_000
CREATED_PER_SECOND = 3000  # that a busy machine makes for certain
PHASES = 50

# Ids as the program makes them: a time prefix that grows, then noise. Fifty share a millisecond.
_QUEUE = """
insert into detent.live (execution_id, job_id, scheduled_for, not_before, queued_at, rank, tenant, revision,
                         class, ends_job, state, cause, pool)
select (lpad(to_hex((extract(epoch from now()) * 1000)::bigint + i / 50), 12, '0')
        || '8' || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid,
       $1::uuid, now(), now(), now(), detent.rank(now(), $4::smallint), $3::integer, 1,
       $4::smallint, false, 'queued', 'manual', 'default'
from generate_series(1, $2::integer) as i
"""
_COPIES = """
create unlogged table if not exists public.copies (i bigint, job_id uuid);
truncate public.copies;
"""
_NEXT_COPIES = """
insert into public.copies (i, job_id)
select i, (lpad(to_hex((extract(epoch from $3::timestamptz) * 1000)::bigint + i / 50), 12, '0')
           || '7' || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid
from generate_series($1::bigint, $2::bigint) as i
"""
_COLUMNS = """
select array_agg(column_name::text order by ordinal_position) from information_schema.columns
where table_schema = 'detent' and table_name = $1::text and is_generated = 'NEVER' and is_identity = 'NO'
"""
_INDEXES = """
select indexname, indexdef from pg_indexes
where schemaname = 'detent' and tablename in ('jobs', 'job_revisions', 'timers')
  and indexname not in (select conname from pg_constraint)
order by indexname
"""
_OWN = {
    "job_id": "c.job_id",
    "shard": "get_byte(uuid_send(c.job_id), 15)::smallint",
    "due_at": "$2::timestamptz + c.i * $3::interval",
}


async def queue_executions(url: str, connection: Connection, n: int, task: str = "bench.write") -> UUID:
    """Queue `n` executions of one manual job by one statement."""
    spec = JobSpec(name="bench", task=PythonTask(task))
    now: datetime = await connection.fetchval("select clock_timestamp()")
    draft = Draft(new_job_id(now), spec, "null", None)
    await create(url, [draft], now)
    await connection.execute(_QUEUE, draft.job_id, n, DEFAULT_TENANT, CLASSES[spec.priority])
    await settle(connection, "live")
    return draft.job_id


async def create_schedules(
    url: str,
    connection: Connection,
    n: int,
    due_at: datetime | None = None,
    apart: timedelta = timedelta(0),
    task: str = "bench.nothing",
) -> datetime:
    """Make `n` daily jobs whose next instant is `due_at`, or has just come; or one after the other from then on."""
    now: datetime = await connection.fetchval("select clock_timestamp()")
    due_at = due_at or now
    spec = JobSpec(name="bench", task=PythonTask(task), cron="0 0 * * *")
    model = Draft(new_job_id(now), spec, "null", due_at)
    await create(url, [model], now)
    async with connection.transaction(), _indexes_later(connection, n):
        # The references of copies are those of the model; checking each of them would double the time.
        await connection.execute("set local session_replication_role = replica")
        await connection.execute(_COPIES)
        for first in range(1, n, COPY_CHUNK):
            await connection.execute("truncate public.copies")
            await connection.execute(_NEXT_COPIES, first, min(n - 1, first + COPY_CHUNK - 1), now)
            for table in ("jobs", "job_revisions", "timers"):
                await _copy(connection, table, model.job_id, due_at, apart)
    await settle(connection, "jobs", "job_revisions", "timers")
    return due_at


@contextlib.asynccontextmanager
async def _indexes_later(connection: Connection, n: int) -> AsyncIterator[None]:
    """Make indexes behind the rows, where there are many: in a large one, every row at another place is slow."""
    indexes = await connection.fetch(_INDEXES) if n > COPY_CHUNK else []
    for index in indexes:
        await connection.execute(f"drop index detent.{index['indexname']}")
    yield
    for index in indexes:
        await connection.execute(index["indexdef"])


async def _copy(connection: Connection, table: str, model: UUID, due_at: datetime, apart: timedelta) -> None:
    columns: list[str] = await connection.fetchval(_COLUMNS, table)
    values = [_OWN.get(column, f"m.{column}") for column in columns]
    timed = table == "timers"
    await connection.execute(
        f"insert into detent.{table} ({', '.join(columns)})"
        f" select {', '.join(values)} from public.copies c, detent.{table} m where m.job_id = $1::uuid order by c.i",
        model, *((due_at, apart) if timed else ()),
    )  # fmt: skip


async def create_once_jobs(
    url: str, connection: Connection, instants: Sequence[timedelta]
) -> tuple[datetime, list[UUID]]:
    """Make a one-time job for each instant, counted from now; returns now and the jobs' ids."""
    now: datetime = await connection.fetchval("select clock_timestamp()")
    drafts = []
    for number, ahead in enumerate(instants):
        spec = JobSpec(name=f"bench {number}", task=PythonTask("bench.nothing"), scheduled_at=now + ahead)
        drafts.append(Draft(new_job_id(now), spec, "null", spec.scheduled_at))
    await create(url, drafts, now)
    await connection.execute("select pg_notify($1, $2)", TIMERS, EVERYTHING)
    left = now + min(instants) - await connection.fetchval("select clock_timestamp()")
    if left < timedelta(seconds=1):
        raise RuntimeError(
            f"the jobs were made {left.total_seconds():.1f} s before the first instant: too late"
        )
    return now, [draft.job_id for draft in drafts]


def ahead(n: int) -> float:
    """Seconds from now to the first instant of `n` one-time jobs, so that all are made well before it."""
    return 3.0 + n / CREATED_PER_SECOND


async def create_ticking_jobs(url: str, connection: Connection, n: int) -> list[UUID]:
    """Make `n` jobs that are due once a second, in phases all over the second."""
    now: datetime = await connection.fetchval("select clock_timestamp()")
    spec = JobSpec(name="bench", task=PythonTask("bench.nothing"), every=1.0)
    made: list[UUID] = []
    for phase in range(PHASES):
        armed = now + timedelta(seconds=phase / PHASES)
        due_at = armed + timedelta(seconds=5)
        count = n * (phase + 1) // PHASES - n * phase // PHASES
        drafts = [Draft(new_job_id(now), spec, "null", due_at) for _ in range(count)]
        if drafts:
            await create(url, drafts, armed)
        made += [draft.job_id for draft in drafts]
    await connection.execute("select pg_notify($1, $2)", TIMERS, EVERYTHING)
    return made


async def settle(connection: Connection, *tables: str) -> None:
    """The loading belongs to no figure: neither its checkpoint nor the statistics it leaves behind."""
    for table in tables:
        await connection.execute(f"vacuum analyze detent.{table}")
    await connection.execute("checkpoint")


async def create(url: str, drafts: Sequence[Draft], now: datetime) -> None:
    """As the program makes jobs, in batches."""
    database = await Database.open(url, size=2, application_name="detent bench")
    try:
        for start in range(0, len(drafts), CREATE_BATCH):
            await create_jobs(database, DEFAULT_TENANT, drafts[start : start + CREATE_BATCH], now)
    finally:
        await database.close()
