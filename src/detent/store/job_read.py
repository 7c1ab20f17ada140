"""Reading jobs: one, a filtered list, the ledger, and what fires next.

A list is read in stretches. Each statement looks at a bounded number of candidates, taken from the index
that fits the filters best, newest first; what is left of the filters is checked on these. A page that is
not full after one stretch is filled from the next. When even the budget of stretches is spent the page
stays short and its cursor says where to go on: no filter, however odd, makes one request read the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from detent.model.job import Job, JobSpec, JobStatus
from detent.store.database import Connection, Database, Record
from detent.store.listing import Page, Stretch, fill_page
from detent.store.sql import Queries

_decode_spec = msgspec.json.Decoder(JobSpec).decode
ENDED = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Standing:
    """A job and where its clockwork stands."""

    job: Job
    due_at: datetime | None
    decided_through: datetime | None
    generation: int
    timer_status: str
    ended: str | None
    by_name: bool
    # The execution of a staged instant, of which the rest says nothing: who changes the job takes it back.
    staged: UUID | None = None


@dataclass(frozen=True, slots=True)
class JobFilter:
    name: str | None = None
    tag: str | None = None
    status: str | None = None
    pool: str | None = None

    @property
    def source(self) -> str:
        """The index that gives the candidates: the most selective one that the filters allow."""
        if self.name is not None:
            return "name"
        if self.tag is not None:
            return "tag"
        if self.status in ENDED:
            return "ended"
        if self.status in ("paused", "running"):
            return self.status
        if self.pool not in (None, "default"):
            return "pool"
        return "all"

    @property
    def exact(self) -> bool:
        """Whether every candidate of that index is in the list: nothing is left to check."""
        given = [value for value in (self.name, self.tag, self.status, self.pool) if value is not None]
        return len(given) <= 1 and not (given and self.source in ("all", "running", "paused"))


async def read_jobs(connection: Connection, tenant: int, job_ids: Sequence[UUID]) -> dict[UUID, Standing]:
    if not job_ids:
        return {}
    rows = await connection.fetch(Queries.load().read_jobs, tenant, list(job_ids))
    return {row["job_id"]: standing_of(row) for row in rows}


async def read_job(database: Database, tenant: int, job_id: UUID) -> Standing | None:
    row = await database.fetchrow(Queries.load().read_jobs, tenant, [job_id])
    return None if row is None else standing_of(row)


async def read_each_job(
    database: Database, tenant: int, job_ids: Sequence[UUID]
) -> list[Standing | Exception | None]:
    """Jobs asked for apart: None for one that is not there, an error for one that is unreadable."""
    rows = await database.fetch(Queries.load().read_jobs, tenant, list(job_ids))
    found = {row["job_id"]: row for row in rows}
    return [_read(found.get(job_id)) for job_id in job_ids]


def _read(row: Record | None) -> Standing | Exception | None:
    try:
        return None if row is None else standing_of(row)
    except msgspec.MsgspecError as error:
        return error


async def list_jobs(
    database: Database, tenant: int, wanted: JobFilter, *, before: UUID | None, limit: int, skip: int = 0
) -> Page[Job]:
    """Newest first, those with ids below `before`, past the first `skip` of them."""
    text = Queries.load().list_jobs

    async def look(before: UUID, scan: int, limit: int, skip: int) -> Stretch[Job]:
        rows = await database.fetch(
            text,
            tenant,
            wanted.source,
            wanted.name,
            wanted.tag,
            wanted.status,
            wanted.pool,
            before,
            scan,
            limit,
            skip,
        )
        jobs = [standing_of(row).job for row in rows if row["job_id"] is not None]
        head = rows[0]
        end = head["scan_end"] if head["scanned"] >= scan else None
        return Stretch(jobs, head["matched"], end)

    return await fill_page(
        look, key=lambda job: job.job_id, exact=wanted.exact, before=before, limit=limit, skip=skip
    )


def standing_of(row: Record) -> Standing:
    spec = _decode_spec(row["spec"])
    status: JobStatus
    if row["ended"] is not None:
        status = row["ended"]
    elif row["timer_status"] == "paused":
        status = "paused"
    elif spec.once and row["timer_status"] == "done" and row["ending"] and row["staged_for"] is None:
        status = "running"
    else:
        status = "scheduled"
    job = Job(
        tenant=row["tenant"],
        job_id=row["job_id"],
        spec=spec,
        payload=row["payload"],
        status=status,
        next_run_at=row["staged_for"] or (row["due_at"] if row["timer_status"] == "scheduled" else None),
        revision=row["revision"],
        armed_at=row["armed_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        idempotency_key=row["idempotency_key"],
        parked_reason=row["parked_reason"],
    )
    return Standing(
        job=job,
        due_at=row["due_at"],
        decided_through=row["decided_through"],
        generation=row["generation"],
        timer_status=row["timer_status"],
        ended=row["ended"],
        by_name=row["by_name"],
    )


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the ledger."""

    nominal_at: datetime
    generation: int
    decision: str
    decided_at: datetime
    through_at: datetime | None
    instants: int | None
    execution_id: UUID | None
    revision: int
    node_id: UUID | None
    reason: str | None


async def list_fires(
    database: Database, tenant: int, job_id: UUID, before: tuple[datetime, int], limit: int
) -> list[Fire]:
    """The ledger of a job below (instant, generation), newest first."""
    rows = await database.fetch(Queries.load().list_fires, tenant, job_id, *before, limit)
    return [Fire(**dict(row)) for row in rows]


async def upcoming_jobs(database: Database, tenant: int, limit: int) -> list[dict[str, Any]]:
    rows = await database.fetch(Queries.load().upcoming_jobs, tenant, limit)
    return [dict(row) for row in rows]


async def names_of_jobs(database: Database, tenant: int, job_ids: Iterable[UUID]) -> dict[UUID, str]:
    """The names of the jobs that a page of executions shows."""
    wanted = list(set(job_ids))
    if not wanted:
        return {}
    rows = await database.fetch(Queries.load().names_of_jobs, tenant, wanted)
    return {row["job_id"]: row["name"] for row in rows}
