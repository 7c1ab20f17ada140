"""Keeps a process's idea of the database's clock fresh, and tells of jumps and skew."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable

from detent.runtime.clock import Clock
from detent.runtime.service import Service
from detent.store import timers
from detent.store.alerts import raise_alert, resolve_alert
from detent.store.database import Database

log = logging.getLogger("detent.clock")

REPORT_SKEW_MS = 100.0
IN_DOUBT = 0.5
# Every process samples for itself: the alert stands until the slowest has come to the same end.
OTHERS_SETTLE = 3.0


class ClockWatch(Service):
    name = "clock"
    every = 2.0

    def __init__(self, database: Database, clock: Clock, jumped: Callable[[], None] = lambda: None) -> None:
        """`jumped` is called when a jump was confirmed: instants that were computed before it are off."""
        super().__init__()
        self._database = database
        self._clock = clock
        self._jumped = jumped
        self._skewed = False
        self._doubting = False
        self._jumps = 0
        self._settled_at = 0.0
        self._jump_alert = self._skew_alert = 0

    async def run_once(self) -> float | None:
        clock = self._clock
        await clock.sample(lambda: timers.clock_us(self._database))
        if not clock.steady and not self._doubting:
            self._doubting = True
            message = (
                f"the database's clock jumped by {clock.doubted_ms / 1000:+.1f} s; "
                "nothing is fired or rescued until it is confirmed"
            )
            log.error(message)
            self._jump_alert = await raise_alert(self._database, "clock_jump", "database", message)
        elif clock.steady and self._doubting:
            self._doubting = False
            self._settled_at = time.monotonic()
            self._settle()
        elif self._settled_at and time.monotonic() - self._settled_at > OTHERS_SETTLE:
            self._settled_at = 0.0
            await resolve_alert(self._database, self._jump_alert)
        await self._tell_skew()
        return None if clock.steady else IN_DOUBT

    def _settle(self) -> None:
        if self._clock.jumps > self._jumps:
            self._jumps = self._clock.jumps
            log.warning("the database's clock is confirmed; firing and rescuing go on")
            self._jumped()
        else:
            log.warning("the database's clock is back where it was; firing and rescuing go on")

    async def _tell_skew(self) -> None:
        skew = self._clock.skew_ms
        skewed = abs(skew) > REPORT_SKEW_MS
        if skewed == self._skewed:
            return
        self._skewed = skewed
        host = platform.node()
        if skewed:
            message = f"the clock of {host} is {skew:+.0f} ms off the database's; the database's is used"
            log.warning(message)
            self._skew_alert = await raise_alert(self._database, "clock_skew", host, message)
        else:
            await resolve_alert(self._database, self._skew_alert)
