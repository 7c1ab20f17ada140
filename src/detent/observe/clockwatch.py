"""Keeps a process's idea of the database's clock fresh, and reports skew."""

from __future__ import annotations

import logging

from detent.runtime.clock import Clock
from detent.runtime.service import Service
from detent.store import timers
from detent.store.database import Database

log = logging.getLogger("detent.clock")

REPORT_SKEW_MS = 100.0


class ClockWatch(Service):
    name = "clock"
    every = 2.0

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__()
        self._database = database
        self._clock = clock
        self._reported = False

    async def run_once(self) -> float | None:
        await self._clock.sample(lambda: timers.clock_us(self._database))
        skewed = abs(self._clock.skew_ms) > REPORT_SKEW_MS
        if skewed and not self._reported:
            log.warning("this machine's clock is %.0f ms off the database's", self._clock.skew_ms)
        self._reported = skewed
        return None
