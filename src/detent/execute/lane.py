"""Lanes: long-lived tasks that run attempts one after the other.

A task per attempt would cost a fifth of a worker's throughput. A lane takes an attempt from the queue and
awaits it where it stands: an attempt that never suspends costs no trip through the event loop, and when
one does suspend, the next lane carries on. Three things make that safe to share:

- A lane that takes an attempt and leaves others in the queue calls the next lanes first, at most two at a
  time. If the attempt suspends they carry on; if not, they find the queue empty and park again.
- Together the lanes yield to the loop every 2 ms: one of them yields, the others park meanwhile, so that
  ready lanes do not pile up into one long turn.
- Context variables that an attempt set would be seen by the next. If any differ after an attempt, the lane
  goes on in a fresh task. Comparing costs nothing as long as nothing was set: the same map is the same map.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from typing import TYPE_CHECKING

from detent.execute.attempt import perform
from detent.execute.context import Context
from detent.execute.deadlines import FOREVER
from detent.model.work import Claim

if TYPE_CHECKING:
    from detent.execute.crew import Crew

CALLED_AT_ONCE = 2


class Lane:
    """One slot. `claim` and `context` are set while an attempt runs in it."""

    __slots__ = ("abandoned", "called", "claim", "context", "crew", "deadline", "entry_at", "parked",
                 "started_us", "task")  # fmt: skip

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.claim: Claim | None = None
        self.context: Context | None = None
        self.started_us = 0
        self.deadline = FOREVER
        self.entry_at = FOREVER
        self.called = False
        self.abandoned = False
        self.parked: asyncio.Future[None] | None = None
        self.task = self._start()

    def _start(self) -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()
        return loop.create_task(self._run(), context=self.crew.variables.copy(), name="detent-lane")

    async def _run(self) -> None:
        crew = self.crew
        queue, variables, executors = crew.queue, crew.variables, crew.desk.executors
        while not crew.closing:
            if self.called:
                self.called = False
                crew.called -= 1
            while queue:
                claim = queue.popleft()
                context = self._begin(claim)
                ending = await perform(claim, context, executors)
                if self.abandoned:
                    return
                now_ns = time.monotonic_ns()
                self.claim = self.context = None
                self.deadline = FOREVER
                crew.ended_one(claim, context, ending, self.started_us, now_ns)
                if self.task.cancelling():
                    await self._forget_cancellation()
                if context.output is not None:
                    await crew.desk.shipper.room()
                if contextvars.copy_context() != variables:
                    self.task = self._start()
                    return
                if now_ns >= crew.slice_ends_ns:
                    if crew.yielding:
                        break
                    await crew.breathe()
            await self._park()

    def _begin(self, claim: Claim) -> Context:
        crew = self.crew
        if crew.queue and crew.called < CALLED_AT_ONCE:
            crew.call_next()
        desk = crew.desk
        context = Context(claim, desk.shipper.open, desk.trusted, desk.tell)
        self.claim = claim
        self.context = context
        now_ns = time.monotonic_ns()
        self.started_us = (now_ns + desk.clock.offset_ns) // 1000
        crew.moved_at = now = now_ns / 1e9
        deadline = now + claim.spec.timeout_seconds
        if claim.deadline_at is not None:
            deadline = min(deadline, desk.clock.monotonic_of(claim.deadline_at))
        self.deadline = deadline
        if deadline < self.entry_at:
            crew.deadlines.watch(self)
        crew.running += 1
        return context

    async def _forget_cancellation(self) -> None:
        """Leave no trace of a cancellation for the next attempt, nor one still on its way."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass
        while self.task.cancelling():
            self.task.uncancel()

    async def _park(self) -> None:
        self.parked = asyncio.get_running_loop().create_future()
        self.crew.idle.append(self)
        await self.parked

    def wake(self) -> None:
        if self.parked is not None and not self.parked.done():
            self.parked.set_result(None)
