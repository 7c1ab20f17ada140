"""A stage for tests of the spine: jobs, firers, workers and endings against a real PostgreSQL.

Nothing here waits for time to pass. A job is due because its instant lies behind us on the database's clock;
a race is decided by a lock that the test holds; an answer is lost because the test drops it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import count
from typing import Any, TypeVar, cast
from uuid import UUID

import asyncpg
import msgspec
import pytest

from detent.dispatch.claimer import Claimer
from detent.finish.recorder import Recorder
from detent.finish.rescuer import Rescuer
from detent.fire.decide import decide
from detent.fire.firer import Firer
from detent.fire.node import Node
from detent.model.errors import StoreUnavailable
from detent.model.execution import ErrorInfo
from detent.model.ids import DEFAULT_TENANT, new_incarnation_id, new_job_id
from detent.model.job import JobSpec, PythonTask
from detent.model.work import Claim, Finished, WorkerInfo, us_of
from detent.runtime.clock import Clock
from detent.runtime.notify import Notifier
from detent.store import timers, work
from detent.store.database import Database, Record
from detent.store.embedded import Embedded
from detent.store.jobs import Draft, create_jobs
from detent.store.sql import Queries
from detent.when.rule import NextFires

T = TypeVar("T")
queries = Queries.load()

TENANT = DEFAULT_TENANT
MOMENT = timedelta(milliseconds=50)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
YEAR = timedelta(days=365)

# Everything that the spine writes, in an order that makes two dumps comparable.
WRITTEN = {
    "timers": "job_id",
    "fires": "job_id, nominal_at, generation",
    "live": "execution_id",
    "executions": "execution_id",
    "attempts": "execution_id, attempt",
    "progress": "execution_id",
    "dead_letters": "execution_id",
    "job_ends": "job_id",
    "callbacks": "execution_id",
}
BESIDES = (
    "inputs", "logs", "alerts", "request_keys", "workers", "nodes", "job_tags", "job_revisions", "jobs",
)  # fmt: skip


class Stage:
    """`hot` is what schedulers and workers connect through, `db` is everybody else's."""

    def __init__(self, db: Database, hot: Database, clock: Clock) -> None:
        self.db = db
        self.hot = hot
        self.clock = clock
        self.notifier = Notifier(db)
        self._nodes: list[Node] = []

    def now(self) -> datetime:
        return self.clock.now()

    # Jobs

    async def job(
        self,
        due_at: datetime | None,
        *,
        armed_at: datetime | None = None,
        tenant: int = TENANT,
        **fields: Any,
    ) -> UUID:
        """Make one job. What is not said is the default."""
        return (await self.jobs([due_at], armed_at=armed_at, tenant=tenant, **fields))[0]

    async def jobs(
        self,
        due: Iterable[datetime | None],
        *,
        armed_at: datetime | None = None,
        tenant: int = TENANT,
        **fields: Any,
    ) -> list[UUID]:
        now = self.now()
        given: dict[str, Any] = {"name": "job", "task": PythonTask("noop")} | fields
        spec = JobSpec(**given)
        drafts = [Draft(new_job_id(now), spec, "null", due_at) for due_at in due]
        await create_jobs(self.db, tenant, drafts, armed_at or now)
        return [draft.job_id for draft in drafts]

    async def once(self, ago: timedelta = MOMENT, **fields: Any) -> UUID:
        """A one-time job whose instant is so long ago."""
        at = self.now() - ago
        return await self.job(at, scheduled_at=at, **fields)

    async def every(self, seconds: float, first_ago: timedelta, **fields: Any) -> UUID:
        """A recurring job whose first instant was so long ago, and that nobody has fired since."""
        first = self.now() - first_ago
        return await self.job(first, armed_at=first - timedelta(seconds=seconds), every=seconds, **fields)

    # Firing

    async def node(self, *, standby: bool = False) -> Node:
        node = Node(self.hot, self.clock, changed=lambda gained: None, standby=standby)
        self._nodes.append(node)
        await node.run_once()
        return node

    async def firer(self, node: Node | None = None, *, database: Database | None = None) -> Firer:
        """A firer of this node. Without one: of a node that believes it owns every shard."""
        if node is None:
            node = Node(self.hot, self.clock, changed=lambda gained: None)
            node.epochs = dict.fromkeys(range(256), 1)
        return Firer(database or self.hot, self.clock, node, self.notifier)

    async def fire(self) -> int:
        """Fire what is due; answers how many timers moved."""
        firer = await self.firer()
        await firer.run_once()
        return firer.fired

    async def fire_ahead(self, lead: timedelta = 2 * HOUR) -> int:
        """Stage what comes within the lead, and fire what is due; answers how many timers moved."""
        now = self.now()
        due = await timers.due(self.hot, list(range(256)), now + lead, 10_000)
        firings = [decide(timer, now, 1, NextFires()) for timer in due]
        if not firings:
            return 0
        firings.sort(key=lambda firing: firing.job_id.bytes)
        moved = await timers.fire(self.hot, firings, new_incarnation_id(), "test", self.now(), lead)
        return len(moved)

    async def due(self, *job_ids: UUID) -> list[timers.DueTimer]:
        return sorted(await timers.of_jobs(self.hot, list(job_ids)), key=lambda timer: timer.job_id.bytes)

    # Working

    async def worker(self, *, lease_seconds: float = 30.0, pools: tuple[str, ...] = ("default",)) -> UUID:
        info = WorkerInfo(new_incarnation_id(), "worker", "here", 1, pools, 10, ("noop",))
        await work.register(self.db, info, lease_seconds)
        return info.worker_id

    async def claim(
        self, worker_id: UUID, limit: int = 1000, *, pools: tuple[str, ...] = ("default",)
    ) -> list[Claim]:
        return await Claimer(self.hot, self.clock).claim(worker_id, pools, limit)

    async def running(self, **fields: Any) -> tuple[UUID, Claim]:
        """A one-time job, fired, and claimed by a worker of its own."""
        job_id = await self.once(**fields)
        assert await self.fire() == 1
        worker_id = await self.worker()
        [claim] = await self.claim(worker_id, pools=(fields.get("pool", "default"),))
        assert claim.job_id == job_id
        return worker_id, claim

    def ended(self, claim: Claim, outcome: str, *, retryable: bool = True) -> Finished:
        now = self.now()
        error = None if outcome == "succeeded" else ErrorInfo("Trouble", f"it {outcome}")
        result = '"done"' if outcome == "succeeded" else None
        return Finished(claim, cast(Any, outcome), us_of(now), us_of(now), result, error, retryable)

    async def record(self, *batch: Finished, database: Database | None = None) -> set[work.Pair]:
        """Record ends; answers those recorded."""
        stale = await Recorder(database or self.hot).record(batch)
        return {(f.claim.execution_id, f.claim.attempt) for f in batch} - stale

    def rescuer(self) -> Rescuer:
        return Rescuer(self.db, self.clock, self.notifier)

    async def retry_now(self) -> None:
        """What waits for its next attempt waits no longer."""
        await self.db.execute("update detent.live set not_before = clock_timestamp() - interval '1 second'")

    # Looking

    async def rows(self, table: str, job_id: UUID | None = None) -> list[Record]:
        order = WRITTEN[table]
        if job_id is None:
            return await self.db.fetch(f"select * from detent.{table} order by {order}")
        return await self.db.fetch(f"select * from detent.{table} where job_id = $1 order by {order}", job_id)

    async def row(self, table: str, job_id: UUID) -> Record:
        [row] = await self.rows(table, job_id)
        return row

    async def everything(self) -> dict[str, list[dict[str, Any]]]:
        """All that the spine has written. Two equal ones mean that nothing happened in between."""
        return {table: [dict(row) for row in await self.rows(table)] for table in WRITTEN}

    async def drop_partitions_of(self, day: datetime) -> None:
        for parent in ("fires", "executions", "attempts", "logs"):
            await self.db.execute(f"drop table detent.{parent}_{day:%Y%m%d}")

    async def until_blocked(self, sessions: int, *, seconds: float = 10.0) -> None:
        """Wait until so many sessions of this database wait for a lock."""
        async with asyncio.timeout(seconds):
            while await self.db.fetchval(BLOCKED) < sessions:
                await asyncio.sleep(0.002)

    async def clear(self) -> None:
        """Take everything off the stage that a test before this one left."""
        async with self.db.transaction() as connection:
            for table in (*WRITTEN, *BESIDES):
                await connection.execute(f"delete from detent.{table}")
            await connection.execute(
                "update detent.shard_leases set node_id = null, epoch = 0, expires_at = '-infinity'"
            )
            today = self.now().date()
            await connection.execute(queries.ensure_partitions, today - 8 * DAY, today + 8 * DAY)

    async def close(self) -> None:
        for node in self._nodes:
            await node.closed()


