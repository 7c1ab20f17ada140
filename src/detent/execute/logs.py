"""Log chunks on their way to the store, and the ends of attempts that come after them.

A log write is fenced by the attempt, so it must arrive before the attempt's end is recorded. One queue
holds both in order: when the chunks before an end have been stored, the end is passed on. Attempts that
wrote nothing never come here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from uuid import UUID

from detent.execute.ending import say
from detent.execute.output import FLUSH_AFTER, Output
from detent.execute.port import Port
from detent.execute.retry import Persistent
from detent.model.work import Claim, Finished, LogChunk
from detent.runtime.clock import Clock

log = logging.getLogger("detent.worker")

BATCH = 200
MOST_CHARACTERS = 32 * 1024 * 1024
MOST_WAITING = 10_000
ROOM_PATIENCE = 5.0


class LogShipper:
    """Gathers output from running attempts and stores it in batches."""

    def __init__(
        self,
        port: Port,
        clock: Clock,
        ended: Callable[[Finished], None],
        stale: Callable[[set[tuple[UUID, int]]], None],
    ) -> None:
        """`ended` gets each attempt's end once its output is stored; `stale` whose output was refused."""
        self._port = port
        self._clock = clock
        self._ended = ended
        self._stale = stale
        self._loop = asyncio.get_running_loop()
        self._queue: deque[LogChunk | Finished] = deque()
        self._characters = 0
        self._writing: set[Output] = set()
        self._some = asyncio.Event()
        self._due = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._room = asyncio.Event()
        self._room.set()
        self._persistent = Persistent("log lines")
        self.dropped = 0

    def open(self, claim: Claim) -> Output:
        """The output of one attempt."""
        return Output(claim, self._clock, self._announce)

    def _announce(self, output: Output) -> None:
        """An output has something to flush. Called on the writer's thread."""
        try:
            self._loop.call_soon_threadsafe(self._wrote, output)
        except RuntimeError:  # a thread outlived its worker's loop; nobody is left to tell
            pass

    def _wrote(self, output: Output) -> None:
        self._writing.add(output)
        self._empty.clear()
        self._some.set()

    def end(self, output: Output, finished: Finished | None) -> None:
        """An attempt ended: its last output, then its end (None: handed back or lost, nothing to say)."""
        self._writing.discard(output)
        self._enqueue(output.close())
        if finished is not None:
            self._queue.append(finished)
        if self._queue:
            self._empty.clear()
            self._some.set()
            self._due.set()

    @property
    def full(self) -> bool:
        return len(self._queue) >= MOST_WAITING

    async def room(self) -> None:
        """Wait while the store is slower than the attempts. A store that is away is not waited for."""
        if not self._room.is_set() and not self._persistent.failing:
            try:
                async with asyncio.timeout(ROOM_PATIENCE):
                    await self._room.wait()
            except TimeoutError:
                pass

    async def run(self) -> None:
        while True:
            await self._some.wait()
            await self._gather()
            self._collect()
            self._due.clear()
            while self._queue:
                await self._ship()
            if not self._writing:
                self._some.clear()
                self._empty.set()

    async def drained(self, seconds: float) -> bool:
        """Wait until everything is stored and passed on, but not longer than this."""
        self._due.set()
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    async def _gather(self) -> None:
        try:
            async with asyncio.timeout(FLUSH_AFTER):
                await self._due.wait()
        except TimeoutError:
            pass

    def _collect(self) -> None:
        writing, self._writing = self._writing, set()
        for output in writing:
            self._enqueue(output.take())

    def _enqueue(self, chunks: Iterable[LogChunk]) -> None:
        for chunk in chunks:
            if self._characters >= MOST_CHARACTERS:
                self._drop(chunk)
                continue
            self._characters += len(chunk.text)
            self._queue.append(chunk)
        if self._characters >= MOST_CHARACTERS // 2:
            self._room.clear()

    def _drop(self, chunk: LogChunk) -> None:
        if not self.dropped:
            log.warning("more output waits to be stored than fits in memory; dropping some, from %s on",
                        chunk.execution_id)  # fmt: skip
        self.dropped += 1

    async def _ship(self) -> None:
        items = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
        chunks = [item for item in items if isinstance(item, LogChunk)]
        if chunks:
            stale = await self._persistent.send(self._port.log, chunks, self._refused)
            self._characters -= sum(len(chunk.text) for chunk in chunks)
            if self._characters < MOST_CHARACTERS // 2:
                self._room.set()
            if stale:
                self._stale(stale)
        for item in items:
            if isinstance(item, Finished):
                self._ended(item)

    def _refused(self, chunk: LogChunk, error: Exception) -> None:
        self.dropped += 1
        log.error("output of %s could not be stored: %s", chunk.execution_id, say(error))
