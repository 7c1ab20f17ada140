"""Dead letters: listing and reading them, and the two ways to settle one.

A replay is one transaction: the letter is locked and marked, the new execution is queued with its payload,
and a one-time job that had failed lives again. Its identity is (replay, source): even a repeat whose first
answer was lost meets the letter as it was left.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from detent.model.errors import Conflict, NotFound
from detent.model.execution import ErrorInfo
from detent.model.ids import execution_id
from detent.model.job import CLASSES, JobSpec
from detent.store.database import Connection, Database, Record
from detent.store.executions import error_of
from detent.store.job_read import read_jobs
from detent.store.listing import LAST, Page
from detent.store.partitions import with_partitions_of
from detent.store.repeat import repeated
from detent.store.request_keys import RequestKey, claim_key
from detent.store.sql import Queries
from detent.store.work_change import Run, read_one

queries = Queries.load()
_decode_spec = msgspec.json.Decoder(JobSpec).decode


@dataclass(frozen=True, slots=True)
class DeadLetter:
    execution_id: UUID
    job_id: UUID
    name: str
    revision: int
    status: str
    reason: str
    error: ErrorInfo | None
    died_at: datetime
    settled_at: datetime | None
    replayed_as: UUID | None
    note: str | None


@dataclass(frozen=True, slots=True)
class OpenedLetter:
    letter: DeadLetter
    spec: JobSpec
    payload: str


async def list_dead_letters(
    database: Database, tenant: int, *, job_id: UUID | None, status: str, before: UUID | None, limit: int
) -> Page[DeadLetter]:
    rows = await database.fetch(
        queries.list_dead_letters, tenant, job_id, status, LAST if before is None else before, limit + 1
    )
    letters = [_letter(row) for row in rows[:limit]]
    return Page(letters, letters[-1].execution_id if len(rows) > limit else None)


async def read_dead_letter(database: Database, tenant: int, execution: UUID) -> OpenedLetter | None:
    row = await database.fetchrow(queries.read_dead_letter, tenant, execution)
    return None if row is None else OpenedLetter(_letter(row), _decode_spec(row["spec"]), row["payload"])


async def discard(
    database: Database, tenant: int, execution: UUID, note: str | None, now: datetime, key: RequestKey | None
) -> None:
    """Let a letter rest."""

    async def attempt() -> None:
        async with database.transaction() as connection:
            status, _ = await _lock(connection, tenant, execution)
            if await claim_key(connection, tenant, key, execution) is not None or status == "discarded":
                return
            if status != "waiting":
                raise Conflict("wrong_state", f"the dead letter was {status}: there is nothing to discard")
            await _settle(connection, tenant, execution, "discarded", now, None, note)

    await repeated(attempt)


async def replay(
    database: Database,
    tenant: int,
    source: UUID,
    payload: str | None,
    note: str | None,
    now: datetime,
    key: RequestKey | None,
) -> Run:
    """Run the work of a letter once more, with its own payload or another one."""
    opened = await read_dead_letter(database, tenant, source)
    if opened is None:
        raise NotFound("no such dead letter")
    job_id = opened.letter.job_id
    new_id = execution_id(now, job_id, "replay", f"{source}:1")

    async def attempt() -> Run:
        async with database.transaction() as connection:
            await connection.fetchval(queries.lock_timer, tenant, job_id)
            standing = (await read_jobs(connection, tenant, [job_id]))[job_id]
            spec = standing.job.spec
            earlier = await claim_key(connection, tenant, key, new_id)
            if earlier is not None:
                return Run(await read_one(connection, tenant, earlier), spec.pool, new=False)
            status, replayed_as = await _lock(connection, tenant, source)
            if status != "waiting":
                as_which = f" as {replayed_as}" if replayed_as else ""
                raise Conflict("wrong_state", f"the dead letter was {status}{as_which}")
            if standing.ended == "cancelled":
                raise Conflict("wrong_state", "the job was cancelled: it runs no more")
            revives = spec.once and standing.ended == "failed"
            if revives:
                await connection.execute(queries.revive_job, tenant, job_id)
            deadline = spec.deadline_seconds
            await connection.execute(
                queries.queue_replay,
                tenant,
                new_id,
                job_id,
                now,
                standing.job.revision,
                CLASSES[spec.priority],
                spec.pool,
                None if deadline is None else now + timedelta(seconds=deadline),
                opened.payload if payload is None else payload,
                revives,
                source,
            )
            await _settle(connection, tenant, source, "replayed", now, new_id, note)
            return Run(await read_one(connection, tenant, new_id), spec.pool, new=True)

    return await with_partitions_of(database, now, [new_id], lambda: repeated(attempt))


async def replay_of(database: Database, tenant: int, execution: UUID) -> UUID | None:
    """The execution that replayed this one, if any did."""
    found: UUID | None = await database.fetchval(queries.replay_of, tenant, execution)
    return found


async def _lock(connection: Connection, tenant: int, execution: UUID) -> tuple[str, UUID | None]:
    row = await connection.fetchrow(queries.lock_dead_letter, tenant, execution)
    if row is None:
        raise NotFound("no such dead letter")
    return row["status"], row["replayed_as"]


async def _settle(
    connection: Connection,
    tenant: int,
    execution: UUID,
    status: str,
    now: datetime,
    replayed_as: UUID | None,
    note: str | None,
) -> None:
    await connection.fetchval(queries.lock_alert_of_letter, tenant, execution)
    await connection.execute(queries.settle_dead_letter, tenant, execution, status, now, replayed_as, note)


def _letter(row: Record) -> DeadLetter:
    fields: dict[str, Any] = {name: row[name] for name in DeadLetter.__dataclass_fields__}
    fields["error"] = error_of(fields["error"])
    return DeadLetter(**fields)
