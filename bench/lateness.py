"""Lateness: from an instant that a job asked for to the start of its body.

Both ends are the database's time: the instant is given in it, and a worker's clock follows it. A start
before its instant would be a broken promise, whatever the percentiles say.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.load import create_once_jobs
from bench.percentile import percentile
from bench.processes import role
from bench.server import connection

AHEAD = 3.0
SLOTS = 100
PATIENCE = 30.0

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
    n = int(rate * seconds)
    file = folder / "unused"
    flags = ("--import", "bench.tasks", "--slots", str(SLOTS))
    async with (
        connection(url) as watch,
        role("scheduler", url, file),
        role("worker", url, file, *flags),
    ):
        await create_once_jobs(url, watch, [timedelta(seconds=AHEAD + i / rate) for i in range(n)])
        await asyncio.sleep(AHEAD + seconds)
        deadline = time.monotonic() + PATIENCE
        while await watch.fetchval("select count(*) from detent.executions") < n:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all of {n} ran within {PATIENCE:g} s of the last instant")
            await asyncio.sleep(0.1)
        late = [row["ms"] for row in await watch.fetch(_LATE)]
        stages = await watch.fetchrow(_STAGES)
    assert stages is not None
    if len(late) != n:
        raise RuntimeError(f"{n} were asked for and {len(late)} succeeded")
    return {
        "n": n,
        "rate": rate,
        "p50_ms": round(percentile(late, 0.50), 2),
        "p99_ms": round(percentile(late, 0.99), 2),
        "max_ms": round(late[-1], 2),
        "min_ms": round(late[0], 3),
        "early": sum(1 for ms in late if ms < 0),
        "p50_ms_to_decided": round(stages["fired"], 2),
        "p50_ms_decided_to_start": round(stages["started"], 2),
        "slots": SLOTS,
    }
