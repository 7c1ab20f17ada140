"""The raw SQL limit: Detent's own claim and close statements without a worker around them.

One connection claims, one closes, as a worker does it; between them nothing is run, no definition is read,
no ending is decided. What a worker reaches is read against this, because both ask the same of PostgreSQL on
the same machine in the same minutes.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import asyncpg

from bench.load import queue_executions
from bench.server import Connection, connection
from detent.dispatch.rank import Bounds
from detent.model.ids import DEFAULT_TENANT, new_incarnation_id
from detent.store.sql import Queries

BATCH = 500
AHEAD = 2  # claimed batches that may wait to be closed

Batches = asyncio.Queue[list[asyncpg.Record] | None]


async def measure(url: str, n: int) -> dict[str, Any]:
    async with connection(url, hot=True) as claims, connection(url, hot=True) as closes:
        await queue_executions(url, claims, n)
        batches: Batches = asyncio.Queue(AHEAD)
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            claiming = group.create_task(claim_all(claims, batches))
            closing = group.create_task(close_all(closes, batches))
        seconds = time.perf_counter() - started
        recorded = await claims.fetchval("select count(*) from detent.executions where status = 'succeeded'")
        if recorded != n:
            raise RuntimeError(f"{n} were queued and {recorded} recorded")
    return {
        "per_second": round(n / seconds),
        "n": n,
        "seconds": round(seconds, 3),
        "claim_ms": round(1000 * claiming.result(), 2),
        "close_ms": round(1000 * closing.result(), 2),
        "batch": BATCH,
    }


async def claim_all(c: Connection, batches: Batches, last: asyncio.Event | None = None) -> float:
    """Claim until there is nothing left, and nothing more will come; returns the mean seconds of a claim."""
    queries = Queries.load()
    worker = new_incarnation_id()
    await c.execute(
        queries.register_worker, worker, DEFAULT_TENANT, "bench", "bench", 0, ["default"], BATCH, [], 60.0
    )
    claim = await c.prepare(queries.claim)
    bounds = Bounds()
    spent, calls, swept = 0.0, 0, False
    while True:
        before, all_there = time.perf_counter(), last is None or last.is_set()
        ranges = bounds.ranges(time.time_ns() // 1000, BATCH)
        rows = await claim.fetch(worker, "default", BATCH, *zip(*ranges, strict=True), timedelta(0))
        bounds.took([(r["class"], r["rank"]) for r in rows], time.time_ns() // 1000, all_of_it=False)
        if not rows and not all_there:
            await asyncio.sleep(0.001)
            continue
        if not rows and not swept:
            bounds.widen()
            swept = True
            continue
        if not rows:
            await batches.put(None)
            return spent / max(calls, 1)
        spent, calls = spent + time.perf_counter() - before, calls + 1
        await batches.put(rows)


async def close_all(c: Connection, batches: Batches) -> float:
    """Close what was claimed as succeeded; returns the mean seconds of a close."""
    close = await c.prepare(Queries.load().close_succeeded)
    now_us = await c.fetchval("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
    spent, calls = 0.0, 0
    while rows := await batches.get():
        rows.sort(key=lambda row: row["execution_id"].bytes)
        size = len(rows)
        before = time.perf_counter()
        closed = await close.fetchval(
            [row["execution_id"] for row in rows], [row["attempt"] for row in rows],
            [row["token"] for row in rows], [now_us] * size, [now_us] * size, [],
        )  # fmt: skip
        spent, calls = spent + time.perf_counter() - before, calls + 1
        if closed != size:
            raise RuntimeError(f"{size} were claimed and {closed} closed")
    return spent / max(calls, 1)
