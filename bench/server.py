"""The database under measurement: a PostgreSQL of our own, and a fresh, migrated database for each figure."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any, TypeAlias

import asyncpg

from detent.store.embedded import Embedded, discard, temporary_folder
from detent.store.migrate import migrate
from detent.store.session import connect, session

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

START_SECONDS = 25.0  # a statement that waits longer is ended by its session's statement_timeout
LOOK_EVERY = 0.005

_WAITING = """
select count(*) from pg_locks
where relation = $1::text::regclass and not granted
  and database = (select oid from pg_database where datname = current_database())
"""

# Figures without these would be about another promise.
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")
_numbers = count(1)


@contextlib.contextmanager
def embedded() -> Iterator[Embedded]:
    """A server in a temporary folder, stopped and deleted at the end, however it ends."""
    folder = temporary_folder("detent-bench-")
    server = Embedded(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        discard(folder)


@contextlib.asynccontextmanager
async def fresh_database(server: Embedded, *, migrated: bool = True) -> AsyncIterator[str]:
    """The URL of a new database, with the schema: no figure inherits another's dead rows."""
    name = f"bench_{next(_numbers)}"
    await _administer(server.url, f"create database {name}")
    try:
        url = server.url.replace("/detent?", f"/{name}?")
        assert url != server.url
        if migrated:
            await migrate(url)
        yield url
    finally:
        if server.alive():
            await asyncio.shield(_administer(server.url, f"drop database {name} with (force)"))


@contextlib.asynccontextmanager
async def connection(url: str, *, hot: bool = False) -> AsyncIterator[Connection]:
    """A bare connection with the session that Detent itself uses, but for its limits: it may hold locks for long."""
    settings = session("detent bench", hot=hot, statement_seconds=0)
    settings["idle_in_transaction_session_timeout"] = "0"
    opened = await connect(url, settings, command_seconds=None)
    try:
        yield opened
    finally:
        await opened.close(timeout=5)


async def all_wait(watch: Connection, table: str, sessions: int, patience: float = START_SECONDS) -> None:
    """Wait until so many sessions wait for a table that we hold: they then start at one instant."""
    async with asyncio.timeout(patience):
        while await watch.fetchval(_WAITING, f"detent.{table}") < sessions:
            await asyncio.sleep(LOOK_EVERY)


async def durability(url: str) -> dict[str, str]:
    """The settings that make a commit durable. Raises if one of them is off."""
    async with connection(url) as c:
        shown: dict[str, str] = {name: await c.fetchval(f"show {name}") for name in DURABLE}
    off = [name for name, value in shown.items() if value != "on"]
    if off:
        raise RuntimeError(f"not durable, so not measured: {', '.join(off)} is not on")
    return shown


async def version(url: str) -> Any:
    async with connection(url) as c:
        return await c.fetchval("show server_version")


async def _administer(url: str, statement: str) -> None:
    async with connection(url) as c:
        await c.execute(statement)