BLOCKED = """
select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
"""


class Unreliable:
    """A database of which the answer to one statement is lost: it was carried out, and we do not know."""

    def __init__(self, database: Database, statement: str) -> None:
        self._database = database
        self._statement = statement
        self.lost = 0

    async def fetch(self, query: str, *args: Any) -> list[Record]:
        rows = await self._database.fetch(query, *args)
        if query == self._statement and not self.lost:
            self.lost += 1
            raise StoreUnavailable("the connection to the database was lost")
        return rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


def unreliable(database: Database, statement: str) -> Database:
    return cast(Database, Unreliable(database, statement))


def with_token(claim: Claim, token: int) -> Claim:
    return msgspec.structs.replace(claim, token=token)


def with_attempt(claim: Claim, attempt: int) -> Claim:
    return msgspec.structs.replace(claim, attempt=attempt)


_numbers = count(1)


def apart(work: Coroutine[Any, Any, T]) -> T:
    """Run async work to its end on a loop and thread of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def administer(server: Embedded, statement: str) -> None:
    connection = await asyncpg.connect(server.url.replace("/detent?", "/postgres?"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def a_database(server: Embedded, template: str) -> str:
    """A database with the schema. It goes when the server's folder goes: a drop waits for a checkpoint."""
    name = f"detent_stage_{next(_numbers)}"
    apart(administer(server, f"create database {name} template {template}"))
    return server.url.replace("/detent?", f"/{name}?")


@pytest.fixture(scope="session")
def stage_url(server: Embedded, template: str) -> str:
    """One database for all tests that play on a stage: making one costs more than most of them do."""
    return a_database(server, template)


@pytest.fixture
async def stage(stage_url: str) -> AsyncIterator[Stage]:
    """An empty stage."""
    db = await Database.open(stage_url, size=4, application_name="detent test")
    hot = await Database.open(stage_url, size=4, application_name="detent test", hot=True)
    clock = Clock()
    for _ in range(3):
        await clock.sample(lambda: timers.clock_us(hot))
    stage = Stage(db, hot, clock)
    await stage.clear()
    try:
        yield stage
    finally:
        await stage.close()
        await hot.close()
        await db.close()
