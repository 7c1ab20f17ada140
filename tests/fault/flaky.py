"""Tables that fail as told: PostgreSQL itself raises an error of that code, the first so many times or for good.

How often is counted by a sequence, which a rolled back transaction does not set back.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable

from detent.store.database import Database

DEADLOCK, SERIALIZATION, LOCK_TIMEOUT, CANCELLED = "40P01", "40001", "55P03", "57014"
BUSY = (DEADLOCK, SERIALIZATION, LOCK_TIMEOUT, CANCELLED)
FOR_GOOD = 1_000_000

HOT = ("timers", "fires", "live", "executions", "attempts", "logs", "jobs", "job_ends", "dead_letters")

_MAKE = """
create sequence detent.flaky_turns;
create function detent.flaky() returns trigger language plpgsql as $$
begin
    if nextval('detent.flaky_turns') <= {times} then
        raise exception 'told to fail' using errcode = '{code}';
    end if;
    return null;
end $$;
"""
_TRIGGER = """
create trigger flaky before insert or update or delete on detent.{table}
for each statement execute function detent.flaky()
"""


@contextlib.asynccontextmanager
async def flaky(db: Database, code: str, times: int, tables: Iterable[str] = HOT) -> AsyncIterator[None]:
    """Writing to any of these tables fails."""
    await db.execute(_MAKE.format(times=times, code=code))
    try:
        for table in tables:
            await db.execute(_TRIGGER.format(table=table))
        yield
    finally:
        await db.execute("drop function detent.flaky() cascade")
        await db.execute("drop sequence detent.flaky_turns")


async def failures(db: Database) -> int:
    """How often a table was written to, whether it failed or not."""
    turns: int = await db.fetchval(
        "select case when is_called then last_value else 0 end from detent.flaky_turns"
    )
    return turns
