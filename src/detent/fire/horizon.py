"""The horizon: which timers the wheel holds, and how far ahead, shard by shard.

A shard is loaded from its earliest timer on, a minute ahead or as far as there is room, and further when the
end of what is loaded comes near. Each load goes on behind the last timer that the one before it gave, so a
timer is read once, and ten million that are due within the minute are loaded as those before them are fired.
A load is a bounded number of rows: what is due first can be fired before the rest is there.

What changes behind the end is told by wake-ups. A scan of the next seconds is the safety net under both.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from uuid import UUID

from detent.fire.wheel import Wheel
from detent.store import timers
from detent.store.database import Database
from detent.store.timers import DueTimer

HORIZON = timedelta(seconds=60)
TOP_UP_BEFORE = timedelta(seconds=20)
MOST_HELD = 150_000
LOAD = 20_000  # timers at a time
# A shard whose end is this near is loaded also when there is no room: it may be the others who take it up.
URGENT = timedelta(seconds=1)
URGENT_LOAD = 64

SCAN_AHEAD = timedelta(seconds=2)
# Of each shard. What was missed is among the first of its shard by the time it is due.
SCAN_FIRST = 16
PER_SHARD = 2000
# After a wake-up that names no jobs: when everything is looked at again, and how long until the next time.
LOOK_AGAIN_AFTER = timedelta(seconds=1)
LOOK_AGAIN_PAUSE = timedelta(seconds=10)

Place = tuple[datetime, UUID]
_START: Place = (datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))
_LAST = UUID(int=(1 << 128) - 1)


class Horizon:
    def __init__(self, database: Database) -> None:
        self.wheel = Wheel()
        self._database = database
        self._ends: dict[int, Place] = {}
        self._look_again_at: datetime | None = None
        self._looked_at = _START[0]

    def reset(self) -> None:
        """Begin anew."""
        self.wheel.clear()
        self._ends.clear()
        self._look_again_at = None

    def forget(self, shards: Collection[int]) -> None:
        """Load these from their beginning."""
        for shard in shards:
            self._ends.pop(shard, None)

    def missed_some(self, now: datetime) -> None:
        """Many timers were changed, and nobody says which."""
        if self._look_again_at is None:
            self._look_again_at = max(now + LOOK_AGAIN_AFTER, self._looked_at + LOOK_AGAIN_PAUSE)

    def keep(self, timer: DueTimer) -> None:
        """Hold a timer that was read by itself, if it lies before the end of its shard."""
        end = self._ends.get(timer.shard)
        if end is not None and timer.due_at <= end[0]:
            self.wheel.insert(timer)

    def wants(self, shards: Collection[int], now: datetime) -> list[int]:
        """The shards of which more should be loaded."""
        patience = TOP_UP_BEFORE if MOST_HELD - len(self.wheel) >= LOAD else URGENT
        until = now + patience
        return [shard for shard in shards if self._ends.get(shard, _START)[0] < until]

    async def extend(self, shards: Collection[int], now: datetime) -> None:
        """Load some more, where it is needed."""
        if self._look_again_at is not None and now >= self._look_again_at:
            self._look_again_at, self._looked_at = None, now
            self._ends.clear()
        wanted = self.wants(shards, now)
        if not wanted:
            return
        room = min(LOAD, MOST_HELD - len(self.wheel))
        most = max(URGENT_LOAD, room // len(wanted))
        until = now + HORIZON
        places = [self._ends.get(shard, _START) for shard in wanted]
        ends: dict[int, Place] = dict.fromkeys(wanted, (until, _LAST))
        counts = dict.fromkeys(wanted, 0)
        for timer in await timers.further(self._database, wanted, places, until, most):
            self.wheel.insert(timer)
            counts[timer.shard] += 1
            if counts[timer.shard] == most:
                ends[timer.shard] = (timer.due_at, timer.job_id)
        self._ends.update(ends)

    async def scan(self, shards: Collection[int], now: datetime) -> None:
        """Look at the next seconds, whatever is held: at the first of each shard, or at all of it when timers
        were changed that nobody named.
        """
        most = SCAN_FIRST if self._look_again_at is None else PER_SHARD
        for timer in await timers.due(self._database, list(shards), now + SCAN_AHEAD, most):
            self.wheel.insert(timer)
