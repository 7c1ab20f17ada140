"""Callbacks that wait to be delivered: taken under a lease, dropped when delivered, put off or given up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from detent.store.database import Database
from detent.store.sql import Queries

queries = Queries.load()


@dataclass(frozen=True, slots=True)
class Due:
    """One callback that was taken, and what it has to say: how an execution closed.

    `origin` is the receiver, the URL up to its path. The fields from `name` on are None where history no
    longer has the execution.
    """

    execution_id: UUID
    job_id: UUID
    url: str
    origin: str
    tries: int
    name: str | None
    status: str | None
    cause: str | None
    scheduled_for: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int | None
    result: str | None
    error: str | None


class PutOff(NamedTuple):
    """One callback that was not delivered, in the order of the statement's parameters. No pause: given up."""

    execution_id: UUID
    tries: int
    pause: timedelta | None
    error: str


async def take(
    db: Database, limit: int, under_way: Mapping[str, int], per_origin: int, lease: timedelta
) -> list[Due]:
    rows = await db.fetch(
        queries.take_callbacks, limit, list(under_way.keys()), list(under_way.values()), per_origin, lease
    )
    return [Due(**dict(row)) for row in rows]


async def drop(db: Database, delivered: Sequence[UUID]) -> None:
    await db.execute(queries.drop_callbacks, list(delivered))


async def put_off(db: Database, batch: Sequence[PutOff]) -> set[UUID]:
    """Answers those that were still ours; the others were taken again meanwhile."""
    rows = await db.fetch(queries.put_off_callbacks, *[list(column) for column in zip(*batch, strict=True)])
    return {row[0] for row in rows}
