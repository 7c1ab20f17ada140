"""A scheduler node: one incarnation that holds shard leases.

Leases make it fast, they do not make it correct: two nodes that both believe they own a shard fire each
instant once, because firing compares and sets. That makes hand-overs simple. A node takes the shards that are
its by rendezvous, from whoever has them, and loads them; whoever had them learns of it with its next beat and
fires on for a moment longer. Between the two no instant is late, and the few that both try are fired by one.

Each incarnation holds an advisory lock on a connection of its own. A node whose lock is free or whose beat is
old is no candidate any more: either sign is enough, and its shards go to the others.

A node that stops says so first, waits until others have its shards, and fires until then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import time
from collections.abc import Callable

from detent.fire.shards import Candidate, shards_of
from detent.model.ids import DEFAULT_TENANT, new_incarnation_id
from detent.runtime.clock import Clock
from detent.runtime.service import Service
from detent.store.database import Database, Dedicated
from detent.store.fleet import LEASE_SECONDS
from detent.store.sql import Queries

log = logging.getLogger("detent.node")
queries = Queries.load()

# How long a node fires on in shards that another has taken.
AFTERGLOW = 2.0
HAND_OVER_PATIENCE = 5.0
# How long one that leaves fires on while those who have its shards now load them.
LINGER = 1.0


class Node(Service):
    name = "node"
    every = 0.5

    def __init__(
        self,
        database: Database,
        clock: Clock,
        changed: Callable[[set[int]], None],
        *,
        standby: bool = False,
        lag_ms: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`changed` is told which shards are new; `lag_ms` says how late the last fires were."""
        super().__init__()
        self._database = database
        self._clock = clock
        self._changed = changed
        self._standby = standby
        self._lag_ms = lag_ms
        self._leaving = False
        self.node_id = new_incarnation_id()
        self._lock_key = int.from_bytes(self.node_id.bytes[:8], "big", signed=True)
        self._lock: Dedicated | None = None
        self._holds = False  # the advisory lock, on that connection
        self._owned: dict[int, int] = {}
        self._fading: dict[int, tuple[int, float]] = {}
        self.epochs: dict[int, int] = {}

    async def run_once(self) -> float | None:
        connection = await self._registered()
        beat = await connection.fetchval(
            queries.beat_node, self.node_id, self._clock.skew_ms, self._lag_ms(), self._leaving
        )
        if beat is None:
            await self._register(connection)
        rows = await connection.fetch(queries.candidate_nodes, LEASE_SECONDS)
        candidates = [Candidate(row["node_id"], row["standby"], row["leaving"]) for row in rows]
        mine = shards_of(self.node_id, candidates)
        held = await connection.fetch(queries.take_shards, self.node_id, LEASE_SECONDS, mine)
        self._own({row["shard"]: row["epoch"] for row in held})
        return None

    async def _registered(self) -> Dedicated:
        if self._lock is None or self._lock.is_closed():
            self._lock, self._holds = await self._joined(), False
        if not self._holds:  # perhaps the server has not noticed yet that our last connection is gone
            self._holds = await self._lock.fetchval(queries.hold_incarnation_lock, self._lock_key)
        return self._lock

    async def _joined(self) -> Dedicated:
        connection = await self._database.dedicated()
        try:
            await self._register(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _register(self, connection: Dedicated) -> None:
        who = (self.node_id, DEFAULT_TENANT, platform.node(), os.getpid(), self._lock_key, self._standby)
        await connection.execute(queries.register_node, *who)

    def _own(self, held: dict[int, int]) -> None:
        now = time.monotonic()
        for shard in self._owned.keys() - held.keys():
            self._fading[shard] = (self._owned[shard], now + AFTERGLOW)
        for shard in [s for s, (_, until) in self._fading.items() if s in held or until < now]:
            del self._fading[shard]
        gained = held.keys() - self._owned.keys()
        if held.keys() != self._owned.keys():
            log.info("owns %d shards", len(held))
        self._owned = held
        self.epochs = {**{shard: epoch for shard, (epoch, _) in self._fading.items()}, **held}
        if gained:
            self._changed(set(gained))

    async def hand_over(self) -> None:
        """Leave in order: fire on until others have what is ours, if there are others."""
        self._leaving = True
        deadline = time.monotonic() + HAND_OVER_PATIENCE
        while self._owned and self.healthy and time.monotonic() < deadline:
            self.wake()
            if not await self._has_heirs():
                return
            await asyncio.sleep(0.05)
        if not self._owned:
            await asyncio.sleep(LINGER)

    async def _has_heirs(self) -> bool:
        rows = await self._database.fetch(queries.candidate_nodes, LEASE_SECONDS)
        return any(row["node_id"] != self.node_id and not row["leaving"] for row in rows)

    async def closed(self) -> None:
        if self._lock is None or self._lock.is_closed():
            return
        try:
            await self._lock.execute(queries.leave_shards, self.node_id)
            await self._lock.execute(queries.end_node, self.node_id)
        finally:
            await self._lock.close()
