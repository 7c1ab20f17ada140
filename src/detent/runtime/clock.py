"""The cluster's clock is the database's.

A node never trusts its own wall clock. It samples `clock_timestamp()`, keeps the offset to its monotonic
clock, and computes the database's time from that: a local clock that is wrong, or that is set while we
run, changes nothing. Of the recent samples the one with the shortest round trip is the most exact: the
database read its clock at some point of that trip, so the offset is off by at most half of it, and by what
two clocks have drifted apart since. What must not happen before an instant waits for that error as well.

A database clock that jumps is not believed at once: until samples have agreed on the new time for a while,
this clock runs on as before and says that it is not `steady`, and nothing is fired or rescued meanwhile.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEEP_SAMPLES = 8
JUMP_NS = 5_000_000_000
AGREE_NS = 1_000_000_000
CONFIRM_SECONDS = 10.0
DRIFT_PPM = 20


class _Sample(NamedTuple):
    trip_ns: int
    offset_ns: int
    received_ns: int


class Clock:
    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=KEEP_SAMPLES)
        self._best: _Sample | None = None
        # From our monotonic clock to the database's. Until the first sample, the wall clock is the best guess
        self.offset_ns = time.time_ns() - time.monotonic_ns()
        self._doubted: tuple[int, float] | None = None  # the new offset, and since when it is seen
        self.jumps = 0  # that were confirmed

    @property
    def steady(self) -> bool:
        """Whether the database's clock goes on as it did."""
        return self._doubted is None

    @property
    def doubted_ms(self) -> float:
        """By how much the database's clock seems to have jumped."""
        return 0.0 if self._doubted is None else (self._doubted[0] - self.offset_ns) / 1e6

    def now_us(self) -> int:
        """Microseconds since 1970 on the database's clock."""
        return (time.monotonic_ns() + self.offset_ns) // 1000

    def now(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.now_us())

    def monotonic_of(self, at: datetime) -> float:
        """The loop time (monotonic seconds) at which the database's clock reads `at`."""
        at_us = (at - _EPOCH) // timedelta(microseconds=1)
        return (at_us * 1000 - self.offset_ns) / 1e9

    def certain_ns(self, at_us: int) -> int:
        """The monotonic nanosecond at which the database's clock certainly reads `at_us`, or more."""
        error = 0 if self._best is None else _error_ns(self._best, time.monotonic_ns())
        return at_us * 1000 - self.offset_ns + error

    @property
    def skew_ms(self) -> float:
        """How far this machine's wall clock is ahead of the database's."""
        return (time.time_ns() - time.monotonic_ns() - self.offset_ns) / 1e6

    async def sample(self, read_us: Callable[[], Awaitable[int]]) -> None:
        """Take one sample; `read_us` asks the database for its microseconds since 1970."""
        sent = time.monotonic_ns()
        database_us = await read_us()
        received = time.monotonic_ns()
        trip = received - sent
        offset = database_us * 1000 - (sent + trip // 2)
        if self._samples and abs(offset - self.offset_ns) > JUMP_NS + trip:
            self._doubt(offset, trip, received / 1e9)
            return
        self._doubted = None
        self._believe(_Sample(trip, offset, received))

    def _doubt(self, offset: int, trip: int, now: float) -> None:
        """A sample far off. Believed once others have agreed with it for a while."""
        if self._doubted is None or abs(self._doubted[0] - offset) > AGREE_NS:
            self._doubted = (offset, now)
        elif now - self._doubted[1] >= CONFIRM_SECONDS:
            self.jumps += 1
            self._samples.clear()
            self._believe(_Sample(trip, offset, int(now * 1e9)))
            self._doubted = None

    def _believe(self, sample: _Sample) -> None:
        self._samples.append(sample)
        self._best = min(self._samples, key=lambda one: _error_ns(one, sample.received_ns))
        self.offset_ns = self._best.offset_ns


def _error_ns(sample: _Sample, now_ns: int) -> int:
    """By how much its offset may be wrong."""
    return sample.trip_ns // 2 + (now_ns - sample.received_ns) * DRIFT_PPM // 1_000_000
