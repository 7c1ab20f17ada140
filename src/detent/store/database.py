"""Access to PostgreSQL: a small pool of connections for one process.

Every call maps what means "the store cannot be had" to StoreUnavailable; see `unavailable`. A single
statement that the server undid because of others is repeated here; see `repeat`. A transaction of several
is its user's to repeat, as a whole. How a connection is set up is told in `session`, which also has the
connections outside of the pool.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Literal, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from detent.model.errors import StartupError, StoreUnavailable
from detent.store.repeat import repeated
from detent.store.session import (
    CLOSE_SECONDS,
    COMMAND_SECONDS,
    Connection,
    Dedicated,
    Record,
    connect,
    keep_alive,
    keep_trying,
    options,
    session,
)
from detent.store.sql import Queries
from detent.store.unavailable import DRIVER_ERRORS, broken, opening_errors, shown, trouble_in

__all__ = ["Connection", "Database", "Dedicated", "Isolation", "Record"]

Isolation: TypeAlias = Literal["read_committed", "repeatable_read", "serializable"]

OLDEST_SERVER = 15
ACQUIRE_SECONDS = 30.0


class Database:
    """A pool of connections of one process to one database."""

    def __init__(self, url: str, settings: dict[str, str], pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._url = url
        self._settings = settings
        self._pool = pool

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        size: int = 4,
        application_name: str = "detent",
        hot: bool = False,
        wait_until: float | None = None,
    ) -> Database:
        """Connect, and check that the server is new enough and has room for `size` connections.

        With `wait_until` (an instant of `time.monotonic`) an unreachable server is tried again until then.
        """
        settings = session(application_name, hot=hot)

        async def attempt() -> asyncpg.Pool[asyncpg.Record]:
            with opening_errors(url):
                return await asyncpg.create_pool(
                    url,
                    min_size=min(size, 2),
                    max_size=size,
                    max_queries=1_000_000,
                    max_inactive_connection_lifetime=0,
                    init=keep_alive,
                    reset=_as_it_is,
                    **options(url, settings, COMMAND_SECONDS),
                )

        database = cls(url, settings, await keep_trying(attempt, wait_until))
        try:
            await database._check(size)
        except BaseException:
            database._pool.terminate()
            raise
        return database

    async def _check(self, size: int) -> None:
        facts = await self.fetchrow(Queries.load().server_facts)
        assert facts is not None
        if facts["version_number"] < OLDEST_SERVER * 10_000:
            raise StartupError(
                f"the database at {shown(self._url)} is PostgreSQL {facts['version']}: "
                f"Detent needs {OLDEST_SERVER} or newer"
            )
        if facts["connections"] < size:
            raise StartupError(
                f"the database at {shown(self._url)} allows us {facts['connections']} connections, and this "
                f"process needs {size}: raise max_connections there"
            )

    @property
    def url(self) -> str:
        return self._url

    def connection(self) -> Lease:
        """A connection of the pool, for one piece of work: `async with db.connection() as c`."""
        return Lease(self._pool, self._url)

    @contextlib.asynccontextmanager
    async def transaction(
        self, *, isolation: Isolation | None = None, readonly: bool = False
    ) -> AsyncIterator[Connection]:
        """A connection inside a transaction: committed at the end, rolled back on any exception.

        StoreUnavailable raised by the commit itself leaves open whether it happened.
        """
        async with (
            self.connection() as connection,
            connection.transaction(isolation=isolation, readonly=readonly),
        ):
            yield connection

    async def fetch(self, query: str, *args: Any, patient: bool = True) -> list[Record]:
        """Without patience, what was undone because of others is not repeated: the caller does better."""

        async def attempt() -> list[Record]:
            async with self.connection() as connection:
                return await connection.fetch(query, *args)

        return await (repeated(attempt) if patient else attempt())

    async def fetchrow(self, query: str, *args: Any) -> Record | None:
        async def attempt() -> Record | None:
            async with self.connection() as connection:
                return await connection.fetchrow(query, *args)

        return await repeated(attempt)

    async def fetchval(self, query: str, *args: Any) -> Any:
        async def attempt() -> Any:
            async with self.connection() as connection:
                return await connection.fetchval(query, *args)

        return await repeated(attempt)

    async def execute(self, query: str, *args: Any) -> str:
        async def attempt() -> str:
            async with self.connection() as connection:
                return await connection.execute(query, *args)

        return await repeated(attempt)

    async def dedicated(self) -> Dedicated:
        """A connection outside of the pool, on the running loop, which the caller closes."""
        return Dedicated(await connect(self._url, self._settings))

    async def close(self) -> None:
        """Wait a moment for work under way, then close every connection of the pool."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._pool.close()
        except (TimeoutError, *DRIVER_ERRORS, OSError):
            self._pool.terminate()


class Lease:
    """A pool's connection from `async with` to its end. On the path of every statement, so kept lean."""

    __slots__ = ("_connection", "_pool", "_url")

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], url: str) -> None:
        self._pool = pool
        self._url = url

    async def __aenter__(self) -> Connection:
        # A free connection needs no clock to wait for it: a timed wait makes a task of its own.
        patience = None if self._pool.get_idle_size() else ACQUIRE_SECONDS
        try:
            with opening_errors(self._url):
                self._connection: PoolConnectionProxy[asyncpg.Record] = await self._pool.acquire(
                    timeout=patience
                )
        except StoreUnavailable as error:
            if isinstance(error.__cause__, TimeoutError):
                raise StoreUnavailable("no connection to the database came free in time") from error.__cause__
            raise
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            # We talk to what used to be the primary: connect anew, and the driver looks for the new one.
            await self._pool.expire_connections()
        if error is not None and broken(error):
            self._connection.terminate()
        # What was asked is answered by now: a connection lost on its way back is the pool's to replace.
        with contextlib.suppress(*DRIVER_ERRORS, OSError):
            await self._pool.release(self._connection)
        if error is not None and (trouble := trouble_in(error)):
            raise trouble from error


async def _as_it_is(_connection: Any) -> None:
    """A connection goes back as it is: the driver has rolled back, and nobody changed the session."""
