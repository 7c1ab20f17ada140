"""A row whose day has no partition yet gets one on the spot.

Partitions are made days ahead, so this is for the odd case: an installation that slept for weeks, and a
request that comes before its keeper. The transaction failed as a whole; it is done again afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

import asyncpg

from detent.model.ids import DAY_TRUE_WITHIN
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
