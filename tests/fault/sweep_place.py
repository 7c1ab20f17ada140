"""The paths along which the system commits: each set up, walked by the code that walks it in production, and told.

A path is walked through the proxy, in this process or in one that is killed. What a caller does about a
store that is away belongs to the path: services tick again, a worker says it again, a client repeats its
request under the same key. What is left open afterwards is worked off by others, past the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from detent.cli.wiring import PostgresPort
from detent.execute.retry import Persistent
from detent.model.errors import StoreUnavailable
from detent.model.execution import ErrorInfo
from detent.model.work import Claim, Finished, us_of
from detent.runtime.clock import Clock
from detent.runtime.notify import Notifier
from detent.store import timers
from detent.store.database import Database
from stage import Stage

T = TypeVar("T")

PATIENCE = 15.0
LEASE = 0.05
POOLS = ("default", "other")


class Given(msgspec.Struct):
    """What a path finds when it begins. Passed as JSON to a process that will be killed."""

    jobs: list[UUID] = []
    worker: UUID | None = None
    claims: list[Claim] = []
    execution: UUID | None = None


@dataclass
class Place:
    """One process's way to the database."""

    db: Database
    hot: Database
    clock: Clock
    held: list[Claim] = field(default_factory=list)  # what the worker here believes to hold in the end
    patient: bool = True

    @property
    def port(self) -> PostgresPort:
        return PostgresPort(self.hot, self.clock, Notifier(self.db))

    async def heard(self, step: Callable[[], Awaitable[T]]) -> T:
        """Repeat while the store is away, as a service, a worker or a client does."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    return await step()
                except StoreUnavailable:
                    if not self.patient:
                        raise
                    await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def place_at(url: str, *, patient: bool = True) -> AsyncIterator[Place]:
    db = await Database.open(url, size=1, application_name="detent sweep")
    hot = await Database.open(url, size=1, application_name="detent sweep", hot=True)
    clock = Clock()
    await clock.sample(lambda: timers.clock_us(hot))
    try:
        yield Place(db, hot, clock, patient=patient)
    finally:
        await hot.close()
        await db.close()


class Path:
    """`told` is what the caller hears in the end. `killed`: it runs in a process that may be killed."""

    killed = False

    async def prepare(self, stage: Stage) -> Given:
        raise NotImplementedError

    async def walk(self, place: Place, given: Given) -> Any:
        raise NotImplementedError


async def queued(stage: Stage, *names: str, **fields: Any) -> list[UUID]:
    """One-time jobs, fired and not yet claimed."""
    jobs = [await stage.once(name=name, **fields) for name in names]
    assert await stage.fire() == len(jobs)
    return jobs


async def taken(stage: Stage, *names: str, **fields: Any) -> Given:
    """The same, claimed by one worker."""
    jobs = await queued(stage, *names, **fields)
    worker = await stage.worker(lease_seconds=LEASE)
    claims = await stage.claim(worker)
    assert len(claims) == len(jobs)
    return Given(jobs, worker, sorted(claims, key=lambda claim: jobs.index(claim.job_id)))


def endings(clock: Clock, claims: list[Claim], outcome: str, *, retryable: bool = True) -> list[Finished]:
    now = clock.now()
    error = None if outcome == "succeeded" else ErrorInfo("Trouble", f"it {outcome}")
    result = '"done"' if outcome == "succeeded" else None
    return [Finished(claim, outcome, us_of(now), us_of(now), result, error, retryable) for claim in claims]  # type: ignore[arg-type]


async def said(place: Place, batch: list[Finished]) -> int:
    """Report ended attempts as a worker does; how many were recorded."""
    refused: list[Exception] = []
    recorded = await Persistent("reports").send(
        place.port.finish, batch, lambda _, error: refused.append(error)
    )
    assert not refused, refused
    return len(recorded)


async def dead(stage: Stage, name: str) -> Given:
    """A one-time job whose execution is a dead letter."""
    given = await taken(stage, name, max_retries=0)
    await stage.record(*endings(stage.clock, given.claims, "failed"))
    given.execution, given.claims = given.claims[0].execution_id, []
    return given
