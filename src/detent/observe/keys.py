"""Forgets idempotency keys a week after the end of what they were about.

It walks round and round over all keys, a bounded number at a time: no index by time has to be kept for it,
and however many keys there are, a turn costs the same.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from detent.runtime.clock import Clock
from detent.runtime.service import Service
from detent.store.database import Database
from detent.store.request_keys import START, forget_keys

log = logging.getLogger("detent.keys")

KEEP = timedelta(days=7)
MOST = 5_000
AFTER_A_ROUND = 600.0


class KeySweeper(Service):
    name = "keys"
    every = 10.0

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__()
        self._database = database
        self._clock = clock
        self._place = START

    async def run_once(self) -> float | None:
        if not self._clock.steady:  # a clock that leapt ahead would make everything old
            return None
        forgotten, place = await forget_keys(self._database, self._place, MOST, KEEP)
        if forgotten:
            log.info("forgot %d idempotency keys", forgotten)
        self._place = place or START
        return None if place else AFTER_A_ROUND
