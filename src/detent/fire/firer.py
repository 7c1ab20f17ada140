"""The firer: waits for the next due timer of its shards and fires what is due, in batches.

What is due soon is held in memory, see `horizon`, and told of changes by wake-ups. Firing a batch is one
transaction; while one is under way the next one is decided. A batch that fails is
halved until the row at fault stands alone: that one is parked with the reason, the others go on. A row that
somebody keeps locked is at no fault: it is passed over for a while.

Fires are staged: committed a little ahead of their instant, the further the more of them come together, so
that workers hold a crowd in memory when its instant comes. A job has one instant staged at a time; what comes
next is set aside until that one has come.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from importlib.metadata import version
from itertools import count
from uuid import UUID

from detent.fire.decide import decide, opens_at
from detent.fire.horizon import Horizon
from detent.fire.node import Node
from detent.model.errors import DetentError, StoreBusy, StoreUnavailable
from detent.runtime.clock import Clock
from detent.runtime.notify import EVERYTHING, Notifier
from detent.runtime.service import Service
from detent.store import timers
from detent.store.database import Database
from detent.store.partitions import with_partitions, with_partitions_of
from detent.store.timers import DueTimer, Firing
from detent.when.rule import NextFires

log = logging.getLogger("detent.firer")

SCAN_EVERY = timedelta(seconds=1)
BATCH = 1000
AT_ONCE = 2  # batches on their way: one is decided and sent while another is fired
IN_DOUBT = 0.25
# How far ahead of its instant a fire may be committed: this, and the time that a crowd takes to be fired.
LEAD = timedelta(seconds=0.3)
LEAD_MOST = timedelta(seconds=3)
LEAD_FIRES_PER_SECOND = 20_000
# Timers are popped by our reading of the database's clock, which may be a little behind it.
LEAD_MARGIN = timedelta(milliseconds=5)
# With a crowd perhaps near, look again after this long: it may deserve a longer lead than what comes first.
LOOK_AGAIN = timedelta(seconds=0.25)
PASS_OVER = timedelta(seconds=5)


class Firer(Service):
    name = "firer"
    every = 0.5

    def __init__(
        self,
        database: Database,
        clock: Clock,
        node: Node,
        notifier: Notifier,
        doubt_clock: Callable[[], None] = lambda: None,
    ) -> None:
        """`doubt_clock` is called when the database's clock may have jumped."""
        super().__init__()
        self._doubt_clock = doubt_clock
        self._database = database
        self._clock = clock
        self._node = node
        self._notifier = notifier
        self._memo = NextFires()
        self._horizon = Horizon(database)
        self._wheel = self._horizon.wheel
        # Due soon, behind an instant that is staged: (when that one has come, a number, the timer).
        self._behind: list[tuple[datetime, int, DueTimer]] = []
        self._numbers = count()
        self._changed: set[UUID] = set()
        self._gained: set[int] = set()
        self._locked: dict[UUID, datetime] = {}  # by others: passed over until then
        self._reload = True
        self._scan_at = clock.now()
        self._tzdata = version("tzdata")
        self.fired = 0
        self.lag_ms = 0.0  # how late the last batch was

    def hear(self, payload: str) -> None:
        """A wake-up said that these jobs' timers changed."""
        if payload == EVERYTHING:
            self._scan_at = now = self._clock.now()
            self._horizon.missed_some(now)
        else:
            self._changed.update(UUID(part) for part in payload.split(","))
        self.wake()

    def reload(self) -> None:
        """Something may have been missed: look at everything again."""
        self._reload = True
        self.wake()

    def shards_gained(self, shards: set[int]) -> None:
        """These are ours now: load them before anything of theirs is due."""
        self._gained |= shards
        self.wake()

    def clock_jumped(self) -> None:
        """What was planned on the clock as it was is planned anew."""
        self._scan_at = self._clock.now()
        self.reload()

    async def run_once(self) -> float | None:
        if not self._node.epochs:
            return 0.05
        if not self._clock.steady:
            return IN_DOUBT
        under_way: deque[asyncio.Task[None]] = deque()
        try:
            await self._refresh()
            await self._fire_due(under_way)
        except StoreUnavailable:
            self._reload = True  # whether it committed is for the table to say
            raise
        except asyncio.CancelledError:
            for batch in under_way:
                batch.cancel()
            raise
        finally:
            await asyncio.gather(*under_way, return_exceptions=True)
        return self._until_due()

    async def _fire_due(self, under_way: deque[asyncio.Task[None]]) -> None:
        """Fire until nothing is due. No job is in two batches: its timer comes back when one is through."""
        while under_way or self._clock.steady:
            due, lead = self._due() if self._clock.steady else ([], LEAD)
            if due and (batch := await self._decided(due)):
                under_way.append(asyncio.create_task(self._apply(batch, lead + LEAD_MARGIN)))
                await asyncio.sleep(0)  # it is on its way before the next one is decided
            if len(under_way) >= AT_ONCE or (under_way and not due):
                await under_way.popleft()
            elif not due:
                break

    def _due(self) -> tuple[list[DueTimer], timedelta]:
        """What is to be fired now, and how far ahead of its instant it may be."""
        now = self._clock.now()
        self._let_out(now)
        lead = self._lead(now)
        return self._wheel.pop_due(now + lead, BATCH), lead

    def _lead(self, now: datetime) -> timedelta:
        """The lead that what is due soon deserves."""
        crowd = self._wheel.count(now + LEAD_MOST)
        return min(LEAD_MOST, LEAD + timedelta(seconds=crowd / LEAD_FIRES_PER_SECOND))

    def _open(self, timer: DueTimer, now: datetime) -> bool:
        """Whether a timer may be fired by now; else it is set aside until it may."""
        opens = opens_at(timer)
        if opens is None or opens <= now:
            return True
        heapq.heappush(self._behind, (opens, next(self._numbers), timer))
        return False

    def _let_out(self, now: datetime) -> None:
        """What was set aside until now. One that has changed since shows it by its version when it fires."""
        while self._behind and self._behind[0][0] <= now:
            self._keep(heapq.heappop(self._behind)[2])

    def _until_due(self) -> float:
        if self._changed or self._reload or self._gained:
            return 0.0
        now = self._clock.now()
        if self._horizon.wants(self._node.epochs, now):
            return 0.0
        until = self._scan_at
        if (following := self._wheel.next_due()) is not None:
            until = min(until, max(following - LEAD_MOST, min(following - self._lead(now), now + LOOK_AGAIN)))
        if self._behind:
            until = min(until, self._behind[0][0])
        return max(0.0, (until - now).total_seconds())

    async def _refresh(self) -> None:
        shards = self._node.epochs
        if self._reload:
            self._reload = False
            self._horizon.reset()
            self._behind.clear()
        if self._gained:
            gained, self._gained = self._gained, set()
            self._horizon.forget(gained)
        now = self._clock.now()
        await self._horizon.extend(shards, now)
        if now >= self._scan_at:
            self._scan_at = now + SCAN_EVERY
            await self._horizon.scan(shards, now)
        if self._changed:
            changed, self._changed = self._changed, set()
            for job_id in changed:
                self._wheel.remove(job_id)
            for timer in await timers.of_jobs(self._database, list(changed)):
                self._keep(timer)

    def _keep(self, timer: DueTimer) -> None:
        if timer.shard in self._node.epochs:
            self._horizon.keep(timer)

    async def _decided(self, due: Sequence[DueTimer]) -> list[tuple[DueTimer, Firing]]:
        """The decisions about these, in the order in which they lock; a timer whose rule raises is parked."""
        now = self._clock.now()
        batch: list[tuple[DueTimer, Firing]] = []
        for timer in self._unlocked(due, now):
            if timer.shard not in self._node.epochs:
                continue  # another node's by now
            try:
                if self._open(timer, now):
                    batch.append((timer, decide(timer, now, self._node.epochs[timer.shard], self._memo)))
            except (DetentError, ValueError, ArithmeticError, LookupError, TypeError) as error:
                await self._park(timer, f"its rule cannot be evaluated: {error}")
        batch.sort(key=lambda pair: pair[0].job_id.bytes)
        return batch

    def _unlocked(self, due: Sequence[DueTimer], now: datetime) -> Sequence[DueTimer]:
        """Without those that are passed over: the scan of the next seconds brings them again."""
        if not self._locked:
            return due
        self._locked = {job_id: until for job_id, until in self._locked.items() if until > now}
        return [timer for timer in due if timer.job_id not in self._locked]

    async def _apply(self, batch: Sequence[tuple[DueTimer, Firing]], lead: timedelta) -> None:
        firings = [firing for _, firing in batch]
        try:
            moved = await with_partitions_of(
                self._database,
                self._clock.now(),
                [firing.execution_id for firing in firings],
                lambda: timers.fire(
                    self._database, firings, self._node.node_id, self._tzdata, self._clock.now(), lead
                ),
            )
        except StoreBusy as error:
            if len(batch) > 1:
                await self._halve(batch, lead)
            else:
                log.warning("job %s cannot be fired yet: %s", batch[0][0].job_id, error)
                self._locked[batch[0][0].job_id] = self._clock.now() + PASS_OVER
            return
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - the border of a batch: the row at fault is found by halving
            if len(batch) > 1:
                await self._halve(batch, lead)
            else:
                await self._park(batch[0][0], f"firing failed: {type(error).__name__}: {error}")
            return
        self.fired += len(moved)
        if not moved:
            # All of it changed under us, or the database's clock did: ask it before trying again.
            await self._clock.sample(lambda: timers.clock_us(self._database))
            if not self._clock.steady:
                self._doubt_clock()
        self._tell(firing for firing in firings if firing.job_id in moved)
        for timer, firing in batch:
            if timer.job_id not in moved:
                self._changed.add(timer.job_id)  # changed under us: read it again
            elif firing.next_at is not None:
                self._keep(
                    timer._replace(
                        due_at=firing.next_at, version=timer.version + 1, decided_through=firing.fire_at
                    )
                )

    def _tell(self, fired: Iterable[Firing]) -> None:
        """Wake the workers, who take also what is staged."""
        now, pools, late = self._clock.now(), set(), timedelta(0)
        for firing in fired:
            pools.add(firing.pool)
            late = max(late, now - firing.fire_at)
        self.lag_ms = late.total_seconds() * 1000
        self._notifier.queue(pools)

    async def _halve(self, batch: Sequence[tuple[DueTimer, Firing]], lead: timedelta) -> None:
        half = len(batch) // 2
        await self._apply(batch[:half], lead)
        await self._apply(batch[half:], lead)

    async def _park(self, timer: DueTimer, reason: str) -> None:
        log.error("job %s is parked: %s", timer.job_id, reason)
        epoch, now = self._node.epochs.get(timer.shard, 0), self._clock.now()
        await with_partitions(
            self._database,
            now,
            lambda: timers.park(self._database, timer, reason, self._node.node_id, epoch, now),
        )
