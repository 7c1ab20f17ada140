"""What is there before a measurement starts: one job with a long queue, or many jobs with their timers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from bench.server import Connection
from detent.model.ids import DEFAULT_TENANT, new_job_id
from detent.model.job import CLASSES, JobSpec, PythonTask
from detent.runtime.notify import EVERYTHING, TIMERS
from detent.store.database import Database
from detent.store.jobs import Draft, create_jobs

CREATE_BATCH = 5000

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


async def queue_executions(url: str, connection: Connection, n: int) -> UUID:
    """Queue `n` executions of one manual job by one statement."""
    spec = JobSpec(name="bench", task=PythonTask("bench.write"))
    now: datetime = await connection.fetchval("select clock_timestamp()")
    draft = Draft(new_job_id(now), spec, "null", None)
    await _create(url, [draft], now)
    await connection.execute(_QUEUE, draft.job_id, n, DEFAULT_TENANT, CLASSES[spec.priority])
    await settle(connection, "live")
    return draft.job_id


async def create_due_jobs(url: str, connection: Connection, n: int) -> None:
    """Make `n` daily jobs whose next instant has just come."""
    spec = JobSpec(name="bench", task=PythonTask("bench.nothing"), cron="0 0 * * *")
    now: datetime = await connection.fetchval("select clock_timestamp()")
    await _create(url, [Draft(new_job_id(now), spec, "null", now) for _ in range(n)], now)
    await settle(connection, "timers")


async def create_once_jobs(
    url: str, connection: Connection, instants: Sequence[timedelta]
) -> tuple[datetime, list[UUID]]:
    """Make a one-time job for each instant, counted from now; returns now and the jobs' ids."""
    now: datetime = await connection.fetchval("select clock_timestamp()")
    drafts = []
    for number, ahead in enumerate(instants):
        spec = JobSpec(name=f"bench {number}", task=PythonTask("bench.nothing"), scheduled_at=now + ahead)
        drafts.append(Draft(new_job_id(now), spec, "null", spec.scheduled_at))
    await _create(url, drafts, now)
    await connection.execute("select pg_notify($1, $2)", TIMERS, EVERYTHING)
    return now, [draft.job_id for draft in drafts]


async def settle(connection: Connection, table: str) -> None:
    """The loading belongs to no figure: neither its checkpoint nor the statistics it leaves behind."""
    await connection.execute(f"vacuum analyze detent.{table}")
    await connection.execute("checkpoint")


async def _create(url: str, drafts: Sequence[Draft], now: datetime) -> None:
    database = await Database.open(url, size=2, application_name="detent bench")
    try:
        for start in range(0, len(drafts), CREATE_BATCH):
            await create_jobs(database, DEFAULT_TENANT, drafts[start : start + CREATE_BATCH], now)
    finally:
        await database.close()
