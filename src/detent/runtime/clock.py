"""The cluster's clock is the database's.

A node never trusts its own wall clock. It samples `clock_timestamp()`, keeps the offset to its monotonic
clock, and computes the database's time from that: a local clock that is wrong, or that is set while we
run, changes nothing. Of the recent samples the one with the shortest round trip is the most exact.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEEP_SAMPLES = 8


class Clock:
    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=KEEP_SAMPLES)  # (round trip, offset) in ns
        # Until the first sample, the local wall clock is the best guess there is.
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_us(self) -> int:
        """Microseconds since 1970 on the database's clock."""
        return (time.monotonic_ns() + self._offset_ns) // 1000

    def now(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.now_us())

    def monotonic_of(self, at: datetime) -> float:
        """The loop time (monotonic seconds) at which the database's clock reads `at`."""
        at_us = (at - _EPOCH) // timedelta(microseconds=1)
        return (at_us * 1000 - self._offset_ns) / 1e9

    @property
    def skew_ms(self) -> float:
        """How far this machine's wall clock is ahead of the database's."""
        return (time.time_ns() - time.monotonic_ns() - self._offset_ns) / 1e6

    async def sample(self, read_us: Callable[[], Awaitable[int]]) -> None:
        """Take one sample; `read_us` asks the database for its microseconds since 1970."""
        sent = time.monotonic_ns()
        database_us = await read_us()
        received = time.monotonic_ns()
        trip = received - sent
        self._samples.append((trip, database_us * 1000 - (sent + trip // 2)))
        self._offset_ns = min(self._samples)[1]
