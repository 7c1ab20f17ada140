"""One heap of deadlines for a whole worker.

A timer per attempt would cost a fifth of the worker's time, and a heap entry per attempt would keep a
million entries of attempts that ended long before their hour was up. So each lane has at most one entry
that counts: an attempt that starts while its lane's entry is due earlier leaves it as it is, and when that
entry comes due the heap looks at what the lane is doing by then. With one timeout for all jobs a lane
touches the heap once per timeout.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

FOREVER = float("inf")


class Bounded(Protocol):
    """Something with a deadline: when it is due (FOREVER: it has none now), and when its entry is."""

    deadline: float
    entry_at: float


T = TypeVar("T", bound=Bounded)


class Deadlines(Generic[T]):
    """Calls `overdue` for each item whose deadline has come. Instants are monotonic seconds."""

    def __init__(self, overdue: Callable[[T], None]) -> None:
        self._overdue = overdue
        self._loop = asyncio.get_running_loop()
        self._heap: list[tuple[float, int, T]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = FOREVER

    def watch(self, item: T) -> None:
        """Take note of `item.deadline`. Call it only when that is before `item.entry_at`."""
        at = item.entry_at = item.deadline
        heappush(self._heap, (at, next(self._order), item))
        if at < self._timer_at:
            self._arm(at)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._heap.clear()

    def __len__(self) -> int:
        return len(self._heap)

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        # Loops may count time in whole milliseconds: a little late, never early.
        self._timer = self._loop.call_later(max(0.0, at - time.monotonic()) + 0.001, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._timer_at = FOREVER
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            at, _, item = heappop(self._heap)
            if at == item.entry_at:  # else an earlier entry took over
                item.entry_at = FOREVER
                self._look(item, now)
        if self._heap:
            self._arm(self._heap[0][0])

    def _look(self, item: T, now: float) -> None:
        if item.deadline <= now:
            self._overdue(item)
        elif item.deadline < FOREVER:
            self.watch(item)
