"""Ended attempts, gathered and recorded in batches.

A batch goes out when 500 have gathered, 2 ms after the first, or at once when the worker has nothing else
to do: one commit then stands for hundreds of attempts under load, and a lone attempt waits for nobody.

Two senders take turns: while one waits for its commit the other may send the next 500, so that the store
does not stand still while we encode and decode. What is not yet 500 waits for the first to come back: small
batches side by side would cost more than they gain. Batches are about different attempts, so their order
means nothing.

What the store did not record was stale: the attempt had been taken away. That is counted, never repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from uuid import UUID

import msgspec

from detent.execute.ending import clean, say
from detent.execute.port import Port
from detent.execute.retry import Persistent
from detent.model.execution import ErrorInfo
from detent.model.work import Finished

log = logging.getLogger("detent.worker")

BATCH = 500
SENDERS = 2
GATHER_SECONDS = 0.002

# Past either of these the worker claims no more until the store has caught up.
MOST_WAITING = 5_000
MOST_BYTES = 64 * 1024 * 1024


class Reporter:
    """Keeps ended attempts until they are recorded."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._waiting: deque[Finished] = deque()
        self._bytes = 0
        self._sending = 0
        self._some = asyncio.Event()
        self._due = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._turn = asyncio.Lock()
        self._persistent = Persistent("ended attempts")
        self._unfit: set[tuple[UUID, int]] = set()
        self.recorded = 0
        self.stale_writes = 0

    def add(self, finished: Finished) -> None:
        waiting = self._waiting
        waiting.append(finished)
        if finished.result is not None:
            self._bytes += len(finished.result)
        if len(waiting) == 1:
            self._some.set()
            self._empty.clear()
        elif len(waiting) == BATCH:
            self._due.set()

    def hurry(self) -> None:
        """Nothing else is coming soon: send what there is."""
        if self._waiting:
            self._due.set()

    @property
    def full(self) -> bool:
        return len(self._waiting) + self._sending >= MOST_WAITING or self._bytes >= MOST_BYTES

    @property
    def unrecorded(self) -> int:
        return len(self._waiting) + self._sending

    async def run(self) -> None:
        """One sender; there may be SENDERS of them at once."""
        while True:
            async with self._turn:
                batch = await self._next()
            try:
                await self._record(batch)
            finally:
                self._landed(len(batch))

    async def _next(self) -> list[Finished]:
        await self._some.wait()
        if self._sending:
            await self._due.wait()
        elif not self._due.is_set():
            await self._gather()
        return self._take()

    def _landed(self, size: int) -> None:
        self._sending -= size
        if self._sending:
            return
        if self._waiting:
            self._due.set()  # they have waited for this batch, and that was long enough
        else:
            self._empty.set()

    async def drained(self, seconds: float) -> bool:
        """Wait until everything is recorded, but not longer than this."""
        self.hurry()
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    async def _gather(self) -> None:
        try:
            async with asyncio.timeout(GATHER_SECONDS):
                await self._due.wait()
        except TimeoutError:
            pass

    def _take(self) -> list[Finished]:
        waiting = self._waiting
        batch = [waiting.popleft() for _ in range(min(BATCH, len(waiting)))]
        self._sending += len(batch)
        if len(waiting) < BATCH:
            self._due.clear()
        if not waiting:
            self._some.clear()
        return batch

    async def _record(self, batch: list[Finished]) -> None:
        stale = await self._persistent.send(self._port.finish, batch, self._refused, self._later)
        self._bytes -= sum([len(f.result) for f in batch if f.result is not None])
        self.recorded += len(batch)
        if stale or self._unfit:
            self._tell_stale(batch, stale)

    def _tell_stale(self, batch: list[Finished], stale: set[tuple[UUID, int]]) -> None:
        unfit = self._unfit.intersection((f.claim.execution_id, f.claim.attempt) for f in batch)
        self._unfit -= unfit
        stale -= unfit
        self.recorded -= len(stale) + len(unfit)
        if stale:
            self.stale_writes += len(stale)
            log.warning(
                "%d ended attempts were not ours any more and changed nothing, one of them %s attempt %d",
                len(stale), *min(stale),
            )  # fmt: skip

    def _later(self, finished: Finished) -> None:
        """Its row is locked by somebody: others need not wait for it."""
        self._unfit.add((finished.claim.execution_id, finished.claim.attempt))
        self.add(finished)

    def _refused(self, finished: Finished, error: Exception) -> None:
        """One report that the store cannot take: its attempt fails with that reason instead."""
        claim = finished.claim
        log.error("the end of %s attempt %d was refused: %s", claim.execution_id, claim.attempt, say(error))
        self._unfit.add((claim.execution_id, claim.attempt))
        told = finished.error
        if told is not None and told.type == "Unrecordable":
            return  # the plainest report there is was refused too; the lease decides
        message = f"the result could not be recorded: {say(error)}"
        plain = ErrorInfo("Unrecordable", clean(message))
        self.add(msgspec.structs.replace(finished, outcome="failed", result=None, error=plain))
