"""Making jobs: one statement for one or for ten thousand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from detent.model.ids import shard_of
from detent.model.job import Job, JobSpec
from detent.store.database import Connection, Database
from detent.store.job_read import read_jobs
from detent.store.repeat import repeated
from detent.store.request_keys import RequestKey, claim_keys
from detent.store.sql import Queries


@dataclass(frozen=True, slots=True)
class Draft:
    """A job to be made. `due_at` is its first instant; None for one that only runs when asked to."""

    job_id: UUID
    spec: JobSpec
    payload: str
    due_at: datetime | None
    idempotency_key: str | None = None
    request_key: RequestKey | None = None


@dataclass(frozen=True, slots=True)
class Made:
    job: Job
    new: bool


async def create_jobs(database: Database, tenant: int, drafts: Sequence[Draft], now: datetime) -> list[Made]:
    """Make all of the jobs or none, in order. One that was asked for before under its key is answered as
    it stands; without keys it takes a single round trip.
    """
    if not drafts:
        return []
    if all(draft.request_key is None for draft in drafts):
        return await repeated(lambda: _create_all(database, tenant, drafts, now))
    return await repeated(lambda: _create_new(database, tenant, drafts, now))


async def _create_all(database: Database, tenant: int, drafts: Sequence[Draft], now: datetime) -> list[Made]:
    async with database.connection() as connection:
        await insert_jobs(connection, tenant, drafts, now)
    return [Made(_job(tenant, draft, now), new=True) for draft in drafts]


async def _create_new(database: Database, tenant: int, drafts: Sequence[Draft], now: datetime) -> list[Made]:
    """Those that were not asked for before under their keys."""
    async with database.transaction() as connection:
        before = await claim_keys(
            connection, tenant, [draft.request_key for draft in drafts], [draft.job_id for draft in drafts]
        )
        fresh = [draft for draft, earlier in zip(drafts, before, strict=True) if earlier is None]
        if fresh:
            await insert_jobs(connection, tenant, fresh, now)
        known = await read_jobs(connection, tenant, [earlier for earlier in before if earlier is not None])
    return [
        Made(_job(tenant, draft, now), new=True) if earlier is None else Made(known[earlier].job, new=False)
        for draft, earlier in zip(drafts, before, strict=True)
    ]


async def insert_jobs(
    connection: Connection, tenant: int, drafts: Sequence[Draft], now: datetime, *, by_name: bool = False
) -> None:
    tags = [(draft.job_id, tag) for draft in drafts for tag in draft.spec.tags]
    await connection.execute(
        Queries.load().create_jobs,
        tenant,
        [draft.job_id for draft in drafts],
        [draft.spec.name for draft in drafts],
        [draft.spec.pool for draft in drafts],
        [draft.idempotency_key for draft in drafts],
        [encode_spec(draft.spec) for draft in drafts],
        [draft.payload for draft in drafts],
        [draft.due_at for draft in drafts],
        [shard_of(draft.job_id) for draft in drafts],
        ["idle" if draft.due_at is None else "scheduled" for draft in drafts],
        now,
        [job_id for job_id, _ in tags],
        [tag for _, tag in tags],
        by_name,
    )


def encode_spec(spec: JobSpec) -> str:
    return msgspec.json.encode(spec).decode()


def _job(tenant: int, draft: Draft, now: datetime) -> Job:
    return Job(
        tenant=tenant,
        job_id=draft.job_id,
        spec=draft.spec,
        payload=draft.payload,
        status="scheduled",
        next_run_at=draft.due_at,
        revision=1,
        armed_at=now,
        created_at=now,
        updated_at=now,
        idempotency_key=draft.idempotency_key,
    )
