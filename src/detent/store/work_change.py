"""Running a job by hand, and cancelling: a job with everything it has open, or one execution.

Both take the job's timer row first. A run shares it, so that it holds up no fire but cannot slip past a
cancel; a cancel takes it whole. What no worker has is closed at once; what a worker has is asked to stop,
and its own finish closes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from detent.model.errors import Conflict, DetentError, NotFound
from detent.model.execution import Execution
from detent.model.ids import execution_id
from detent.model.job import CLASSES, Job
from detent.store.database import Connection, Database, Record
from detent.store.executions import execution_of
from detent.store.job_change import lock_job, unstage
from detent.store.job_read import read_jobs
from detent.store.partitions import with_partitions
from detent.store.repeat import repeated
from detent.store.request_keys import RequestKey, claim_key
from detent.store.sql import Queries

JOB_CANCELLED = "the job was cancelled"
CANCELLED = "cancelled on request"


@dataclass(frozen=True, slots=True)
class Run:
    execution: Execution
    pool: str
    new: bool


@dataclass(frozen=True, slots=True)
class RunAsked:
    """A job to be run by hand. `identity` tells this run from every other one."""

    job_id: UUID
    identity: str
    at: datetime
    key: RequestKey | None


async def run_each(database: Database, tenant: int, asked: Sequence[RunAsked]) -> list[Run | Exception]:
    """Queue executions that were asked for apart, each for itself."""
    ids = [execution_id(one.at, one.job_id, "manual", one.identity) for one in asked]
    rows = await database.fetch(
        Queries.load().run_each,
        tenant,
        ids,
        [one.job_id for one in asked],
        [one.at for one in asked],
        [one.key and one.key.scope for one in asked],
        [one.key and one.key.key for one in asked],
        [one.key and one.key.body_hash for one in asked],
    )
    queued = {row["execution_id"]: Run(_queued(row), row["pool"], new=True) for row in rows}

    async def answered(one: RunAsked, its_id: UUID) -> Run | Exception:
        if its_id in queued:
            return queued.pop(its_id)  # a repeat of it in the same breath finds it by its key
        try:
            return await run_job(database, tenant, one.job_id, one.identity, one.at, one.key)
        except DetentError as error:
            return error

    return [await answered(one, its_id) for one, its_id in zip(asked, ids, strict=True)]


def _queued(row: Record) -> Execution:
    return Execution(
        execution_id=row["execution_id"],
        job_id=row["job_id"],
        status="queued",
        cause="manual",
        scheduled_for=row["scheduled_for"],
        queued_at=row["scheduled_for"],
        started_at=None,
        finished_at=None,
        attempt=0,
        worker_id=None,
        result=None,
        error=None,
        revision=row["revision"],
    )


async def run_job(
    database: Database, tenant: int, job_id: UUID, identity: str, now: datetime, key: RequestKey | None
) -> Run:
    """Queue one more execution of a job. `identity` tells this run from every other one by hand."""
    queries = Queries.load()
    new_id = execution_id(now, job_id, "manual", identity)

    async def attempt() -> Run:
        async with database.transaction() as connection:
            if await connection.fetchval(queries.share_timer, tenant, job_id) is None:
                raise NotFound("no such job")
            standing = (await read_jobs(connection, tenant, [job_id]))[job_id]
            spec = standing.job.spec
            earlier = await claim_key(connection, tenant, key, new_id)
            if earlier is not None:
                return Run(await read_one(connection, tenant, earlier), spec.pool, new=False)
            if standing.ended == "cancelled":
                raise Conflict("wrong_state", "the job was cancelled: it runs no more")
            await connection.execute(
                queries.run_job,
                tenant,
                new_id,
                job_id,
                now,
                standing.job.revision,
                CLASSES[spec.priority],
                spec.pool,
                None if spec.deadline_seconds is None else now + timedelta(seconds=spec.deadline_seconds),
            )
            return Run(await read_one(connection, tenant, new_id), spec.pool, new=True)

    return await repeated(attempt)


@dataclass(frozen=True, slots=True)
class CancelledJob:
    job: Job
    changed: bool
    workers: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelledExecution:
    """`workers` have it and must be told."""

    execution: Execution
    workers: tuple[UUID, ...] = ()


async def cancel_job(
    database: Database, tenant: int, job_id: UUID, now: datetime, key: RequestKey | None
) -> CancelledJob:
    """End a job, and cancel what it has open."""
    queries = Queries.load()

    async def attempt() -> CancelledJob:
        async with database.transaction() as connection:
            standing = await lock_job(connection, tenant, job_id)
            earlier = await claim_key(connection, tenant, key, job_id)
            if earlier is not None or standing.ended == "cancelled":
                return CancelledJob(standing.job, changed=False)
            if standing.ended is not None:
                raise Conflict("wrong_state", f"the job is {standing.ended}: there is nothing to cancel")
            await unstage(connection, tenant, standing)
            await connection.execute(
                queries.change_timer,
                tenant,
                job_id,
                "done",
                None,
                standing.decided_through,
                standing.generation,
                now,
            )
            rows = await connection.fetch(queries.lock_open_executions, tenant, job_id, None)
            ids = [row["execution_id"] for row in rows]
            workers = await _cancel(connection, tenant, ids, now, JOB_CANCELLED)
            await connection.execute(queries.end_job, tenant, job_id, "cancelled", now)
            job = (await read_jobs(connection, tenant, [job_id]))[job_id].job
            return CancelledJob(job, changed=True, workers=workers)

    return await with_partitions(database, now, lambda: repeated(attempt))


async def cancel_execution(
    database: Database, tenant: int, execution: UUID, now: datetime, key: RequestKey | None
) -> CancelledExecution:
    """Cancel one open execution. If it is the one that a one-time job is about, that job ends with it.
    One that is staged is closed as well: taken back, its instant would fire again.
    """
    queries = Queries.load()

    async def attempt() -> CancelledExecution:
        async with database.transaction() as connection:
            job_id = await connection.fetchval(queries.find_execution, tenant, execution)
            if job_id is not None:
                await connection.fetchval(queries.lock_timer, tenant, job_id)
            if await claim_key(connection, tenant, key, execution) is not None:
                return CancelledExecution(await read_one(connection, tenant, execution))
            row = job_id and await connection.fetchrow(
                queries.lock_open_executions, tenant, job_id, execution
            )
            if not row:
                closed = await read_one(connection, tenant, execution)
                raise Conflict("wrong_state", f"the execution is {closed.status}: there is nothing to cancel")
            workers: tuple[UUID, ...] = ()
            if row["cancel_requested_at"] is None:
                workers = await _cancel(connection, tenant, [execution], now, CANCELLED)
                if row["ends_job"]:
                    await connection.execute(queries.end_job, tenant, job_id, "cancelled", now)
            return CancelledExecution(await read_one(connection, tenant, execution), workers)

    return await with_partitions(database, now, lambda: repeated(attempt))


async def _cancel(
    connection: Connection, tenant: int, executions: list[UUID], now: datetime, reason: str
) -> tuple[UUID, ...]:
    """Close what waits, and ask for the end of what runs. Answers the workers that have it."""
    if not executions:
        return ()
    queries = Queries.load()
    await connection.execute(queries.close_cancelled, tenant, executions, now, reason)
    asked = await connection.fetch(queries.ask_to_cancel, tenant, executions, now, reason)
    return tuple({row["worker_id"] for row in asked})


async def read_one(connection: Connection, tenant: int, execution: UUID) -> Execution:
    row = await connection.fetchrow(Queries.load().read_execution, tenant, execution)
    if row is None:
        raise NotFound("no such execution")
    return execution_of(row)
