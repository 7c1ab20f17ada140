"""All roles of a system in this process, over a PostgreSQL of their own that tests may do anything to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

import aiohttp
import asyncpg
import pytest
from soundness import unsound

from detent import task
from detent.cli import roles
from detent.runtime.config import Config
from detent.store.database import Database
from detent.store.embedded import Embedded

T = TypeVar("T")

HEARTBEAT, LEASE = 1.0, 4.0
RESUMED_WITHIN = 10.0


@task("trouble.work")
async def work(payload: dict[str, Any], ctx: Any) -> int:
    await asyncio.sleep(payload.get("seconds", 0))
    return int(ctx.attempt)


async def until(condition: Callable[[], Awaitable[T]], seconds: float, what: str) -> T:
    """Wait for something true. A database that is away is nothing true."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, aiohttp.ClientError):
            if answer := await condition():
                return answer
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not happen in {seconds:g} s"
        await asyncio.sleep(0.02)


@dataclass
class Together:
    """The roles, as tasks that must not end, and one who uses them over HTTP."""

    server: Embedded
    url: str  # of the database, as the roles reach it
    roles: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    address: str = ""
    http: aiohttp.ClientSession | None = None

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
        assert self.http is not None
        data = None if body is None else json.dumps(body)
        async with self.http.request(
            method,
            f"{self.address}{path}",
            data=data,
            headers={"content-type": "application/json", **headers},
        ) as answer:
            return answer.status, await answer.json(content_type=None), answer.headers

    async def ready(self) -> bool:
        status, body, headers = await self.call("GET", "/readyz")
        if status != 200:
            assert status == 503, body
            assert headers["retry-after"], "a client must know when to ask again"
            return False
        return bool(body["scheduler"] and body["workers"])

    async def becomes_unready(self, seconds: float = 10.0) -> None:
        async def unready() -> bool:
            return not await self.ready()

        await until(unready, seconds, "being not ready")

    async def create(self, body: dict[str, Any] | None = None, seconds: float = RESUMED_WITHIN) -> str:
        """A job, asked for under a key until there is an answer. No answer may be a failure of ours."""
        wanted = {"name": f"trouble {uuid4()}", "task": "trouble.work", "payload": {}, "delay": 0}
        wanted |= {"idempotency_key": str(uuid4()), "max_retries": 0, **(body or {})}

        async def ask() -> str:
            status, answer, _ = await self.call("POST", "/api/v1/jobs", wanted)
            assert status in (200, 201, 503), (status, answer)
            return str(answer["job_id"]) if status != 503 else ""

        return await until(ask, seconds, "the creation of a job")

    async def completes(self, job: str, seconds: float = RESUMED_WITHIN) -> None:
        async def completed() -> bool:
            status, answer, _ = await self.call("GET", f"/api/v1/jobs/{job}")
            assert status in (200, 503), answer
            assert answer.get("status") not in ("failed", "cancelled"), answer
            return bool(answer.get("status") == "completed")

        await until(completed, seconds, f"the end of job {job}")

    async def works(self, seconds: float = RESUMED_WITHIN) -> None:
        """Everything goes on: ready, firing, claiming, recording."""
        deadline = asyncio.get_running_loop().time() + seconds
        left = lambda: deadline - asyncio.get_running_loop().time()  # noqa: E731
        job = await self.create(seconds=left())
        await self.completes(job, left())
        await until(self.ready, left(), "being ready")
        self.all_live()

    def all_live(self) -> None:
        for name, role in self.roles.items():
            assert not role.done(), f"{name} has ended: {role}"

    async def running(self, seconds: float) -> str:
        """A job whose attempt runs, and will for so long."""
        job = await self.create({"payload": {"seconds": seconds}})

        async def started() -> bool:
            _, answer, _ = await self.call("GET", f"/api/v1/jobs/{job}/executions")
            return bool(answer["items"] and answer["items"][0]["status"] == "running")

        await until(started, RESUMED_WITHIN, "the start of a job")
        return job

    async def outcomes(self, job: str) -> list[str]:
        _, listed, _ = await self.call("GET", f"/api/v1/jobs/{job}/executions")
        [execution] = listed["items"]
        _, detail, _ = await self.call("GET", f"/api/v1/executions/{execution['execution_id']}")
        return [attempt["outcome"] for attempt in detail["attempts"]]

    async def present_worker(self) -> tuple[Any, int]:
        """The one incarnation that is there, and how often it has beaten."""
        row = await self.ask("select (worker_id, beat) from detent.workers where status = 'live'")
        return row[0], row[1]

    async def direct(self) -> Any:
        """A connection of somebody else's."""
        return await asyncpg.connect(self.server.url)

    async def ask(self, query: str, *args: Any) -> Any:
        connection = await self.direct()
        try:
            return await connection.fetchval(query, *args)
        finally:
            await connection.close()


@contextlib.asynccontextmanager
async def together(
    server: Embedded, monkeypatch: pytest.MonkeyPatch, *, url: str | None = None, slots: int = 10
) -> AsyncIterator[Together]:
    """Start all roles; at the end stop them in order, and look at what they left."""
    stop = asyncio.Event()
    monkeypatch.setattr(roles, "_stop_on_signals", lambda: stop)
    config = Config(port=0, slots=slots, heartbeat=HEARTBEAT, lease=LEASE, grace=2.0)
    system = Together(server, url or server.url)
    said: dict[str, asyncio.Future[str]] = {}
    loop = asyncio.get_running_loop()
    for name in ("api", "scheduler", "worker", "keeper"):
        said[name] = loop.create_future()
        role = getattr(roles, f"run_{name}")
        system.roles[name] = asyncio.create_task(role(config, system.url, said[name].set_result), name=name)
    async with asyncio.timeout(20), aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(15)) as system.http:
        for name, word in said.items():
            await asyncio.wait([word, system.roles[name]], return_when=asyncio.FIRST_COMPLETED)
            assert word.done(), system.roles[name]
        system.address = said["api"].result().removeprefix("api: ")
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(15)) as system.http:
        try:
            await until(system.ready, 10, "being ready at first")
            yield system
            await sound(server)
            system.all_live()
        finally:
            stop.set()
            async with asyncio.timeout(30):
                await asyncio.gather(*system.roles.values())


async def sound(server: Embedded) -> None:
    """Nothing contradicts anything, nothing was parked or failed for the trouble's sake."""
    db = await Database.open(server.url, size=1)
    try:
        found = await unsound(db)
        assert not found, "\n".join(found)
        parked = "select count(*) from detent.timers where status = 'parked'"
        assert await db.fetchval(parked) == 0
        bad = "select array_agg(error) from detent.attempts where outcome not in ('succeeded', 'released')"
        assert await db.fetchval(bad) is None
        letters = await db.fetchval("select count(*) from detent.dead_letters")
        assert letters == 0
    finally:
        await db.close()
