"""Changing jobs: edits, pausing, resuming, names.

Every change runs the same way. Lock the job's timer, read where the job stands in a new statement, let a
pure function decide, write what it decided, bump the timer's version, read the job back. The lock makes
fires wait; the version makes a scheduler's copy of the timer worthless.

A fire that is staged, and that no worker has claimed, is taken back first: the change finds the job as it
would be if the instant had not been staged. Nothing is taken back for a change that changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dataclasses import replace as replaced
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from detent.model.errors import Conflict, NotFound
from detent.model.ids import day_true
from detent.model.job import Job, JobSpec
from detent.store.database import Connection, Database
from detent.store.job_create import Draft, encode_spec, insert_jobs
from detent.store.job_read import Standing, read_jobs
from detent.store.partitions import with_partitions
from detent.store.repeat import repeated
from detent.store.request_keys import RequestKey, claim_key
from detent.store.sql import Queries

# A name may have any number of ended jobs; only so many of the newest are searched for one to adopt.
NAMESAKES = 1_000


@dataclass(frozen=True, slots=True)
class Revision:
    spec: JobSpec
    payload: str
    armed_at: datetime


@dataclass(frozen=True, slots=True)
class Skipped:
    """Instants that passed while the job was `state`: paused or parked."""

    first: datetime
    last: datetime
    count: int
    state: str = "paused"


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be written. `revive` makes an ended job live again; `detach` keeps what the job has open
    from deciding about its end.
    """

    timer_status: str
    due_at: datetime | None
    decided_through: datetime | None
    generation: int
    revision: Revision | None = None
    skipped: Skipped | None = None
    revive: bool = False
    detach: bool = False


Decide = Callable[[Standing], Change | None]


@dataclass(frozen=True, slots=True)
class Changed:
    job: Job
    changed: bool
    created: bool = False


async def change_job(
    database: Database, tenant: int, job_id: UUID, decide: Decide, now: datetime, key: RequestKey | None
) -> Changed:
    """Apply what `decide` says of the job as it stands; None changes nothing."""

    async def attempt() -> Changed:
        async with database.transaction() as connection:
            standing = await lock_job(connection, tenant, job_id)
            if await claim_key(connection, tenant, key, job_id) is not None:
                return Changed(standing.job, changed=False)
            return await _apply(connection, tenant, standing, decide(standing), now)

    return await with_partitions(database, now, lambda: repeated(attempt))


async def put_by_name(
    database: Database, tenant: int, draft: Draft, decide: Decide, now: datetime, key: RequestKey | None
) -> Changed:
    """Make the job that a name stands for, or change it by `decide`."""
    queries = Queries.load()
    name = draft.spec.name

    async def attempt() -> Changed:
        async with database.transaction() as connection:
            await connection.execute(queries.lock_name, tenant, name)
            target = await _job_of_name(connection, tenant, name)
            earlier = await claim_key(connection, tenant, key, draft.job_id if target is None else target)
            if earlier is not None:
                known = await read_jobs(connection, tenant, [earlier])
                return Changed(known[earlier].job, changed=False)
            if target is None:
                with _one_for_each_name(name):
                    await insert_jobs(connection, tenant, [draft], now, by_name=True)
                made = await read_jobs(connection, tenant, [draft.job_id])
                return Changed(made[draft.job_id].job, changed=True, created=True)
            standing = await lock_job(connection, tenant, target)
            if not standing.by_name:
                with _one_for_each_name(name):
                    await connection.execute(queries.set_by_name, tenant, target, True)
            return await _apply(connection, tenant, standing, decide(standing), now)

    return await with_partitions(database, now, lambda: repeated(attempt))


@contextlib.contextmanager
def _one_for_each_name(name: str) -> Iterator[None]:
    """A rename takes no lock on the name: whoever meets it comes second."""
    try:
        yield
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name != "one_job_by_name":
            raise
        raise Conflict("name_taken", f"another job stands for the name {name!r}") from error


async def _job_of_name(connection: Connection, tenant: int, name: str) -> UUID | None:
    """The job that a name stands for; else the only one of that name that has not ended."""
    queries = Queries.load()
    rows = await connection.fetch(queries.jobs_of_name, tenant, name, NAMESAKES)
    for row in rows:
        if row["by_name"] and row["ended"] != "cancelled":
            found: UUID = row["job_id"]
            return found
    others: list[UUID] = [row["job_id"] for row in rows if not row["by_name"]]
    if len(others) > 1:
        raise Conflict(
            "ambiguous_name", f"several jobs are called {name!r}: cancel all but one, or edit them by id"
        )
    for row in rows:
        if row["by_name"]:  # cancelled: the name is free again
            await connection.execute(queries.set_by_name, tenant, row["job_id"], False)
    return others[0] if others else None


async def lock_job(connection: Connection, tenant: int, job_id: UUID) -> Standing:
    """Take the job's turn; answers where it stands, without what is staged."""
    queries = Queries.load()
    locked = await connection.fetchrow(queries.lock_timer, tenant, job_id)
    if locked is None:
        raise NotFound("no such job")
    staged = await connection.fetchrow(queries.lock_staged, tenant, job_id) if locked["ahead"] else None
    standing = (await read_jobs(connection, tenant, [job_id]))[job_id]
    if staged is None:
        return standing
    due_at = staged["scheduled_for"]
    return replaced(
        standing,
        job=msgspec.structs.replace(standing.job, status="scheduled", next_run_at=due_at),
        due_at=due_at,
        decided_through=staged["decided_before"],
        timer_status="scheduled",
        staged=staged["execution_id"],
    )


async def unstage(connection: Connection, tenant: int, standing: Standing) -> None:
    """Make the job stand where it was said to stand."""
    if standing.staged is not None:
        await connection.execute(Queries.load().unstage, tenant, standing.job.job_id, standing.staged)


async def _apply(
    connection: Connection, tenant: int, standing: Standing, change: Change | None, now: datetime
) -> Changed:
    job = standing.job
    if change is None:
        return Changed(job, changed=False)
    queries = Queries.load()
    await unstage(connection, tenant, standing)
    number = job.revision
    if (revision := change.revision) is not None:
        number += 1
        spec = revision.spec
        with _one_for_each_name(spec.name):
            await connection.execute(
                queries.revise_job,
                tenant,
                job.job_id,
                number,
                encode_spec(spec),
                revision.payload,
                revision.armed_at,
                now,
                spec.name,
                spec.pool,
                list(spec.tags),
            )
    if (skipped := change.skipped) is not None:
        await connection.execute(
            queries.add_skipped,
            tenant,
            job.job_id,
            standing.generation,
            skipped.first,
            day_true(skipped.first, now).date(),
            now,
            skipped.last,
            skipped.count,
            job.revision,
            f"the job was {skipped.state}",
        )
    if change.revive:
        await connection.execute(queries.revive_job, tenant, job.job_id)
    if change.detach:
        await connection.execute(queries.detach_executions, tenant, job.job_id)
    await connection.execute(
        queries.change_timer,
        tenant,
        job.job_id,
        change.timer_status,
        change.due_at,
        change.decided_through,
        change.generation,
        now,
    )
    read = await read_jobs(connection, tenant, [job.job_id])
    return Changed(read[job.job_id].job, changed=True)
