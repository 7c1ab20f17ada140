"""How many attempts a worker asks for.

Free slots always. Beyond them it claims ahead, so that a lane that finishes finds the next attempt in
memory, but only what will start at once: work that waits here is work that an idle worker elsewhere cannot
take. So the prefetch follows the pace: as many as ended lately in the time one may reasonably wait, and
never more than twice the slots. A worker of hour-long jobs prefetches nothing.

What is not due yet may be claimed ahead into half of the slots that are free, where it waits for its
instant. The other half stays for what is due.

The next claim is under way before the last one is used up. Attempts that suspend fill the slots, and then it
is time when half of the prefetched ones are left. Attempts that never suspend leave the slots empty and go
through memory at full pace: then it is time as soon as there is room for as many as there are slots, because
a claim takes as long as running what it brings, and with twice the slots ahead one can always be under way.
"""

from __future__ import annotations

import math

# Prefetched work should start within this time at the present pace ...
START_WITHIN = 0.05
# ... which is an average over about this long.
PACE_WINDOW = 0.2
# Prefetched work, for each slot, at most. It bounds what a worker keeps in memory.
AHEAD = 2


class Appetite:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._recent = 0.0  # ended attempts, fading
        self._seen = 0
        self._at = 0.0
        self.prefetch = 0

    def limit(self, now: float, ended: int, in_flight: int) -> int:
        """How many to claim now. `ended` counts all attempts that ever ended; `now` is monotonic."""
        fade = math.exp(-(now - self._at) / PACE_WINDOW)
        self._recent = self._recent * fade + (ended - self._seen)
        self._seen, self._at = ended, now
        self.prefetch = min(AHEAD * self._slots, int(self._recent / PACE_WINDOW * START_WITHIN))
        return max(0, self._slots + self.prefetch - in_flight)

    def ahead(self, present: int, staged: int) -> int:
        """How many to claim ahead, with so many that run or are due and so many that are staged."""
        return max(0, (self._slots - present) // 2 - staged)

    def forget(self, ended: int) -> None:
        """Prefetched work found no lane in time: the pace of before says nothing about now."""
        self._recent, self._seen = 0.0, ended

    @property
    def low_water(self) -> int:
        """Claim again when no more than this many are left in memory."""
        return self.prefetch // 2

    @property
    def low_flight(self) -> int:
        """Claim again when no more than this many run or are left in memory; -1: that is no reason."""
        return self.prefetch if self.prefetch >= self._slots else -1
