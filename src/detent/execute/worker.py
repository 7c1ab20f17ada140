"""The worker: claims attempts, runs them, reports how they ended.

Its tick is the claim. Lanes run what was claimed, the reporter and the log shipper send what came of it,
and the heartbeat speaks for all of it from a thread of its own; each of them goes on while another waits
for the database. Whatever a worker believes, the store decides: an attempt that was taken away cannot be
recorded, so a worker that is wrong does no harm. It still stops as soon as it knows.

An incarnation that the store gave up on is lost for good. The worker drops what it was doing, and goes on
as a new one.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import platform
import time
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

from detent.execute.appetite import Appetite
from detent.execute.attempt import Executors
from detent.execute.context import Interruption
from detent.execute.crew import Crew, Desk
from detent.execute.deadlines import FOREVER
from detent.execute.logs import LogShipper
from detent.execute.port import Port, PulseFactory
from detent.execute.pulse import Heartbeat
from detent.execute.registry import Registry, default_registry
from detent.execute.report import SENDERS, Reporter
from detent.execute.shell import ShellExecutor
from detent.execute.threads import Threads
from detent.model.errors import StoreUnavailable
from detent.model.ids import new_incarnation_id
from detent.model.work import Beat, Finished, Orders, WorkerInfo
from detent.runtime.clock import Clock
from detent.runtime.config import Config
from detent.runtime.service import Service

log = logging.getLogger("detent.worker")

# Prefetched work that no lane had time for goes back to those who have.
PREFETCH_PATIENCE = 1.0
# How soon to look again while results pile up, or while no heartbeat gets through.
HOLD_BACK = 0.01
MISTRUST = 0.25
# Decoding a claim holds up the loop, and with it what starts meanwhile: so large ones are taken in parts.
AHEAD_BATCH = 250
# The loop's timers count whole milliseconds: what waits for an instant must not come before it.
TICK = 0.001
# When stopping: how long cancelled attempts may take to end, and the store to take what is left to say.
END_PATIENCE = 5.0
STORE_PATIENCE = 10.0


class Worker(Service):
    name = "worker"
    every = 1.0

    def __init__(
        self,
        port: Port,
        connect: PulseFactory,
        clock: Clock,
        config: Config,
        *,
        registry: Registry = default_registry,
        environ: Mapping[str, str] | None = None,
        label: str | None = None,
    ) -> None:
        """`environ` is the environment whose harmless part shell tasks inherit; `label` names the worker."""
        super().__init__()
        self._port = port
        self._connect = connect
        self._clock = clock
        self._config = config
        self._registry = registry
        self._environ = environ or {}
        self._label = label or f"{platform.node()}:{os.getpid()}"
        self._appetite = Appetite(config.slots)
        self._worker_id: UUID | None = None
        self._lost = False
        self._draining = False
        self._hints = 0
        self._stale_logs = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._crew: Crew | None = None

    @property
    def worker_id(self) -> UUID | None:
        """The present incarnation."""
        return self._worker_id

    @property
    def in_flight(self) -> int:
        """Attempts that run here or wait to."""
        return self._crew.in_flight if self._crew is not None else 0

    @property
    def stale_writes(self) -> int:
        """Writes that changed nothing because the attempt was no longer ours."""
        if self._crew is None:
            return 0
        return self._stale_logs + self._reporter.stale_writes + self._heartbeat.stale_writes

    @property
    def recorded(self) -> int:
        """Attempts whose end was recorded."""
        return self._reporter.recorded if self._crew is not None else 0

    def orders_wait(self) -> None:
        """There may be something to cancel."""
        if self._crew is not None:
            self._heartbeat.hurry()

    def _beat(self) -> Beat:
        """What the heartbeat says, from its own thread."""
        crew = self._crew
        if crew is None:
            return Beat()
        overdue = crew.overdue_at()
        left = overdue - time.monotonic() if overdue < FOREVER else None
        return Beat(crew.holding(), left, self.stale_writes)

    def wake(self) -> None:
        """There may be new work."""
        self._hints += 1
        super().wake()

    async def opened(self) -> None:
        if self._crew is None:
            self._assemble()
        await self._join()

    def _assemble(self) -> None:
        variables = contextvars.copy_context()
        self._threads = Threads(variables)
        self._shell = ShellExecutor(self._environ, lambda: self.stopping)
        self._reporter = Reporter(self._port)
        self._shipper = LogShipper(self._port, self._clock, self._report, self._log_was_stale)
        self._heartbeat = Heartbeat(
            self._connect,
            every=self._config.heartbeat,
            lease=self._config.lease,
            report=self._beat,
            obey=self._obey,
        )
        desk = Desk(
            executors=Executors(self._registry.find, self._threads, self._shell),
            reporter=self._reporter,
            shipper=self._shipper,
            clock=self._clock,
            trusted=self._heartbeat.trusted,
            tell=self._heartbeat.tell,
            hungry=super().wake,
        )
        self._crew = Crew(self._config.slots, desk, variables)
        for run in (*[self._reporter.run] * SENDERS, self._shipper.run):
            self._tasks.append(asyncio.create_task(_kept_running(run)))

    async def _join(self) -> None:
        """Enter the fleet as a new incarnation."""
        worker_id = new_incarnation_id()
        info = WorkerInfo(
            worker_id=worker_id,
            name=self._label,
            host=platform.node(),
            pid=os.getpid(),
            pools=self._config.pools,
            slots=self._config.slots,
            tasks=self._registry.names(),
        )
        started = time.monotonic()
        await self._port.register(info, self._config.lease)
        self._worker_id = worker_id
        self._lost = self._draining = False
        self._heartbeat.follow(worker_id, started)
        log.info("worker %s joined with %d slots for %s", worker_id, info.slots, ", ".join(info.pools))

    async def run_once(self) -> float | None:
        """Claim what there is room for. The answer of None waits to be woken, by a hint or by free slots."""
        crew = self._crew
        assert crew is not None
        if self._lost:
            await self._join()
        if self._draining:
            crew.handed_back.extend(crew.take_waiting())
        elif crew.queue and time.monotonic() - crew.moved_at > PREFETCH_PATIENCE:
            crew.handed_back.extend(crew.take_queue())
            self._appetite.forget(crew.ended)
        await self._release()
        if self._draining:
            return None
        if not self._heartbeat.trusted():
            return MISTRUST
        if self._reporter.full or self._shipper.full:
            return HOLD_BACK
        limit = self._appetite.limit(time.monotonic(), crew.ended, crew.in_flight)
        crew.low_water, crew.low_flight = self._appetite.low_water, self._appetite.low_flight
        return await self._claim(crew, limit) if limit > 0 else None

    async def _claim(self, crew: Crew, limit: int) -> float | None:
        hints, worker_id = self._hints, self._worker_id
        assert worker_id is not None
        claims = await self._port.claim(worker_id, self._config.pools, limit)
        if self._lost:
            return 0  # claimed in the name of an incarnation that is no more
        crew.add(claims)
        if len(claims) == limit:
            return None
        if 2 * len(claims) > limit:
            return 0
        crew.low_water = crew.low_flight = -1  # there was no more: only a hint or the poll leads back here
        next_in = await self._claim_ahead(crew, worker_id)
        return 0 if hints != self._hints else next_in

    async def _claim_ahead(self, crew: Crew, worker_id: UUID) -> float | None:
        """Take what is due soon, once nothing is due, into half of the free slots. What finds no room there
        is claimed when it is due: the answer is when to come back for the first of it.
        """
        room = min(AHEAD_BATCH, self._appetite.ahead(crew.running + len(crew.queue), len(crew.staged)))
        staged, next_in = await self._port.claim_ahead(worker_id, self._config.pools, room)
        if self._lost:
            return 0
        crew.more_ahead = next_in is not None
        if self._draining:
            crew.handed_back.extend(claim for claim, _ in staged)
            return 0
        crew.stage(staged)
        if len(staged) == AHEAD_BATCH:
            return 0
        return None if next_in is None else min(self.every, next_in + TICK)

    async def _release(self) -> None:
        """Hand back what will not run here. Kept until the store has heard it."""
        crew = self._crew
        assert crew is not None
        if crew.handed_back and not self._lost and self._worker_id is not None:
            claims = list(crew.handed_back)
            await self._port.release(self._worker_id, claims)
            del crew.handed_back[: len(claims)]

    def _obey(self, worker_id: UUID, orders: Orders) -> None:
        """A heartbeat came back."""
        crew = self._crew
        if crew is None or worker_id != self._worker_id or self._lost:
            return
        if not orders.alive:
            self._lose(crew)
            return
        if orders.cancel:
            crew.cancel(set(orders.cancel), Interruption.CANCELLED)
        if orders.stale:
            crew.cancel(set(orders.stale), Interruption.LOST)
        if orders.draining != self._draining:
            self._draining = orders.draining
            self.wake()

    def _lose(self, crew: Crew) -> None:
        log.error("worker %s was given up on; its attempts are no longer ours", self._worker_id)
        self._lost = True
        crew.take_waiting()
        crew.handed_back.clear()
        crew.interrupt_all(Interruption.LOST)
        self.wake()

    def _report(self, finished: Finished) -> None:
        assert self._crew is not None
        self._crew.report(finished)

    def _log_was_stale(self, stale: set[tuple[UUID, int]]) -> None:
        assert self._crew is not None
        self._stale_logs += len(stale)
        self._crew.cancel(stale, Interruption.LOST)

    async def closed(self) -> None:
        """Drain: hand back what waits, let what runs end, say what is left to say, leave."""
        crew = self._crew
        if crew is None:
            return
        crew.low_water = crew.low_flight = -1
        crew.handed_back.extend(crew.take_waiting())
        await self._settle("handing work back", self._release)
        if not await crew.calm(self._config.grace):
            log.warning("%d attempts still run; cancelling them and handing them back", crew.running)
            crew.interrupt_all(Interruption.SHUTDOWN)
            if not await crew.calm(END_PATIENCE):
                for lane in list(crew.lanes):
                    crew.abandon(lane)
        crew.close()
        if not await self._shipper.drained(STORE_PATIENCE):
            log.error("output could not be stored before the end")
        if not await self._reporter.drained(STORE_PATIENCE):
            log.error("%d ended attempts could not be recorded before the end", self._reporter.unrecorded)
        await self._settle("handing work back", self._release)
        await self._leave()

    async def _leave(self) -> None:
        await self._heartbeat.stop()
        if self._worker_id is not None and not self._lost:
            worker_id = self._worker_id
            await self._settle("leaving the fleet", lambda: self._port.stop(worker_id))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.close()
        self._shell.close()

    async def _settle(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        """One last word to the store: worth a few tries, not worth hanging for."""
        try:
            async with asyncio.timeout(STORE_PATIENCE):
                while True:
                    try:
                        return await step()
                    except StoreUnavailable:
                        await asyncio.sleep(MISTRUST)
        except TimeoutError:
            log.warning("%s: the store is away; the lease will tell it", what)
        except Exception:  # the border of a stop: the remaining steps still have to be taken
            log.exception("%s failed", what)


async def _kept_running(run: Callable[[], Awaitable[None]]) -> None:
    """A loop that ended by an error of ours starts again: a worker that reports nothing is worse."""
    while True:
        try:
            await run()
        except Exception:  # the border of a loop
            log.exception("a worker's loop failed; starting it again")
            await asyncio.sleep(HOLD_BACK)
