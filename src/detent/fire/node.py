"""A scheduler node: one incarnation that holds shard leases.

Leases make it fast, they do not make it correct: two nodes that both believe they own a shard fire each
instant once, because firing compares and sets. Each incarnation holds an advisory lock on a connection of
its own; a lock that is free, or a lease that has expired, lets another node take over.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable

from detent.model.errors import StoreUnavailable
from detent.model.ids import DEFAULT_TENANT, new_incarnation_id
from detent.runtime.clock import Clock
from detent.runtime.service import Service
from detent.store.database import Database, Dedicated
from detent.store.sql import Queries

log = logging.getLogger("detent.node")
queries = Queries.load()

LEASE_SECONDS = 5.0


class Node(Service):
    name = "node"
    every = 1.0

    def __init__(self, database: Database, clock: Clock, changed: Callable[[], None]) -> None:
        super().__init__()
        self._database = database
        self._clock = clock
        self._changed = changed
        self.node_id = new_incarnation_id()
        self._lock_key = int.from_bytes(self.node_id.bytes[:8], "big", signed=True)
        self._lock: Dedicated | None = None
        self._holds = False  # the advisory lock, on that connection
        self.epochs: dict[int, int] = {}

    async def run_once(self) -> float | None:
        if self._lock is None or self._lock.is_closed():
            self._lock, self._holds = await self._joined(), False
        if not self._holds:  # perhaps the server has not noticed yet that our last connection is gone
            self._holds = await self._lock.fetchval(queries.hold_incarnation_lock, self._lock_key)
        await self._lock.execute(queries.beat_node, self.node_id, self._clock.skew_ms)
        rows = await self._lock.fetch(queries.take_shards, self.node_id, LEASE_SECONDS)
        epochs = {row["shard"]: row["epoch"] for row in rows}
        if epochs != self.epochs:
            log.info("owns %d shards", len(epochs))
            self.epochs = epochs
            self._changed()
        return None

    async def _joined(self) -> Dedicated:
        connection = await self._database.dedicated()
        try:
            await connection.execute(
                queries.register_node,
                self.node_id,
                DEFAULT_TENANT,
                platform.node(),
                os.getpid(),
                self._lock_key,
            )
        except BaseException:
            await connection.close()
            raise
        return connection

    async def closed(self) -> None:
        if self._lock is None or self._lock.is_closed():
            return
        try:
            await self._lock.execute(queries.leave_shards, self.node_id)
            await self._lock.execute(queries.end_node, self.node_id)
        except StoreUnavailable as error:
            log.warning("leaving: %s; the leases will run out", error)
        await self._lock.close()
