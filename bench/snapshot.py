"""A transaction that is held open while work goes on, as by a backup or an analyst.

Nothing that died since its snapshot may be cleaned away, which is how queues on PostgreSQL slow down: every claim
passes over all dead rows before it. So many recurring jobs run each second, first without such a transaction, then
with one. Claims are those of a real worker, timed by the server.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bench.load import create_ticking_jobs
from bench.percentile import percentile
from bench.processes import role, slots
from bench.server import Connection, connection
from bench.serverlog import ServerLog

SLOTS = 1000
WARM_SECONDS = 8.0
READ_EVERY = 1.0
_LATE = """
select percentile_disc(0.5) within group (order by ms) as p50, percentile_disc(0.99) within group (order by ms) as p99,
       count(*) as n, count(*) filter (where ms < 0) as early
from (select extract(epoch from started_at - scheduled_for)::float8 * 1000 as ms
      from detent.executions where finished_at > $1) e
"""


async def measure(url: str, rate: int, seconds: float, folder: Path, log: Path) -> dict[str, Any]:
    statements = ServerLog(log)
    flags = ("--import", "bench.tasks", "--slots", str(slots(SLOTS)))
    async with connection(url) as watch, connection(url) as holder:
        await statements.switch(watch, on=True)
        await create_ticking_jobs(url, watch, rate)
        async with (
            role("scheduler", url, folder / "unused"),
            role("worker", url, folder / "unused", *flags),
        ):
            await asyncio.sleep(min(WARM_SECONDS, 5.0 + seconds))
            before = await _window(watch, statements, min(30.0, seconds))
            async with holder.transaction(isolation="repeatable_read"):
                await holder.fetchval("select count(*) from detent.live")
                await asyncio.sleep(max(0.0, seconds - min(30.0, seconds)))
                # The last half minute, when the most has died.
                held = await _window(watch, statements, min(30.0, seconds))
                dead = await watch.fetchval(
                    "select n_dead_tup from pg_stat_user_tables where relid = 'detent.live'::regclass"
                )
    return {
        "claim_p50_ms": held["claim_p50_ms"],
        "claim_p99_ms": held["claim_p99_ms"],
        "baseline_claim_p50_ms": before["claim_p50_ms"],
        "baseline_claim_p99_ms": before["claim_p99_ms"],
        "claim_p50_ratio": round(held["claim_p50_ms"] / before["claim_p50_ms"], 2),
        "claim_p99_ratio": round(held["claim_p99_ms"] / before["claim_p99_ms"], 2),
        "late_p50_ms": held["late_p50_ms"],
        "late_p99_ms": held["late_p99_ms"],
        "baseline_late_p50_ms": before["late_p50_ms"],
        "baseline_late_p99_ms": before["late_p99_ms"],
        "executions_per_second": held["executions_per_second"],
        "early": before["early"] + held["early"],
        "claims": held["claims"],
        "dead_rows": dead,
        "held_seconds": seconds,
        "rate": rate,
    }


async def _window(watch: Connection, statements: ServerLog, seconds: float) -> dict[str, Any]:
    since = await watch.fetchval("select clock_timestamp()")
    statements.forget()
    for _ in range(max(1, round(seconds / READ_EVERY))):
        await asyncio.sleep(READ_EVERY)
        statements.read()
    claims = sorted(statements.milliseconds["claim"])
    row = await watch.fetchrow(_LATE, since)
    if not claims or row is None or not row["n"]:
        raise RuntimeError("nothing was claimed")
    return {
        "claim_p50_ms": round(percentile(claims, 0.5), 3),
        "claim_p99_ms": round(percentile(claims, 0.99), 3),
        "claims": len(claims),
        "late_p50_ms": round(row["p50"], 2),
        "late_p99_ms": round(row["p99"], 2),
        "executions_per_second": round(row["n"] / seconds),
        "early": row["early"],
    }
