"""Keeps the history's day partitions ahead of time."""

from __future__ import annotations

from datetime import timedelta

from detent.runtime.clock import Clock
from detent.runtime.service import Service
from detent.store.database import Database
from detent.store.partitions import make_partitions

AHEAD = timedelta(days=7)
BEHIND = timedelta(days=8)  # instants up to a week late are filed under their own day


class PartitionKeeper(Service):
    name = "partitions"
    every = 600.0

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__()
        self._database = database
        self._clock = clock

    async def run_once(self) -> float | None:
        now = self._clock.now()
        await make_partitions(self._database, (now - BEHIND).date(), (now + AHEAD).date())
        return None
