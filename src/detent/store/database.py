"""Access to PostgreSQL: a small pool, and connections outside of it.

Every connection gets the same session: UTC, our schema first, generic plans (statements are prepared
once and their parameters never deserve a plan of their own), no JIT, and time limits on both sides. Hot
connections are also forbidden the plans that are right for an empty table and ruinous when it has grown.

The settings travel in the startup message, not in SET statements: they are the session's defaults, so
nothing has to be restored when a connection goes back to the pool, and returning one costs no round
trip. For that reason no code may change a session's settings except by SET LOCAL.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal, TypeAlias, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from detent.model.errors import StartupError, StoreUnavailable
from detent.store.sql import Queries
from detent.store.unavailable import opening_errors, shown, store_errors

Record: TypeAlias = asyncpg.Record
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"
Isolation: TypeAlias = Literal["read_committed", "repeatable_read", "serializable"]
_T = TypeVar("_T")

OLDEST_SERVER = 15
CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 30.0
# A little more than the server's own limit: this one is for a server that does not answer at all.
COMMAND_SECONDS = 40.0
ACQUIRE_SECONDS = 30.0
CLOSE_SECONDS = 5.0
PAUSE_FIRST, PAUSE_CAP = 0.05, 2.0

_SESSION = {
    "search_path": "detent, pg_catalog",
    "timezone": "UTC",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_HOT = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off"}


def session(
    application_name: str, *, hot: bool = False, statement_seconds: float = STATEMENT_SECONDS
) -> dict[str, str]:
    """The settings of one session."""
    limits = {"application_name": application_name, "statement_timeout": str(int(statement_seconds * 1000))}
    return _SESSION | limits | (_HOT if hot else {})


async def connect(
    url: str, settings: dict[str, str], *, command_seconds: float | None = COMMAND_SECONDS
) -> asyncpg.Connection[asyncpg.Record]:
    """One connection of its own."""
    with opening_errors(url):
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
            url, **_options(url, settings, command_seconds)
        )
    await _keep_alive(connection)
    return connection


async def keep_trying(attempt: Callable[[], Awaitable[_T]], until: float | None) -> _T:
    """Repeat `attempt` while the store is unavailable, up to the monotonic instant `until`."""
    pause = PAUSE_FIRST
    while True:
        try:
            return await attempt()
        except StoreUnavailable:
            left = until - time.monotonic() if until is not None else 0.0
            if left <= 0:
                raise
            await asyncio.sleep(min(left, pause * random.uniform(0.5, 1.0)))  # noqa: S311 - only spreads
            pause = min(pause * 2, PAUSE_CAP)


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
                    init=_keep_alive,
                    reset=_as_it_is,
                    **_options(url, settings, COMMAND_SECONDS),
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

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection of the pool, for one piece of work."""
        try:
            with opening_errors(self._url):
                connection = await self._pool.acquire(timeout=ACQUIRE_SECONDS)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, TimeoutError):
                raise StoreUnavailable("no connection to the database came free in time") from error.__cause__
            raise
        try:
            with store_errors():
                yield connection
        except StoreUnavailable as error:
            if isinstance(error.__cause__, asyncpg.ReadOnlySQLTransactionError):
                # We talk to what used to be the primary: connect anew, and the driver looks for the new one.
                await self._pool.expire_connections()
            raise
        finally:
            # What was asked is answered by now: a connection lost on its way back is the pool's to replace.
            with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await self._pool.release(connection)

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

    async def fetch(self, query: str, *args: Any) -> list[Record]:
        async with self.connection() as connection:
            return await connection.fetch(query, *args)

    async def fetchrow(self, query: str, *args: Any) -> Record | None:
        async with self.connection() as connection:
            return await connection.fetchrow(query, *args)

    async def fetchval(self, query: str, *args: Any) -> Any:
        async with self.connection() as connection:
            return await connection.fetchval(query, *args)

    async def execute(self, query: str, *args: Any) -> str:
        async with self.connection() as connection:
            return await connection.execute(query, *args)

    async def dedicated(self) -> Dedicated:
        """A connection outside of the pool, on the running loop, which the caller closes."""
        return Dedicated(await connect(self._url, self._settings))

    async def close(self) -> None:
        """Wait a moment for work under way, then close every connection of the pool."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._pool.close()
        except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            self._pool.terminate()


class Dedicated:
    """One connection for one purpose: listening, heartbeats, a session's advisory lock."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any) -> list[Record]:
        with store_errors():
            return await self._connection.fetch(query, *args)

    async def fetchrow(self, query: str, *args: Any) -> Record | None:
        with store_errors():
            return await self._connection.fetchrow(query, *args)

    async def fetchval(self, query: str, *args: Any) -> Any:
        with store_errors():
            return await self._connection.fetchval(query, *args)

    async def execute(self, query: str, *args: Any) -> str:
        with store_errors():
            return await self._connection.execute(query, *args)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        with store_errors():
            async with self._connection.transaction():
                yield self._connection

    async def listen(self, channel: str, heard: Callable[[str], None]) -> None:
        """Call `heard` with the payload of every notification on `channel`, until the connection ends."""

        def on_message(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            heard(str(payload))

        with store_errors():
            await self._connection.add_listener(channel, on_message)

    def on_lost(self, lost: Callable[[], None]) -> None:
        """Call `lost` once when the connection ends, however it ends."""
        self._connection.add_termination_listener(lambda _connection: lost())

    def is_closed(self) -> bool:
        return self._connection.is_closed()

    async def close(self) -> None:
        try:
            await self._connection.close(timeout=CLOSE_SECONDS)
        except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            self._connection.terminate()


def _options(url: str, settings: dict[str, str], command_seconds: float | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "timeout": CONNECT_SECONDS,
        "command_timeout": command_seconds,
        "server_settings": settings,
    }
    # Decisions are taken on the primary only; with several hosts in the URL the driver finds it.
    if "target_session_attrs" not in url:
        options["target_session_attrs"] = "read-write"
    return options


async def _keep_alive(connection: Any) -> None:
    """Let the kernel notice a peer that is gone. The driver has no option for it: we reach for its socket."""
    transport = getattr(connection, "_transport", None)
    peer = transport.get_extra_info("socket") if transport is not None else None
    if peer is None or peer.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(peer.fileno())) as handle:
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
        for name, value in options.items():
            if hasattr(socket, name):
                handle.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def _as_it_is(_connection: Any) -> None:
    """A connection goes back as it is: the driver has rolled back, and nobody changed the session."""
