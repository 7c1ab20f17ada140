"""A port that follows a script: it stands for the port's promises, not for a database."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from detent.execute.registry import Registry
from detent.execute.worker import Worker
from detent.model.errors import StoreUnavailable
from detent.model.job import JobSpec, PythonTask, ShellTask
from detent.model.work import (
    Ahead,
    Beat,
    Claim,
    Finished,
    LogChunk,
    Orders,
    Progress,
    Staged,
    WorkerInfo,
    us_of,
)
from detent.runtime.clock import Clock
from detent.runtime.config import Config

AT = datetime(2026, 1, 1, tzinfo=UTC)


def claim_of(task: str | ShellTask, payload: str = "null", timeout: float = 60.0, attempt: int = 1) -> Claim:
    named = PythonTask(task) if isinstance(task, str) else task
    spec = JobSpec(name="job", task=named, timeout_seconds=timeout)
    return Claim(uuid4(), uuid4(), attempt, 7, 0, us_of(AT), 1, spec, payload)


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait for something to come true, with a deadline."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


class ScriptedPort:
    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self.waiting: deque[Claim] = deque(claims)
        self.registered: list[WorkerInfo] = []
        self.limits: list[int] = []
        self.ahead: list[Staged] = []
        self.ahead_limits: list[int] = []
        self.finished: list[Finished] = []
        self.batches: list[int] = []
        self.released: list[Claim] = []
        self.chunks: list[LogChunk] = []
        self.story: list[tuple[str, UUID]] = []  # in which order things were said
        self.stopped: list[UUID] = []
        self.outages = 0  # so many calls fail as if the store were away
        self.stale: set[UUID] = set()
        self.poison: UUID | None = None

    def _reach(self) -> None:
        if self.outages:
            self.outages -= 1
            raise StoreUnavailable("the script says so")

    async def register(self, info: WorkerInfo, lease_seconds: float) -> None:
        self.registered.append(info)

    async def claim(self, worker_id: UUID, pools: Sequence[str], limit: int) -> list[Claim]:
        self.limits.append(limit)
        return [self.waiting.popleft() for _ in range(min(limit, len(self.waiting)))]

    async def claim_ahead(self, worker_id: UUID, pools: Sequence[str], limit: int) -> Ahead:
        self.ahead_limits.append(limit)
        taken, self.ahead = self.ahead[:limit], self.ahead[limit:]
        next_in = (self.ahead[0].start_ns - time.monotonic_ns()) / 1e9 if self.ahead else None
        return Ahead(taken, next_in)

    async def finish(self, batch: Sequence[Finished]) -> set[tuple[UUID, int]]:
        self._reach()
        if self.poison in {f.claim.execution_id for f in batch if f.outcome == "succeeded"}:
            raise ValueError("this one cannot be stored")
        self.batches.append(len(batch))
        kept = [f for f in batch if f.claim.execution_id not in self.stale]
        self.finished += kept
        self.story += [("finish", f.claim.execution_id) for f in kept]
        return {(f.claim.execution_id, f.claim.attempt) for f in batch} - {
            (f.claim.execution_id, f.claim.attempt) for f in kept
        }

    async def release(self, worker_id: UUID, claims: Sequence[Claim]) -> None:
        self._reach()
        self.released += claims

    async def log(self, chunks: Sequence[LogChunk]) -> set[tuple[UUID, int]]:
        self._reach()
        self.chunks += chunks
        self.story += [("log", c.execution_id) for c in chunks]
        return {(c.execution_id, c.attempt) for c in chunks if c.execution_id in self.stale}

    async def stop(self, worker_id: UUID) -> None:
        self.stopped.append(worker_id)

    def text(self, stream: str) -> str:
        return "".join(c.text for c in self.chunks if c.stream == stream)


class ScriptedPulse:
    """Answers beats from the heartbeat's thread."""

    def __init__(self) -> None:
        self.orders = Orders(True, False, ())
        self.lost: set[UUID] = set()
        self.beats: list[tuple[UUID, int]] = []
        self.broken = False
        self.told: list[Progress] = []
        self.stale: set[UUID] = set()
        self.unfit = False
        self.connections = 0
        self.closed = 0

    async def connect(self) -> ScriptedPulse:
        self.connections += 1
        return self

    async def beat(self, worker_id: UUID, beat: Beat) -> Orders:
        if self.broken:
            raise StoreUnavailable("the script says so")
        self.beats.append((worker_id, len(beat.holding)))
        return Orders(False, False, ()) if worker_id in self.lost else self.orders

    async def progress(self, told: Sequence[Progress]) -> set[tuple[UUID, int]]:
        if self.broken:
            raise StoreUnavailable("the script says so")
        if self.unfit:
            raise ValueError("this cannot be stored")
        self.told += told
        return {(one.execution_id, one.attempt) for one in told if one.execution_id in self.stale}

    async def close(self) -> None:
        self.closed += 1


@asynccontextmanager
async def working(
    port: ScriptedPort,
    registry: Registry | None = None,
    pulse: ScriptedPulse | None = None,
    **settings: Any,
):
    """A running worker, stopped in order at the end."""
    settings = {"slots": 4, "heartbeat": 0.05, "lease": 5.0, "grace": 5.0, **settings}
    pulse = pulse or ScriptedPulse()
    worker = Worker(
        port,
        pulse.connect,
        Clock(),
        Config(**settings),
        registry=registry or Registry(),
        environ={"PATH": "/usr/bin:/bin"},
    )
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        async with asyncio.timeout(40):
            await running
