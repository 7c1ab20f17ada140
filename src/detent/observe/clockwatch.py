"""Keeps a process's idea of the database's clock fresh, and tells of jumps and skew."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable

from detent.runtime.clock import Clock
from detent.runtime.service import Service
from detent.store import timers
from detent.store.alerts import raise_alert, resolve_alert
from detent.store.database import Database

log = logging.getLogger("detent.clock")

REPORT_SKEW_MS = 100.0
IN_DOUBT = 0.5


class ClockWatch(Service):
    name = "clock"
    every = 2.0

    def __init__(self, database: Database, clock: Clock, jumped: Callable[[], None] = lambda: None) -> None:
        """`jumped` is called when a jump was confirmed: instants that were computed before it are off."""
        super().__init__()
        self._database = database
        self._clock = clock
        self._jumped = jumped
        # What was told last; None: nothing yet, and an earlier process may have left an alert behind.
        self._skewed: bool | None = None
        self._doubting: bool | None = None
        self._jumps = 0

    async def run_once(self) -> float | None:
        clock = self._clock
        await clock.sample(lambda: timers.clock_us(self._database))
        if clock.jumps > self._jumps:
            self._jumps = clock.jumps
            log.warning("the database's clock is confirmed; firing and rescuing go on")
            self._jumped()
        await self._tell_doubt()
        await self._tell_skew()
        return None if clock.steady else IN_DOUBT

    async def _tell_doubt(self) -> None:
        """Noted as told only once it is: an alert that could not be written is written by the next tick."""
        clock = self._clock
        doubting = not clock.steady
        if doubting == self._doubting:
            return
        if doubting:
            message = (
                f"the database's clock jumped by {clock.doubted_ms / 1000:+.1f} s; "
                "nothing is fired or rescued until it is confirmed"
            )
            log.error(message)
            await raise_alert(self._database, "clock_jump", "database", message)
        else:
            if self._doubting:
                log.warning("the database's clock is steady again")
            await resolve_alert(self._database, "clock_jump", "database")
        self._doubting = doubting

    async def _tell_skew(self) -> None:
        skew = self._clock.skew_ms
        skewed = abs(skew) > REPORT_SKEW_MS
        if skewed == self._skewed:
            return
        host = platform.node()
        if skewed:
            message = f"the clock of {host} is {skew:+.0f} ms off the database's; the database's is used"
            log.warning(message)
            await raise_alert(self._database, "clock_skew", host, message)
        else:
            await resolve_alert(self._database, "clock_skew", host)
        self._skewed = skewed
