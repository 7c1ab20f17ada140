"""Figures, and whether the server lives and can work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from api_client import Api, Running

from detent.runtime.clock import Clock
from detent.store.database import Database
from detent.store.embedded import Embedded
from detent.store.migrate import migrate
from stage import Stage


async def test_a_live_server_says_so_without_asking_anybody(api: Api) -> None:
    assert (await api.get("/healthz")).body == {"status": "ok"}


async def test_readiness_says_who_else_is_there(api: Api) -> None:
    answer = await api.get("/readyz")
    assert (answer.status, answer.body["status"]) == (200, "ready")
    assert (answer.body["scheduler"], answer.body["workers"]) == (False, False)
    await api.stage.node()
    await api.stage.worker()
    answer = await api.get("/readyz")
    assert (answer.body["scheduler"], answer.body["workers"]) == (True, True)
    assert answer.body["fleet"]["shards_leased"] == 256
    assert (answer.body["fleet"]["workers_live"], answer.body["fleet"]["slots_live"]) == (1, 10)


async def test_a_schema_that_does_not_fit_is_not_ready_and_says_why(api: Api) -> None:
    db = api.stage.db
    await db.execute(
        "insert into detent.migrations (number, name, checksum, program_version)"
        " values (9999, 'later', 'x', '9')"
    )
    try:
        answer = await api.get("/readyz")
    finally:
        await db.execute("delete from detent.migrations where number = 9999")
    assert (answer.status, answer.code) == (503, "not_ready")
    assert "9999" in answer.body["detail"] or "newer" in answer.body["detail"]
    assert answer.headers["retry-after"] == "1"


async def test_the_overview_counts_what_there_is(api: Api) -> None:
    await api.job(cron="0 0 1 1 *")
    paused = await api.job(every=3600)
    await api.post(f"/jobs/{paused['job_id']}/pause")
    cancelled = await api.job(every=3600)
    await api.delete(f"/jobs/{cancelled['job_id']}")
    await api.job(delay=30)
    await api.job(delay=1800)
    for outcome in ("succeeded", "failed", "running", "queued"):
        job = await api.job(delay=0, dead_letter=False, max_retries=0)
        assert await api.stage.fire() == 1, job
        if outcome != "queued":
            [claim] = await api.stage.claim(await api.stage.worker())
            if outcome != "running":
                await api.stage.record(api.stage.ended(claim, outcome))
    found = (await api.get("/stats/overview")).body
    assert found["jobs"] == {
        "scheduled": 3, "paused": 1, "running": 2, "completed": 1, "failed": 1, "cancelled": 1,
    }  # fmt: skip
    assert found["executions"]["open"] == {"running": 1, "queued": 1}
    assert found["executions"]["closed_last_hour"] == {"succeeded": 1, "failed": 1}
    assert found["executions"]["closed_last_day"] == {"succeeded": 1, "failed": 1}
    assert found["due"] == {"next_minute": 1, "next_hour": 2}
    assert found["counted_up_to"] == 10_000


@pytest.fixture
async def fragile(data: Path) -> AsyncIterator[tuple[Api, Embedded]]:
    """A door on a PostgreSQL of its own, which can be taken away."""
    server = Embedded(data)
    await asyncio.to_thread(server.start)
    try:
        await migrate(server.url)
        db = await Database.open(server.url, size=4, application_name="detent test")
        async with Running(Stage(db, db, Clock())) as served:
            yield served, server
        await db.close()
    finally:
        await asyncio.to_thread(server.stop)


async def test_without_postgresql_everything_is_503_and_comes_back(fragile: tuple[Api, Embedded]) -> None:
    api, server = fragile
    job = await api.job(every=3600)
    path = f"/jobs/{job['job_id']}"
    assert (await api.get("/readyz")).status == 200
    await asyncio.to_thread(server.stop)

    async def asked() -> list[int]:
        answers = [
            await api.get("/readyz"),
            await api.get("/jobs"),
            await api.get(path),
            await api.post("/jobs", {"name": "n"}),
            await api.post("/jobs", {"name": "n", "idempotency_key": "k"}),
            await api.put("/jobs/by-name/named", {}),
            await api.patch(path, {"priority": "high"}),
            await api.post(f"{path}/run"),
            await api.delete(path),
            await api.get("/executions"),
            await api.get("/stats/overview"),
        ]
        for answer in answers:
            if answer.status == 503:
                assert answer.code in ("not_ready", "store_unavailable")
                assert answer.headers["retry-after"] == "1"
        return [answer.status for answer in answers]

    assert await asked() == [503] * 11
    assert (await api.get("/healthz")).status == 200
    preview = await api.post("/schedules/preview", {"cron": "* * * * *"})
    assert preview.status == 200, "a preview needs no store"
    await asyncio.to_thread(server.start)
    deadline = time.monotonic() + 20
    while (await api.get("/readyz")).status != 200:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    assert await api.read(job) == job
    assert await asked() == [200, 200, 200, 201, 201, 201, 200, 202, 200, 200, 200]
