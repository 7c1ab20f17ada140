"""What millions of stored jobs cost: loading them, starting beside them, firing some of them.

Two stores are compared, one that holds nothing but the jobs that come due, and one that holds these among all the
others, spread over the whole table. At 15,000 fires a second a store of few jobs would have to fire each of them
many times a second, which no rule can; so the small store is as large as what comes due.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench import fire
from bench.drain import until_empty
from bench.lateness import lateness_of
from bench.load import create, create_schedules, settle
from bench.processes import memory_mb, role, slots
from bench.server import Connection, connection
from detent.model.ids import new_job_id
from detent.model.job import JobSpec, PythonTask
from detent.store.jobs import Draft

SLOTS = 10_000
SECONDS = 10
LEAD = 15.0
MADE_BY_THE_PROGRAM = 20_000
COLD_JOBS = 100

_DUE = """
with chosen as (
    select job_id, row_number() over (order by md5(job_id::text)) - 1 as i
    from (select job_id from detent.timers where ('x' || left(md5(job_id::text), 8))::bit(32)::bigint % $2::bigint = 0) t
    order by 2 limit $1::bigint
)
update detent.timers t set due_at = $3::timestamptz + c.i * $4::interval, version = version + 1
from chosen c where t.job_id = c.job_id
"""


async def lateness_small(url: str, rate: int, folder: Path) -> dict[str, Any]:
    """Only the jobs that come due."""
    n = rate * SECONDS
    async with connection(url) as watch:
        await watch.execute("set statement_timeout = 0")
        await create_schedules(url, watch, n, await _far(watch))
        return await _lateness(url, watch, n, rate, folder)


async def measure(url: str, jobs: int, rate: int, timers: int, folder: Path) -> list[dict[str, Any]]:
    """The figures of one large store: load, cold start, lateness, pace."""
    async with connection(url) as watch:
        await watch.execute("set statement_timeout = 0; set work_mem = '256MB'")
        made = await _made_by_the_program(url, min(MADE_BY_THE_PROGRAM, jobs))
        await watch.execute("truncate detent.jobs, detent.timers cascade")
        started = time.perf_counter()
        await create_schedules(url, watch, jobs, await _far(watch))
        loaded = time.perf_counter() - started
        size = await watch.fetchval("select pg_database_size(current_database())")
        load = {
            "figure": "bulk_load",
            "per_second": round(jobs / loaded),
            "n": jobs,
            "seconds": round(loaded, 1),
            "disk_gb": round(size / 1e9, 2),
            "made_by_the_program_per_second": made,
        }
        cold = await _cold_start(url, watch, jobs, folder)
        late = await _lateness(url, watch, rate * SECONDS, rate, folder)
        await watch.execute("truncate detent.live")
        timers = min(timers, jobs)
        await _make_due(watch, jobs, timers, await watch.fetchval("select clock_timestamp()"), timedelta(0))
        await watch.execute("truncate detent.fires")
        await settle(watch, "timers")
        peak = await fire.backlog(url, timers, folder)
    return [
        load,
        {"figure": "cold_start", **cold},
        {"figure": "lateness_stored", **late, "stored": jobs},
        {"figure": "fire_stored", **peak, "stored": jobs},
    ]


async def _made_by_the_program(url: str, n: int) -> int:
    """How many jobs a second the program itself makes, in its largest batches."""
    now = datetime.now(UTC)
    spec = JobSpec(name="bench", task=PythonTask("bench.nothing"), cron="0 0 * * *")
    drafts = [Draft(new_job_id(now), spec, "null", now + timedelta(days=1)) for _ in range(n)]
    started = time.perf_counter()
    await create(url, drafts, now)
    return round(n / (time.perf_counter() - started))


async def _far(watch: Connection) -> datetime:
    due_at: datetime = await watch.fetchval("select clock_timestamp() + interval '20 hours'")
    return due_at


async def _make_due(watch: Connection, jobs: int, n: int, first: datetime, apart: timedelta) -> None:
    """Bring forward `n` of the jobs, wherever in the table they lie."""
    done = await watch.execute(_DUE, n, max(1, jobs // (2 * n)), first, apart)
    if int(done.split()[-1]) != n:
        raise RuntimeError(f"{n} jobs were to be brought forward, and {done}")


async def _cold_start(url: str, watch: Connection, jobs: int, folder: Path) -> dict[str, Any]:
    """From the start of a scheduler process to its first fire of timers that have long been due."""
    few = min(COLD_JOBS, jobs)
    await _make_due(watch, jobs, few, await watch.fetchval("select clock_timestamp()"), timedelta(0))
    await settle(watch, "timers")
    started = time.perf_counter()
    async with role("scheduler", url, folder / "unused") as scheduler:
        ready = time.perf_counter() - started
        while not await watch.fetchval("select exists (select from detent.fires)"):
            await asyncio.sleep(0.005)
            if time.perf_counter() - started > fire.STUCK_SECONDS:
                raise RuntimeError("the scheduler fired nothing")
        first = time.perf_counter() - started
        memory = memory_mb(scheduler)
    await watch.execute("truncate detent.fires, detent.live")
    return {
        "first_fire_seconds": round(first, 2),
        "ready_seconds": round(ready, 2),
        "scheduler_rss_mb": memory[0],
        "stored": jobs,
    }


async def _lateness(url: str, watch: Connection, n: int, rate: int, folder: Path) -> dict[str, Any]:
    jobs = await watch.fetchval("select count(*) from detent.timers")
    if n > jobs:
        raise RuntimeError(f"{n} of {jobs} jobs cannot come due: store more, or fire fewer")
    lead = timedelta(seconds=LEAD + n / 20_000 + jobs / 400_000)
    first: datetime = await watch.fetchval("select clock_timestamp()") + lead
    await _make_due(watch, jobs, n, first, timedelta(seconds=1 / rate))
    await settle(watch, "timers")
    flags = ("--import", "bench.tasks", "--slots", str(slots(SLOTS)))
    async with (
        role("scheduler", url, folder / "unused") as scheduler,
        role("worker", url, folder / "unused", *flags),
    ):
        left = first - await watch.fetchval("select clock_timestamp()")
        if left < timedelta(seconds=1):
            raise RuntimeError(
                f"all was ready {left.total_seconds():.1f} s before the first instant: too late"
            )
        await asyncio.sleep(left.total_seconds() + n / rate)
        await until_empty(watch, n)
        overrun = await watch.fetchval("select clock_timestamp()") - first
        memory = memory_mb(scheduler)
        figure = await lateness_of(watch, n)
    return {
        **figure,
        "rate": rate,
        "reached_per_second": round(n / overrun.total_seconds()),
        "scheduler_rss_mb": memory[0],
        "scheduler_peak_mb": memory[1],
        "slots": slots(SLOTS),
    }
