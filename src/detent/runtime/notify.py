"""Wake-ups. A NOTIFY is a hint that costs nothing when it is lost: every listener polls as well.

A NOTIFY inside each transaction would cut concurrent commits to a third, because commits that notify take
one global lock. So they are gathered after the commit and sent from a connection of their own; while one
is under way the next ones pile up into a single statement.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
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

# Planned wake-ups: how finely they are told apart, how far ahead, and how many at most.
LATER_SLOT = 0.005
LATER_HORIZON = 900.0
MOST_PLANNED = 100_000
PEER_SECONDS = 5.0


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
        self._later: list[tuple[int, str]] = []
        self._planned: set[tuple[int, str]] = set()

    def timers(self, job_ids: Iterable[UUID]) -> None:
        """Tell schedulers that these jobs' timers changed."""
        self._timers.update(job_ids)
        self.wake()

    def queue(self, pools: Iterable[str]) -> None:
        """Tell workers that these pools have new work."""
        self._pools.update(pools)
        self.wake()

    def queue_later(self, pool: str, seconds: float) -> None:
        """Tell workers when work that waits for its instant is due. They poll as well: a wake-up that this
        process does not live to send costs a second.
        """
        at = time.monotonic() + seconds
        slot = (math.ceil(at / LATER_SLOT), pool)
        if seconds <= LATER_HORIZON and slot not in self._planned and len(self._planned) < MOST_PLANNED:
            self._planned.add(slot)
            heapq.heappush(self._later, slot)
            self.wake()

    def _come_due(self) -> float | None:
        """Take over the pools whose planned instant has come; answers the seconds until the next one."""
        now = time.monotonic()
        while self._later and self._later[0][0] * LATER_SLOT <= now:
            slot = heapq.heappop(self._later)
            self._planned.discard(slot)
            self._pools.add(slot[1])
        return self._later[0][0] * LATER_SLOT - now if self._later else None

    def orders(self, workers: Iterable[UUID]) -> None:
        """Tell these workers to ask for orders: something of theirs is to be cancelled."""
        self._workers.update(workers)
        if self._workers:
            self.wake()

    async def run_once(self) -> float | None:
        wait = self._come_due()
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
        return wait


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
            await self._look(self._connection)
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

    async def _look(self, connection: Dedicated) -> None:
        """A dead peer shows itself; then the next tick listens anew."""
        try:
            async with asyncio.timeout(PEER_SECONDS):
                await connection.execute(Queries.load().ping)
        except TimeoutError as error:
            self._connection = None
            connection.terminate()  # a goodbye would wait for an answer
            raise StoreUnavailable("the database did not answer in time") from error

    def _on_message(self, heard: Callable[[str], None], payload: str) -> None:
        if not self.stopping:
            heard(payload)

    async def closed(self) -> None:
        if self._connection is not None:
            await self._connection.close()
