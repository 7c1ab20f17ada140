"""Making jobs: one statement for one or for ten thousand, asked for together or apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from detent.model.errors import DetentError
from detent.model.ids import shard_of
from detent.model.job import Job, JobSpec
from detent.store.database import Connection, Database
from detent.store.job_read import read_jobs
from detent.store.repeat import repeated
from detent.store.request_keys import RequestKey, claim_keys
from detent.store.sql import Queries


@dataclass(frozen=True, slots=True)
class Draft:
    """A job to be made. `due_at` is its first instant; None for one that only runs when asked to.
    `armed_at` is when its schedule was set; None for when those it is made with are.
    """

    job_id: UUID
    spec: JobSpec
    payload: str
    due_at: datetime | None
    idempotency_key: str | None = None
    request_key: RequestKey | None = None
    armed_at: datetime | None = None


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


async def create_each(database: Database, tenant: int, drafts: Sequence[Draft]) -> list[Made | Exception]:
    """Make jobs asked for apart, each for itself: what is wrong with one is the answer to that one."""
    now = max(draft.armed_at for draft in drafts if draft.armed_at is not None)

    async def attempt() -> set[UUID]:
        async with database.connection() as connection:
            keys = [draft.request_key for draft in drafts]
            return await insert_jobs(connection, tenant, drafts, now, keys=keys)

    made = await repeated(attempt)

    async def answered(draft: Draft) -> Made | Exception:
        if draft.job_id in made:
            return Made(_job(tenant, draft, now), new=True)
        try:  # its key was used before
            return (await create_jobs(database, tenant, [draft], now))[0]
        except DetentError as error:
            return error

    return [await answered(draft) for draft in drafts]


async def _create_all(database: Database, tenant: int, drafts: Sequence[Draft], now: datetime) -> list[Made]:
    async with database.connection() as connection:
        await insert_jobs(connection, tenant, drafts, now)
    return [Made(_job(tenant, draft, now), new=True) for draft in drafts]


async def _create_new(database: Database, tenant: int, drafts: Sequence[Draft], now: datetime) -> list[Made]:
    """Those that were not asked for before under their keys."""
    async with database.transaction() as connection:
        made = await insert_jobs(
            connection, tenant, drafts, now, keys=[draft.request_key for draft in drafts]
        )
        if len(made) == len(drafts):
            return [Made(_job(tenant, draft, now), new=True) for draft in drafts]
        asked = [None if draft.job_id in made else draft.request_key for draft in drafts]
        before = await claim_keys(connection, tenant, asked, [draft.job_id for draft in drafts])
        fresh = [
            draft
            for draft, earlier in zip(drafts, before, strict=True)
            if earlier is None and draft.job_id not in made
        ]
        if fresh:  # their keys were forgotten in between
            await insert_jobs(connection, tenant, fresh, now)
        known = await read_jobs(connection, tenant, [earlier for earlier in before if earlier is not None])
    return [
        Made(_job(tenant, draft, now), new=True) if earlier is None else Made(known[earlier].job, new=False)
        for draft, earlier in zip(drafts, before, strict=True)
    ]


async def insert_jobs(
    connection: Connection,
    tenant: int,
    drafts: Sequence[Draft],
    now: datetime,
    *,
    keys: Sequence[RequestKey | None] | None = None,
    by_name: bool = False,
) -> set[UUID]:
    """Write all that makes up these jobs; with `keys`, of those only whose key is new. Answers which."""
    asked = keys or [None] * len(drafts)
    rows = await connection.fetch(
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
        [draft.armed_at or now for draft in drafts],
        by_name,
        [key and key.scope for key in asked],
        [key and key.key for key in asked],
        [key and key.body_hash for key in asked],
    )
    return {row["job_id"] for row in rows}


def encode_spec(spec: JobSpec) -> str:
    return msgspec.json.encode(spec).decode()


def _job(tenant: int, draft: Draft, now: datetime) -> Job:
    armed_at = draft.armed_at or now
    return Job(
        tenant=tenant,
        job_id=draft.job_id,
        spec=draft.spec,
        payload=draft.payload,
        status="scheduled",
        next_run_at=draft.due_at,
        revision=1,
        armed_at=armed_at,
        created_at=armed_at,
        updated_at=armed_at,
        idempotency_key=draft.idempotency_key,
    )
