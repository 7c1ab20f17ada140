"""Wake-ups. A NOTIFY is a hint that costs nothing when it is lost: every listener polls as well.

A NOTIFY inside each transaction would cut concurrent commits to a third, because commits that notify take
one global lock. So they are gathered after the commit and sent from a connection of their own; while one
is under way the next ones pile up into a single statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from uuid import UUID

from detent.model.errors import StoreUnavailable
from detent.runtime.service import Service
from detent.store.database import Database, Dedicated
from detent.store.sql import Queries

TIMERS = "detent_timers"
QUEUE = "detent_queue"
ORDERS = "detent_orders"

# A payload may have 8,000 bytes; beyond this many ids a full look is cheaper anyway.
MOST_IDS = 200
EVERYTHING = "*"

PING_SECONDS = 5.0


class Notifier(Service):
    """Sends gathered wake-ups."""

    name = "notifier"
    every = 60.0

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._timers: set[UUID] = set()
        self._pools: set[str] = set()
        self._workers: set[UUID] = set()

    def timers(self, job_ids: Iterable[UUID]) -> None:
        """Tell schedulers that these jobs' timers changed."""
        self._timers.update(job_ids)
        self.wake()

    def queue(self, pools: Iterable[str]) -> None:
        """Tell workers that these pools have new work."""
        self._pools.update(pools)
        self.wake()

    def orders(self, workers: Iterable[UUID]) -> None:
        """Tell these workers to ask for orders: something of theirs is to be cancelled."""
        self._workers.update(workers)
        if self._workers:
            self.wake()

    async def run_once(self) -> float | None:
        timers, self._timers = self._timers, set()
        pools, self._pools = self._pools, set()
        workers, self._workers = self._workers, set()
        messages = [(QUEUE, pool) for pool in pools]
        messages += [(ORDERS, str(worker)) for worker in workers]
        if timers:
            few = len(timers) <= MOST_IDS
            messages.append((TIMERS, ",".join(map(str, timers)) if few else EVERYTHING))
        if messages:
            channels, payloads = zip(*messages, strict=True)
            await self._database.execute(Queries.load().notify, list(channels), list(payloads))
        return None


class Listener(Service):
    """Listens on channels and calls back with each payload; `lost` after any break in between."""

    name = "listener"
    every = 5.0

    def __init__(
        self,
        database: Database,
        heard: Mapping[str, Callable[[str], None]],
        lost: Callable[[], None],
    ) -> None:
        super().__init__()
        self._database = database
        self._heard = heard
        self._lost = lost
        self._connection: Dedicated | None = None

    async def run_once(self) -> float | None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._listening()
            self._lost()  # whatever was said before we listened is unknown
        else:
            await self._ping(self._connection)
        return None

    async def _listening(self) -> Dedicated:
        connection = await self._database.dedicated()
        try:
            for channel, heard in self._heard.items():
                await connection.listen(channel, partial(self._on_message, heard))
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _ping(self, connection: Dedicated) -> None:
        """A dead peer shows itself."""
        try:
            async with asyncio.timeout(PING_SECONDS):
                await connection.execute(Queries.load().ping)
        except (StoreUnavailable, TimeoutError) as error:
            self._connection = None
            connection.terminate()
            raise StoreUnavailable("the connection that listens was lost") from error

    def _on_message(self, heard: Callable[[str], None], payload: str) -> None:
        if not self.stopping:
            heard(payload)

    async def closed(self) -> None:
        if self._connection is not None:
            await self._connection.close()
