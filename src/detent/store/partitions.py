"""A row whose day has no partition yet gets one on the spot.

Partitions are made days ahead, so this is for the odd case: an installation that slept for weeks, and a
request that comes before its keeper. The transaction failed as a whole; it is done again afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import date, datetime, timedelta
from typing import TypeVar
from uuid import UUID

import asyncpg

from detent.model.ids import DAY_TRUE_WITHIN, filed_day
from detent.store.database import Database
from detent.store.sql import Queries

T = TypeVar("T")


async def with_partitions(database: Database, now: datetime, attempt: Callable[[], Awaitable[T]]) -> T:
    try:
        return await attempt()
    except asyncpg.CheckViolationError as error:
        if "no partition" not in str(error):
            raise
    day = (now - DAY_TRUE_WITHIN).date()
    while day <= (now + DAY_TRUE_WITHIN).date():
        await database.execute(Queries.load().make_partitions_of_day, day)
        day += timedelta(days=1)
    return await attempt()


async def with_partitions_of(
    database: Database, now: datetime, ids: Iterable[UUID], attempt: Callable[[], Awaitable[T]]
) -> T:
    """The same for rows filed under the days that these executions' ids name, however old, and today."""
    try:
        return await attempt()
    except asyncpg.CheckViolationError as error:
        if "no partition" not in str(error):
            raise
    for day in sorted({filed_day(execution) for execution in ids} | {now.date()}):
        await make_partitions(database, day, day)
    return await attempt()


async def make_partitions(database: Database, first: date, last: date) -> int:
    return int(await database.fetchval(Queries.load().ensure_partitions, first, last))


async def drop_partitions(database: Database, before: date) -> int:
    """Drop the days before this one; those in use just now are left for the next time."""
    return int(await database.fetchval(Queries.load().drop_partitions, before))
