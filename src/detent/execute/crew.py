"""The lanes of a worker together: what waits for them, what runs in them, and how they are stopped."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple
from uuid import UUID

from detent.execute.attempt import Executors, interrupted
from detent.execute.context import Context, Interruption
from detent.execute.deadlines import FOREVER, Deadlines
from detent.execute.ending import CANCELLED, Ending
from detent.execute.lane import Lane
from detent.execute.logs import LogShipper
from detent.execute.report import Reporter
from detent.execute.staged import Staging
from detent.model.work import Claim, Finished, Progress, Staged
from detent.runtime.clock import Clock

log = logging.getLogger("detent.worker")

SLICE_NS = 2_000_000

# A handler that was cancelled and runs on regardless is left to itself after this long. Longer than it
# takes to end a process tree.
ABANDON_AFTER = 10.0


class Desk(NamedTuple):
    """What lanes need around them."""

    executors: Executors
    reporter: Reporter
    shipper: LogShipper
    clock: Clock
    trusted: Callable[[], bool]
    tell: Callable[[Progress], None]
    hungry: Callable[[], None]


class Crew:
    """All lanes of a worker, and the claims that wait for one."""

    def __init__(self, slots: int, desk: Desk, variables: contextvars.Context) -> None:
        self.desk = desk
        self.variables = variables
        self.queue: deque[Claim] = deque()
        self.staged = Staging(self._start_staged)
        self.more_ahead = False  # there was more to claim ahead than there was room for
        self.idle: list[Lane] = []
        self.lanes: set[Lane] = set()
        self.deadlines: Deadlines[Lane] = Deadlines(self._overdue)
        self.running = 0
        self.called = 0
        self.ended = 0  # all attempts that ever ended here
        # Call for more when the queue, or all that is in flight, is down to this. -1: never.
        self.low_water = 0
        self.low_flight = -1
        self.moved_at = time.monotonic()  # when the queue last moved
        self.handed_back: list[Claim] = []
        self.quiet = asyncio.Event()
        self.quiet.set()
        self.closing = False
        self.yielding = False
        self.slice_ends_ns = 0
        self._slots = slots

    def add(self, claims: Iterable[Claim]) -> None:
        self.queue.extend(claims)
        if self.queue:
            self.moved_at = time.monotonic()
            self.quiet.clear()
            self.call_next()

    def stage(self, staged: Iterable[Staged]) -> None:
        """Hold claims until their instants."""
        self.staged.add(staged)

    def _start_staged(self, claims: list[Claim]) -> None:
        """Their instant has come: they go before everything else that waits."""
        self.queue.extendleft(reversed(claims))
        self.moved_at = time.monotonic()
        self.quiet.clear()
        self.call_next()
        if self.more_ahead:
            self.desk.hungry()

    def call_next(self) -> None:
        """Have one more lane look at the queue, if there is one."""
        if self.idle:
            lane = self.idle.pop()
            lane.wake()
        elif len(self.lanes) < self._slots:
            lane = Lane(self)
            self.lanes.add(lane)
        else:
            return
        lane.called = True
        self.called += 1

    async def breathe(self) -> None:
        """Let the loop turn once; the lanes then have another slice."""
        self.yielding = True
        try:
            await asyncio.sleep(0)
        finally:
            self.yielding = False
            self.slice_ends_ns = time.monotonic_ns() + SLICE_NS

    @property
    def in_flight(self) -> int:
        return self.running + len(self.queue) + len(self.staged)

    def holding(self) -> tuple[tuple[UUID, int, int], ...]:
        """What runs here or waits to, as (execution, attempt, token). Asked from the heartbeat's thread."""
        claims = [lane.claim for lane in list(self.lanes)] + list(self.queue)
        claims += self.staged.claims()
        return tuple((c.execution_id, c.attempt, c.token) for c in claims if c is not None)

    def overdue_at(self) -> float:
        """The monotonic instant at which the first of what runs here is out of time. From any thread."""
        return min((lane.deadline for lane in list(self.lanes)), default=FOREVER)

    def ended_one(
        self, claim: Claim, context: Context, ending: Ending, started_us: int, ended_ns: int
    ) -> None:
        """An attempt is over: pass its end on, after its output if it wrote any."""
        self.running -= 1
        self.ended += 1
        context.ended = True
        finished = self._finished(claim, ending, started_us, ended_ns)
        if context.output is not None:
            self.desk.shipper.end(context.output, finished)
        elif finished is not None:
            self.desk.reporter.add(finished)
        queued = len(self.queue)
        if queued <= self.low_water or queued + self.running <= self.low_flight:
            self.desk.hungry()
        if not self.running and not self.queue:
            self.desk.reporter.hurry()
            self.quiet.set()

    def report(self, finished: Finished) -> None:
        """An end whose output is stored by now."""
        self.desk.reporter.add(finished)
        if not self.running and not self.queue:
            self.desk.reporter.hurry()

    def _finished(
        self, claim: Claim, ending: Ending, started_us: int | None, ended_ns: int
    ) -> Finished | None:
        outcome, result, error, retryable = ending
        if outcome != "succeeded":
            if outcome == "released" and error is None:
                self.handed_back.append(claim)
                return None
            if outcome == "worker_lost":
                return None
        ended_us = (ended_ns + self.desk.clock.offset_ns) // 1000
        return Finished(claim, outcome, started_us, ended_us, result, error, retryable)

    def interrupt(self, lane: Lane, why: Interruption) -> None:
        """Stop what runs in a lane, once. Losing the worker overrides any other reason."""
        context = lane.context
        if context is None:
            return
        if context.interruption is not None:
            if why is Interruption.LOST:
                context.interruption = why
            return
        context.interruption = why
        lane.deadline = time.monotonic() + ABANDON_AFTER
        if lane.deadline < lane.entry_at:
            self.deadlines.watch(lane)
        lane.task.cancel()

    def interrupt_all(self, why: Interruption) -> None:
        for lane in self.lanes:
            self.interrupt(lane, why)

    def cancel(self, wanted: Collection[tuple[UUID, int]], why: Interruption) -> None:
        """Stop these attempts, whether they run or wait."""
        for lane in self.lanes:
            claim = lane.claim
            if claim is not None and (claim.execution_id, claim.attempt) in wanted:
                self.interrupt(lane, why)
        waiting = [c for c in self.queue if (c.execution_id, c.attempt) in wanted]
        for claim in waiting:
            self.queue.remove(claim)
        for claim in waiting + self.staged.withdraw(wanted):
            if why is Interruption.CANCELLED:
                finished = self._finished(claim, CANCELLED, None, time.monotonic_ns())
                if finished is not None:
                    self.report(finished)
        if waiting and not self.running and not self.queue:
            self.quiet.set()

    def _overdue(self, lane: Lane) -> None:
        context = lane.context
        if context is None:
            return
        if context.interruption is None:
            self.interrupt(lane, Interruption.TIMEOUT)
        else:
            self.abandon(lane)

    def abandon(self, lane: Lane) -> None:
        """A handler ignores its cancellation: record its end without it, and let another lane go on."""
        claim, context = lane.claim, lane.context
        if claim is None or context is None or context.interruption is None:
            return
        log.warning("%s attempt %d ignores its cancellation and is left to itself",
                    claim.execution_id, claim.attempt)  # fmt: skip
        lane.abandoned = True
        lane.claim = lane.context = None
        lane.deadline = FOREVER
        self.lanes.discard(lane)
        self.ended_one(claim, context, interrupted(context.interruption, claim, None), lane.started_us,
                       time.monotonic_ns())  # fmt: skip
        if self.queue:
            self.call_next()

    def take_queue(self) -> list[Claim]:
        """Everything that waits for a lane, which then no longer does."""
        claims = list(self.queue)
        self.queue.clear()
        if not self.running:
            self.quiet.set()
        return claims

    def take_waiting(self) -> list[Claim]:
        """Everything that waits, also for its instant, which then no longer does."""
        return self.take_queue() + self.staged.take()

    async def calm(self, seconds: float) -> bool:
        """Wait until nothing runs or waits, but not longer than this."""
        try:
            async with asyncio.timeout(seconds):
                await self.quiet.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """No lane takes anything any more; parked ones end."""
        self.closing = True
        self.deadlines.close()
        self.staged.close()
        for lane in self.lanes:
            lane.wake()
