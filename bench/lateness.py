"""Lateness: from an instant that a job asked for to the start of its body.

Both ends are the database's time: the instant is given in it, and a worker's clock follows it. A start
before its instant would be a broken promise, whatever the percentiles say; the run then ends as failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from bench.drain import until_empty
from bench.load import ahead, create_once_jobs, create_schedules
from bench.percentile import percentile
from bench.processes import role, slots
from bench.server import Connection, connection

SLOTS = 10_000
MANY_SLOTS = 120_000
COPIED_PER_SECOND = 8000

_LATE = """
select extract(epoch from started_at - scheduled_for)::float8 * 1000 as ms
from detent.executions where status = 'succeeded' order by 1
"""
_STAGES = """
with stages as (
    select 1000 * extract(epoch from decided_at - nominal_at) as fired,
           1000 * extract(epoch from started_at - decided_at) as started
    from detent.executions join detent.fires using (execution_id)
)
select percentile_cont(0.5) within group (order by fired) as fired,
       percentile_cont(0.5) within group (order by started) as started
from stages
"""


async def measure(url: str, rate: int, seconds: float, folder: Path) -> dict[str, Any]:
    """One-time jobs, so many a second."""
    n = int(rate * seconds)
    flags = ("--import", "bench.tasks", "--slots", str(slots(SLOTS)))
    async with (
        connection(url) as watch,
        role("scheduler", url, folder / "unused"),
        role("worker", url, folder / "unused", *flags),
    ):
        first = ahead(n)
        await create_once_jobs(url, watch, [timedelta(seconds=first + i / rate) for i in range(n)])
        await asyncio.sleep(first + seconds)
        await until_empty(watch, n)
        figure = await lateness_of(watch, n)
    return {**figure, "rate": rate, "slots": slots(SLOTS)}


async def burst(url: str, n: int, folder: Path) -> dict[str, Any]:
    """One-time jobs, all due at one instant."""
    flags = ("--import", "bench.tasks", "--slots", str(slots(SLOTS)))
    async with (
        connection(url) as watch,
        role("scheduler", url, folder / "unused"),
        role("worker", url, folder / "unused", *flags),
    ):
        now, _ = await create_once_jobs(url, watch, [timedelta(seconds=ahead(n))] * n)
        figure = await _after(watch, n, now + timedelta(seconds=ahead(n)))
    return {**figure, "slots": slots(SLOTS)}


async def schedules_at_once(url: str, n: int, folder: Path) -> dict[str, Any]:
    """Recurring jobs, all due at one instant; they were there before the scheduler was."""
    flags = ("--import", "bench.tasks", "--slots", str(slots(MANY_SLOTS)))
    async with connection(url) as watch:
        now: datetime = await watch.fetchval("select clock_timestamp()")
        due_at = now + timedelta(seconds=10 + n / COPIED_PER_SECOND)
        await create_schedules(url, watch, n, due_at)
        async with (
            role("scheduler", url, folder / "unused"),
            role("worker", url, folder / "unused", *flags),
        ):
            left = due_at - await watch.fetchval("select clock_timestamp()")
            if left < timedelta(seconds=2):
                raise RuntimeError(f"all was ready {left.total_seconds():.1f} s before the instant: too late")
            figure = await _after(watch, n, due_at)
    return {**figure, "slots": slots(MANY_SLOTS)}


async def _after(watch: Connection, n: int, due_at: datetime) -> dict[str, Any]:
    """Wait for the instant, and until all is recorded."""
    wait = due_at - await watch.fetchval("select clock_timestamp()")
    await asyncio.sleep(max(0.0, wait.total_seconds()))
    started = time.perf_counter()
    await until_empty(watch, n)
    recorded = time.perf_counter() - started
    return {**await lateness_of(watch, n), "recorded_after_seconds": round(recorded, 3)}


async def lateness_of(watch: Connection, n: int) -> dict[str, Any]:
    late = [row["ms"] for row in await watch.fetch(_LATE)]
    stages = await watch.fetchrow(_STAGES)
    assert stages is not None
    if len(late) != n:
        raise RuntimeError(f"{n} were asked for and {len(late)} succeeded")
    return {
        **percentiles(late),
        "n": n,
        "p50_ms_to_decided": round(stages["fired"], 2),
        "p50_ms_decided_to_start": round(stages["started"], 2),
    }


def percentiles(late: Sequence[float]) -> dict[str, Any]:
    """Of sorted milliseconds."""
    return {
        "p50_ms": round(percentile(late, 0.50), 2),
        "p99_ms": round(percentile(late, 0.99), 2),
        "max_ms": round(late[-1], 2),
        "min_ms": round(late[0], 3),
        "early": sum(1 for ms in late if ms < 0),
    }
