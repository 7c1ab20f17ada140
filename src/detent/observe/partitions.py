"""Keeps the history's day partitions ahead of time, and drops those that are old enough."""

from __future__ import annotations

import logging
from datetime import timedelta

from detent.runtime.clock import Clock
from detent.runtime.service import Service
from detent.store.database import Database
from detent.store.partitions import drop_partitions, make_partitions

log = logging.getLogger("detent.partitions")

IN_DOUBT = 5.0
AHEAD = timedelta(days=7)
BEHIND = timedelta(days=8)  # instants up to a week late are filed under their own day


class PartitionKeeper(Service):
    name = "partitions"
    every = 600.0

    def __init__(self, database: Database, clock: Clock, retention_days: int = 0) -> None:
        """History older than `retention_days` is dropped; 0 keeps all of it."""
        super().__init__()
        self._database = database
        self._clock = clock
        self._retention_days = retention_days

    async def run_once(self) -> float | None:
        now = self._clock.now()
        if not self._clock.steady:
            return IN_DOUBT
        await make_partitions(self._database, (now - BEHIND).date(), (now + AHEAD).date())
        if self._retention_days:
            oldest = (now - max(BEHIND, timedelta(days=self._retention_days))).date()
            if dropped := await drop_partitions(self._database, oldest):
                log.info("dropped %d partitions of the history before %s", dropped, oldest)
        return None
