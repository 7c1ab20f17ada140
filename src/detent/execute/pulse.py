"""The heartbeat: its own thread, its own event loop, its own connection.

A handler that blocks the worker's loop, or a claim that waits for a lock, must not cost the worker its
leases. One beat speaks for all attempts of the worker and brings back orders. What attempts say of their
progress goes the same way, gathered for a second: one statement for all of them.

Trust runs out on this side too: a worker that no beat got through for a whole lease must assume that it
was given up on. It counts from the start of the last beat that succeeded, since that is the earliest
instant from which the other side may have counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable
from uuid import UUID

from detent.execute.ending import say
from detent.execute.port import Pulse, PulseFactory
from detent.execute.retry import pause_after
from detent.model.errors import StoreUnavailable
from detent.model.work import Beat, Orders, Progress

log = logging.getLogger("detent.worker")

RETRY_CAP = 1.0
JOIN_SECONDS = 5.0
GATHER_PROGRESS = 1.0


class Heartbeat:
    """Beats for one incarnation at a time. `obey` is called on the worker's loop after each beat."""

    def __init__(
        self,
        connect: PulseFactory,
        *,
        every: float,
        lease: float,
        report: Callable[[], Beat],
        obey: Callable[[UUID, Orders], None],
    ) -> None:
        self._connect = connect
        self._every = every
        self._lease = lease
        self._report = report
        self._obey = obey
        self._worker_loop = asyncio.get_running_loop()
        self._worker_id: UUID | None = None
        self._trusted_until = 0.0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._wake: asyncio.Event | None = None
        self._failures = 0
        self._told: dict[tuple[UUID, int], Progress] = {}
        self._telling = threading.Lock()
        self._beat_at = self._tell_at = 0.0  # when to do either next
        self.beats = 0
        self.stale_writes = 0

    def follow(self, worker_id: UUID, registered_at: float) -> None:
        """Beat for this incarnation from now on. It was registered at this monotonic instant."""
        self._worker_id = worker_id
        self._trusted_until = registered_at + self._lease
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="detent-heartbeat", daemon=True)
            self._thread.start()

    def trusted(self) -> bool:
        """Whether a beat got through within the lease. May be asked from any thread."""
        return time.monotonic() < self._trusted_until

    def hurry(self) -> None:
        """Beat now: there may be orders. From any thread."""
        self._beat_at = 0.0
        self._rouse()

    def _rouse(self) -> None:
        loop, wake = self._loop, self._wake
        if loop is not None and wake is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(wake.set)

    def tell(self, progress: Progress) -> None:
        """Pass on what an attempt says of its progress, soon. From any thread."""
        with self._telling:
            first = not self._told
            self._told[progress.execution_id, progress.attempt] = progress
        if first:
            self._rouse()

    async def stop(self) -> None:
        """End the thread and its connection."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            try:
                loop.call_soon_threadsafe(stop.set)
                self.hurry()
            except RuntimeError:  # it ended by itself
                pass
        await asyncio.to_thread(thread.join, JOIN_SECONDS)

    def _run(self) -> None:
        asyncio.run(self._beat_on())

    async def _beat_on(self) -> None:
        self._stop, self._wake = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        pulse: Pulse | None = None
        while not self._stop.is_set() and self._thread is not None:
            try:
                async with asyncio.timeout(max(1.0, self._lease / 3)):
                    if pulse is None:
                        pulse = await self._connect()
                    await self._turn(pulse)
                self._failures = 0
            except Exception as error:  # noqa: BLE001 - the border of a loop tick: a beat that fails is repeated
                self._beat_at = self._tell_at = time.monotonic() + self._failed(error)
                await self._drop(pulse)
                pulse = None
            await self._wait()
        await self._drop(pulse)

    async def _turn(self, pulse: Pulse) -> None:
        """Do what is due of the two."""
        now = time.monotonic()
        if now >= self._beat_at:
            self._beat_at = now + self._every * random.uniform(0.9, 1.0)  # noqa: S311 - spreads workers
            await self._beat(pulse)
        if self._told and now >= self._tell_at:
            self._tell_at = now + GATHER_PROGRESS
            await self._pass_on(pulse)

    async def _pass_on(self, pulse: Pulse) -> None:
        with self._telling:
            told, self._told = self._told, {}
        try:
            stale = await pulse.progress(list(told.values()))
        except (StoreUnavailable, TimeoutError, OSError):
            with self._telling:
                self._told = {**told, **self._told}
            raise
        except Exception as error:  # noqa: BLE001 - progress is for show: it must never cost a beat
            log.warning("the progress of %d attempts could not be kept: %s", len(told), say(error))
            return
        if stale:  # the beat's answer says which to stop
            self.stale_writes += len(stale)
            self._beat_at = 0.0

    async def _beat(self, pulse: Pulse) -> None:
        worker_id = self._worker_id
        assert worker_id is not None
        started = time.monotonic()
        orders = await pulse.beat(worker_id, self._report())
        if worker_id == self._worker_id:
            self._trusted_until = started + self._lease if orders.alive else 0.0
        self.beats += 1
        try:
            self._worker_loop.call_soon_threadsafe(self._obey, worker_id, orders)
        except RuntimeError:  # the worker's loop is gone
            if self._stop is not None and self._wake is not None:
                self._stop.set()
                self._wake.set()

    def _failed(self, error: Exception) -> float:
        if self._failures == 0:
            log.warning("a heartbeat failed: %s; trying again", say(error) or type(error).__name__)
        self._failures += 1
        return min(self._every, pause_after(self._failures, RETRY_CAP))

    async def _drop(self, pulse: Pulse | None) -> None:
        """Give the connection up: after a failure nobody knows what state it is in."""
        if pulse is not None:
            try:
                async with asyncio.timeout(RETRY_CAP):
                    await pulse.close()
            except Exception as error:  # noqa: BLE001 - it was broken already
                log.debug("closing the heartbeat's connection: %s", say(error))

    async def _wait(self) -> None:
        assert self._wake is not None
        due = min(self._beat_at, self._tell_at) if self._told else self._beat_at
        try:
            async with asyncio.timeout(max(0.0, due - time.monotonic())):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()
