"""The wheel: due timers of the next minute, in memory. A cache of the timers table, never the truth.

A slot is one millisecond, and a slot that holds nothing does not exist. Which slots are taken is told by
bitmaps of 256 bits, one above the other: a bit of the lowest stands for a slot, a bit of the next for a
bitmap below it that is not empty, and so on for the 48 bits that a millisecond since 1970 has. To enter and
to leave touches one bit, rarely more; the earliest slot is found by six looks for the lowest bit, whatever
the wheel holds and however far apart. No slot is tied to what time it is: a clock that jumps, ahead or back,
changes nothing here.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from detent.model.ids import milliseconds
from detent.store.timers import DueTimer

_BITS = 8
_MASK = (1 << _BITS) - 1
_LEVELS = 6


class Wheel:
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._slot_of: dict[UUID, int] = {}
        self._slots: dict[int, dict[UUID, DueTimer]] = {}
        self._taken: tuple[dict[int, int], ...] = tuple({} for _ in range(_LEVELS))
        self._counts: dict[int, int] = {}  # timers in each 256 slots, as the lowest bitmaps are numbered

    def __len__(self) -> int:
        return len(self._slot_of)

    def insert(self, timer: DueTimer) -> None:
        """Keep a timer, unless a newer version of it is here."""
        job_id = timer.job_id
        known = self._slot_of.get(job_id)
        if known is not None:
            if self._slots[known][job_id].version >= timer.version:
                return
            self._leave(job_id, known)
        slot = max(0, milliseconds(timer.due_at))
        self._slot_of[job_id] = slot
        held = self._slots.get(slot)
        if held is None:
            self._slots[slot] = {job_id: timer}
            self._mark(slot)
        else:
            held[job_id] = timer
        node = slot >> _BITS
        self._counts[node] = self._counts.get(node, 0) + 1

    def remove(self, job_id: UUID) -> None:
        slot = self._slot_of.pop(job_id, None)
        if slot is not None:
            self._leave(job_id, slot)

    def _leave(self, job_id: UUID, slot: int) -> None:
        held = self._slots[slot]
        del held[job_id]
        self._counted_out(slot, 1)
        if not held:
            self._drop(slot)

    def _counted_out(self, slot: int, number: int) -> None:
        node = slot >> _BITS
        left = self._counts[node] - number
        if left:
            self._counts[node] = left
        else:
            del self._counts[node]

    def _mark(self, slot: int) -> None:
        for taken in self._taken:
            node = slot >> _BITS
            bits = taken.get(node, 0)
            taken[node] = bits | 1 << (slot & _MASK)
            if bits:
                return
            slot = node

    def _drop(self, slot: int) -> None:
        del self._slots[slot]
        for taken in self._taken:
            node = slot >> _BITS
            bits = taken[node] & ~(1 << (slot & _MASK))
            if bits:
                taken[node] = bits
                return
            del taken[node]
            slot = node

    def _first(self) -> int | None:
        """The earliest slot that is taken."""
        node = 0
        for taken in reversed(self._taken):
            bits = taken.get(node)
            if bits is None:
                return None
            node = node << _BITS | (bits & -bits).bit_length() - 1
        return node

    def next_due(self) -> datetime | None:
        """The earliest due instant."""
        slot = self._first()
        return None if slot is None else min(timer.due_at for timer in self._slots[slot].values())

    def count(self, until: datetime) -> int:
        """How many timers are due until then, to a quarter of a second more."""
        last = milliseconds(until) >> _BITS
        return sum(number for node, number in self._counts.items() if node <= last)

    def pop_due(self, now: datetime, limit: int) -> list[DueTimer]:
        """Take up to `limit` timers that are due at `now`, earliest slot first."""
        due: list[DueTimer] = []
        last = milliseconds(now)
        while len(due) < limit and (slot := self._first()) is not None and slot <= last:
            held = self._slots[slot]
            if slot == last or len(held) > limit - len(due):
                ready = [timer for timer in held.values() if slot < last or timer.due_at <= now]
                taken = ready[: limit - len(due)]
                for timer in taken:
                    self.remove(timer.job_id)
                due += taken
                if slot == last:
                    break
            else:
                due += held.values()
                for job_id in held:
                    del self._slot_of[job_id]
                self._counted_out(slot, len(held))
                self._drop(slot)
        return due
