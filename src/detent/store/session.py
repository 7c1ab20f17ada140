"""Sessions: how every connection to PostgreSQL is set up, and connections of one's own.

Every connection gets the same session: UTC, our schema first, generic plans (statements are prepared
once and their parameters never deserve a plan of their own), no JIT, the isolation that our statements are
written for, and time limits on both sides: nobody waits long for a lock, and a process that was stopped in
the middle of a transaction does not keep its locks. Hot connections are also forbidden the plans that are
right for an empty table and ruinous when it has grown.

The settings travel in the startup message, not in SET statements: they are the session's defaults, so
nothing has to be restored when a connection goes back to a pool, and returning one costs no round trip.
For that reason no code may change a session's settings except by SET LOCAL.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeAlias, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from detent.model.errors import StoreUnavailable
from detent.store.unavailable import DRIVER_ERRORS, broken, opening_errors, store_errors

Record: TypeAlias = asyncpg.Record
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"
_T = TypeVar("_T")

CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 30.0
# A little more than the server's own limit: this one is for a server that does not answer at all.
COMMAND_SECONDS = 40.0
LOCK_SECONDS, HOT_LOCK_SECONDS = 2.0, 0.5
IDLE_IN_TRANSACTION_SECONDS = 10.0
CLOSE_SECONDS = 5.0
PAUSE_FIRST, PAUSE_CAP = 0.05, 2.0

_SESSION = {
    "search_path": "detent, pg_catalog",
    "timezone": "UTC",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": str(int(IDLE_IN_TRANSACTION_SECONDS * 1000)),
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_HOT = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off"}


def session(
    application_name: str,
    *,
    hot: bool = False,
    statement_seconds: float = STATEMENT_SECONDS,
    lock_seconds: float | None = None,
) -> dict[str, str]:
    """The settings of one session; zero seconds are no limit."""
    if lock_seconds is None:
        lock_seconds = HOT_LOCK_SECONDS if hot else LOCK_SECONDS
    limits = {
        "application_name": application_name,
        "statement_timeout": str(int(statement_seconds * 1000)),
        "lock_timeout": str(int(lock_seconds * 1000)),
    }
    return _SESSION | limits | (_HOT if hot else {})


async def connect(
    url: str, settings: dict[str, str], *, command_seconds: float | None = COMMAND_SECONDS
) -> asyncpg.Connection[asyncpg.Record]:
    """One connection of its own."""
    with opening_errors(url):
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
            url, **options(url, settings, command_seconds)
        )
    await keep_alive(connection)
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


class Dedicated:
    """One connection for one purpose: listening, heartbeats, a session's advisory lock."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any) -> list[Record]:
        with self._in_use():
            return await self._connection.fetch(query, *args)

    async def fetchrow(self, query: str, *args: Any) -> Record | None:
        with self._in_use():
            return await self._connection.fetchrow(query, *args)

    async def fetchval(self, query: str, *args: Any) -> Any:
        with self._in_use():
            return await self._connection.fetchval(query, *args)

    async def execute(self, query: str, *args: Any) -> str:
        with self._in_use():
            return await self._connection.execute(query, *args)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        with self._in_use():
            async with self._connection.transaction():
                yield self._connection

    async def listen(self, channel: str, heard: Callable[[str], None]) -> None:
        """Call `heard` with the payload of every notification on `channel`, until the connection ends."""

        def on_message(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            heard(str(payload))

        with self._in_use():
            await self._connection.add_listener(channel, on_message)

    def on_lost(self, lost: Callable[[], None]) -> None:
        """Call `lost` once when the connection ends, however it ends."""
        self._connection.add_termination_listener(lambda _connection: lost())

    def is_closed(self) -> bool:
        return self._connection.is_closed()

    def terminate(self) -> None:
        """End it without a word: its peer does not answer."""
        self._connection.terminate()

    async def close(self) -> None:
        try:
            await self._connection.close(timeout=CLOSE_SECONDS)
        except (TimeoutError, *DRIVER_ERRORS, OSError):
            self._connection.terminate()

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        try:
            with store_errors():
                yield
        except StoreUnavailable as error:
            if error.__cause__ is not None and broken(error.__cause__):
                self._connection.terminate()  # is_closed() tells its owner
            raise


def options(url: str, settings: dict[str, str], command_seconds: float | None) -> dict[str, Any]:
    """What the driver is told besides the URL."""
    chosen: dict[str, Any] = {
        "timeout": CONNECT_SECONDS,
        "command_timeout": command_seconds,
        "server_settings": settings,
    }
    # Decisions are taken on the primary only; with several hosts in the URL the driver finds it.
    if "target_session_attrs" not in url:
        chosen["target_session_attrs"] = "read-write"
    return chosen


async def keep_alive(connection: Any) -> None:
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
