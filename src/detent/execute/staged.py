"""Claims that came ahead of their instant, and wait here for it.

Each is started at a nanosecond of this machine's steady clock that was fixed when it was claimed. Whatever
the database's clock, or this machine's, is set to meanwhile changes nothing about it: it waits as long as the
database said when it gave it out. One alarm serves for all of them, and what is due at one instant starts in
one go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from heapq import heappop, heappush
from itertools import chain
from uuid import UUID

from detent.model.work import Claim, Staged
from detent.runtime.alarm import Alarm


class Staging:
    """Hands claims to `start` at their instants, those of one instant together and in the order they came."""

    def __init__(self, start: Callable[[list[Claim]], None]) -> None:
        self._start = start
        self._at: dict[int, list[Claim]] = {}
        self._instants: list[int] = []  # a heap of the keys above
        self._alarm = Alarm(self._ring)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, staged: Iterable[Staged]) -> None:
        for claim, start_ns in staged:
            together = self._at.get(start_ns)
            if together is None:
                self._at[start_ns] = [claim]
                heappush(self._instants, start_ns)
            else:
                together.append(claim)
            self._count += 1
        self._set()

    def claims(self) -> list[Claim]:
        """All that wait. May be asked from any thread."""
        return list(chain.from_iterable(list(self._at.values())))

    def take(self) -> list[Claim]:
        """All that wait, which then no longer do."""
        claims = self.claims()
        self._at.clear()
        self._instants.clear()
        self._count = 0
        return claims

    def withdraw(self, wanted: Collection[tuple[UUID, int]]) -> list[Claim]:
        """Those of these attempts that wait, which then no longer do."""
        found = []
        for start_ns, together in list(self._at.items()):
            gone = [claim for claim in together if (claim.execution_id, claim.attempt) in wanted]
            if gone:
                self._at[start_ns] = [claim for claim in together if claim not in gone]
                found += gone
        self._count -= len(found)
        return found

    def close(self) -> None:
        self._alarm.close()

    def _set(self) -> None:
        if self._instants:
            self._alarm.set(self._instants[0])

    def _ring(self) -> None:
        now = time.monotonic_ns()
        due: list[Claim] = []
        while self._instants and self._instants[0] <= now:
            due += self._at.pop(heappop(self._instants))
        self._count -= len(due)
        self._set()
        if due:
            self._start(due)
