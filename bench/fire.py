"""Firing: how fast due timers become queued executions, by the bare statement and by a scheduler.

Both fire the same daily jobs, all due at one instant, in batches of the same size. The bare figure sends
parameters that were computed before the clock started; the scheduler computes them, and its clock starts
when its first batch, which waits for a lock that we hold, is let go.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.load import create_schedules
from bench.processes import cpu_seconds, role
from bench.server import Connection, all_wait, connection
from detent.fire.decide import decide
from detent.fire.firer import BATCH
from detent.model.ids import SHARDS, new_incarnation_id
from detent.store.columns import column
from detent.store.sql import Queries
from detent.store.timers import DueTimer, Firing
from detent.when.rule import NextFires

LOOK_EVERY = 0.01
STUCK_SECONDS = 60.0
LOAD_SECONDS = 60.0  # for a scheduler to read all that is due
SAMPLE = 50


async def measure_raw(url: str, n: int) -> dict[str, Any]:
    """Detent's fire statement on one connection, one batch after the other."""
    async with connection(url, hot=True) as c:
        await create_schedules(url, c, n)
        batches = await decided(c, n)
        node = new_incarnation_id()
        fire = await c.prepare(Queries.load().fire_batch)
        started = time.perf_counter()
        for columns in batches:
            await fire.fetch(*columns, node, "bench", datetime.now(UTC), timedelta(0))
        seconds = time.perf_counter() - started
        await _verify(c, n)
    return {"per_second": round(n / seconds), "n": n, "seconds": round(seconds, 3), "batch": BATCH}


async def measure(url: str, n: int, folder: Path) -> dict[str, Any]:
    """A scheduler process that has loaded the timers and finds them all due."""
    async with connection(url) as watch:
        await create_schedules(url, watch, n)
        figure = await backlog(url, n, folder)
        await _verify(watch, n)
    return figure


async def backlog(url: str, n: int, folder: Path) -> dict[str, Any]:
    """Let a scheduler fire `n` timers that are due, and nothing else."""
    async with connection(url, hot=True) as watch, connection(url) as gate:
        sample = [row[0] for row in await watch.fetch(
            "select job_id from detent.timers where status = 'scheduled' and due_at <= clock_timestamp()"
            " order by md5(job_id::text) limit $1", SAMPLE
        )]  # fmt: skip
        transaction = gate.transaction()
        await transaction.start()
        await gate.execute("lock table detent.timers in exclusive mode")
        async with role("scheduler", url, folder / "unused") as scheduler:
            await all_wait(watch, "timers", 1, LOAD_SECONDS)
            before = cpu_seconds(scheduler)
            started = time.perf_counter()
            await transaction.commit()
            await _all_fired(watch, n, sample)
            seconds = time.perf_counter() - started
            cpu = cpu_seconds(scheduler) - before
    return {
        "per_second": round(n / seconds),
        "n": n,
        "seconds": round(seconds, 3),
        "scheduler_cpu_us_each": round(1e6 * cpu / n, 1),
        "batch": BATCH,
    }


async def decided(c: Connection, n: int) -> list[list[list[Any]]]:
    """The statement's parameters for all due timers, in batches sorted as the firer sorts them."""
    now = await c.fetchval("select clock_timestamp()")
    rows = await c.fetch(Queries.load().due_timers, list(range(SHARDS)), now, n)
    memo = NextFires()
    firings: list[Firing] = [decide(DueTimer(*row), now, 1, memo) for row in rows]
    firings.sort(key=lambda firing: firing.job_id.bytes)
    return [
        [column(values) for values in zip(*firings[start : start + BATCH], strict=True)]
        for start in range(0, n, BATCH)
    ]


async def _all_fired(watch: Connection, n: int, sample: list[Any]) -> None:
    """Wait for the commit of the last. All are counted only once a few of them have all moved: a count is dear."""
    waiting = await watch.prepare(
        "select count(*) from detent.timers where job_id = any($1) and due_at <= clock_timestamp()"
    )
    deadline = time.monotonic() + STUCK_SECONDS
    while await waiting.fetchval(sample) or await watch.fetchval("select count(*) from detent.fires") < n:
        if time.monotonic() > deadline:
            raise RuntimeError(f"not all of {n} timers were fired in {STUCK_SECONDS:g} s")
        await asyncio.sleep(LOOK_EVERY)


async def _verify(c: Connection, n: int) -> None:
    """Every timer moved once, with its ledger row and its queued execution."""
    row = await c.fetchrow(
        "select (select count(*) from detent.timers where fired = 1) as moved,"
        " (select count(*) from detent.fires where decision like 'fired%') as decided,"
        " (select count(*) from detent.live where state = 'queued') as queued"
    )
    assert row is not None
    if set(row.values()) != {n}:
        raise RuntimeError(f"{n} timers were due; {row}")
