"""The raw limit of lateness: the statements between an instant and a start, with nothing around them.

Fire one timer, notify, hear it on another connection, claim, read the definition: the same statements in
the same order as scheduler and worker need, in one process that spins until the instant, so that neither
timers nor processes that must be woken cost anything.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.load import ahead, create_once_jobs
from bench.percentile import percentile
from bench.server import Connection, connection
from detent.dispatch.rank import everything
from detent.fire.decide import decide
from detent.model.ids import DEFAULT_TENANT, SHARDS, new_incarnation_id
from detent.runtime.clock import Clock
from detent.runtime.notify import QUEUE
from detent.store.sql import Queries
from detent.store.timers import DueTimer
from detent.when.rule import NextFires

SPIN_SECONDS = 0.003
SAMPLES = 500
MOST_PER_SECOND = 200  # one after the other, as here, holds no more


async def measure_raw(url: str, rate: int, seconds: float) -> dict[str, Any]:
    n = min(SAMPLES, int(rate * seconds))
    async with (
        connection(url, hot=True) as firing,
        connection(url) as listening,
        connection(url, hot=True) as claiming,
    ):
        clock = Clock()
        for _ in range(8):
            await clock.sample(lambda: firing.fetchval(Queries.load().clock_us))
        now, _ = await create_once_jobs(
            url, firing, [timedelta(seconds=ahead(n) + i / rate) for i in range(n)]
        )
        horizon = now + timedelta(days=1)
        rows = await firing.fetch(Queries.load().due_timers, list(range(SHARDS)), horizon, n)
        due = sorted((DueTimer(*row) for row in rows), key=lambda timer: timer.due_at)
        late = sorted(await _run(due, clock, firing, listening, claiming))
    return {
        "n": n,
        "rate": rate,
        "p50_ms": round(percentile(late, 0.50), 3),
        "p99_ms": round(percentile(late, 0.99), 3),
        "max_ms": round(late[-1], 3),
    }


async def _run(
    due: list[DueTimer], clock: Clock, firing: Connection, listening: Connection, claiming: Connection
) -> list[float]:
    queries = Queries.load()
    worker, node = new_incarnation_id(), new_incarnation_id()
    await claiming.execute(
        queries.register_worker, worker, DEFAULT_TENANT, "bench", "bench", 0, ["default"], 1, [], 60.0
    )
    heard = asyncio.Event()
    await listening.add_listener(QUEUE, lambda *_: heard.set())
    fire = await firing.prepare(queries.fire_batch)
    notify = await firing.prepare("select pg_notify($1::text, $2::text)")
    claim = await claiming.prepare(queries.claim)
    define = await claiming.prepare(queries.definitions)
    memo, late = NextFires(), []
    for timer in due:
        columns = [[value] for value in decide(timer, timer.due_at, 1, memo)]
        heard.clear()
        await _until(clock, timer.due_at)
        if not await fire.fetchval(*columns, node, "bench", datetime.now(UTC), timedelta(0)):
            raise RuntimeError(f"{timer.job_id} did not fire")
        await notify.fetch(QUEUE, "default")
        await heard.wait()
        (row,) = await claim.fetch(worker, "default", 1, *zip(*everything(1), strict=True), timedelta(0))
        await define.fetch([row["job_id"]], [row["revision"]])
        late.append((clock.now() - timer.due_at) / timedelta(milliseconds=1))
    return late


async def _until(clock: Clock, at: datetime) -> None:
    """Sleep to shortly before, then spin: loops count time in milliseconds."""
    instant = clock.monotonic_of(at)
    await asyncio.sleep(max(0.0, instant - time.monotonic() - SPIN_SECONDS))
    while clock.now() < at:
        pass
