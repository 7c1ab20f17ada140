"""The whole pipeline at once: due timers are fired, claimed, run and recorded, as fast as it goes.

A backlog of daily jobs, all due, is let go at one instant; fires, claims and finishes then share the machine
until the last execution is recorded. The bare figure is the same statements on three connections, with
nothing between them; what a worker does besides (it reads the definition of each job) is a part of the distance.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.drain import until_empty
from bench.fire import LOAD_SECONDS, decided
from bench.load import create_schedules
from bench.processes import cpu_seconds, role, slots
from bench.raw import AHEAD, BATCH, claim_all, close_all
from bench.server import all_wait, connection
from detent.model.ids import new_incarnation_id
from detent.store.sql import Queries

SLOTS = 1000


async def measure_raw(url: str, n: int) -> dict[str, Any]:
    async with (
        connection(url, hot=True) as fires,
        connection(url, hot=True) as claims,
        connection(url, hot=True) as closes,
    ):
        await create_schedules(url, fires, n)
        parameters = await decided(fires, n)
        fire = await fires.prepare(Queries.load().fire_batch)
        node, done = new_incarnation_id(), asyncio.Event()

        async def fire_all() -> None:
            for columns in parameters:
                await fire.fetch(*columns, node, "bench", datetime.now(UTC), timedelta(0))
            done.set()

        batches: Any = asyncio.Queue(AHEAD)
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(fire_all())
            group.create_task(claim_all(claims, batches, done))
            group.create_task(close_all(closes, batches))
        seconds = time.perf_counter() - started
        recorded = await claims.fetchval("select count(*) from detent.executions where status = 'succeeded'")
        if recorded != n:
            raise RuntimeError(f"{n} timers were due and {recorded} executions are recorded")
    return {"per_second": round(n / seconds), "n": n, "seconds": round(seconds, 3), "batch": BATCH}


async def measure(url: str, n: int, folder: Path) -> dict[str, Any]:
    file = folder / "unused"
    flags = ("--import", "bench.tasks", "--slots", str(slots(SLOTS)))
    async with connection(url, hot=True) as watch, connection(url) as gate:
        await create_schedules(url, watch, n)
        transaction = gate.transaction()
        await transaction.start()
        await gate.execute("lock table detent.timers in exclusive mode")
        async with role("worker", url, file, *flags) as worker, role("scheduler", url, file) as scheduler:
            await all_wait(watch, "timers", 1, LOAD_SECONDS)
            before = cpu_seconds(worker), cpu_seconds(scheduler)
            started = time.perf_counter()
            await transaction.commit()
            await until_empty(watch, n)
            seconds = time.perf_counter() - started
            after = cpu_seconds(worker), cpu_seconds(scheduler)
        row = await watch.fetchrow(
            "select (select count(*) from detent.executions where status = 'succeeded') as recorded,"
            " (select count(*) from detent.fires where decision like 'fired%') as decided"
        )
    assert row is not None
    if set(row.values()) != {n}:
        raise RuntimeError(f"{n} timers were due; {row}")
    return {
        "per_second": round(n / seconds),
        "n": n,
        "seconds": round(seconds, 3),
        "worker_cpu_us_each": round(1e6 * (after[0] - before[0]) / n, 1),
        "scheduler_cpu_us_each": round(1e6 * (after[1] - before[1]) / n, 1),
        "slots": slots(SLOTS),
    }
