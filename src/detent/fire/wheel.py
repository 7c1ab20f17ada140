"""The wheel: due timers of the next minute, in memory. A cache of the timers table, never the truth.

Timers are kept in buckets of one millisecond, with a heap over the buckets; an entry that was replaced or
removed is recognised when its bucket comes up, so removal costs nothing.
"""

from __future__ import annotations

import heapq
from datetime import datetime
from uuid import UUID

from detent.model.ids import milliseconds
from detent.store.timers import DueTimer


class Wheel:
    def __init__(self) -> None:
        self._timers: dict[UUID, DueTimer] = {}
        self._buckets: dict[int, list[DueTimer]] = {}
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._timers)

    def insert(self, timer: DueTimer) -> None:
        """Keep a timer, unless a newer version of it is here."""
        known = self._timers.get(timer.job_id)
        if known is not None and known.version >= timer.version:
            return
        self._timers[timer.job_id] = timer
        at = milliseconds(timer.due_at)
        bucket = self._buckets.get(at)
        if bucket is None:
            self._buckets[at] = [timer]
            heapq.heappush(self._heap, at)
        else:
            bucket.append(timer)

    def remove(self, job_id: UUID) -> None:
        self._timers.pop(job_id, None)

    def clear(self) -> None:
        self._timers.clear()
        self._buckets.clear()
        self._heap.clear()

    def next_due(self) -> datetime | None:
        """The earliest due instant; buckets without a current timer are dropped on the way."""
        while self._heap:
            current = [t for t in self._buckets[self._heap[0]] if self._timers.get(t.job_id) is t]
            if current:
                return min(t.due_at for t in current)
            del self._buckets[heapq.heappop(self._heap)]
        return None

    def pop_due(self, now: datetime, limit: int) -> list[DueTimer]:
        """Take up to `limit` timers that are due at `now`, earliest bucket first."""
        due: list[DueTimer] = []
        last = milliseconds(now)
        while self._heap and self._heap[0] <= last and len(due) < limit:
            at = self._heap[0]
            waiting: list[DueTimer] = []
            for timer in self._buckets[at]:
                if self._timers.get(timer.job_id) is not timer:
                    continue
                if timer.due_at <= now and len(due) < limit:
                    del self._timers[timer.job_id]
                    due.append(timer)
                else:
                    waiting.append(timer)
            if waiting:
                self._buckets[at] = waiting
                break
            del self._buckets[heapq.heappop(self._heap)]
        return due
