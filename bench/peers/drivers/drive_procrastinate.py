"""Procrastinate: async tasks, notifications on, a poll every 20 ms for what becomes due."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime

import procrastinate
import psycopg
from body import POLL_SECONDS, instants, write

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ["BENCH_URL"], max_size=24)
)
CHUNK = 5000


@app.task(name="write")
async def run(at: float) -> None:
    write(at)


async def load(n: int, first: float, rate: int) -> None:
    async with await psycopg.AsyncConnection.connect(os.environ["BENCH_URL"]) as connection:
        found = await connection.execute("select to_regclass('procrastinate_jobs') is not null")
        row = await found.fetchone()
    async with app.open_async():
        if not row or not row[0]:
            await app.schema_manager.apply_schema_async()
        at = instants(n, first, rate)
        if first and rate:
            for instant in at:
                await run.configure(schedule_at=datetime.fromtimestamp(instant, UTC)).defer_async(at=instant)
            return
        due = run.configure(schedule_at=datetime.fromtimestamp(first, UTC)) if first else run
        for start in range(0, n, CHUNK):
            await due.batch_defer_async(*({"at": instant} for instant in at[start : start + CHUNK]))


async def work() -> None:
    async with app.open_async():
        await app.run_worker_async(
            concurrency=int(os.environ["BENCH_SLOTS"]), fetch_job_polling_interval=POLL_SECONDS
        )


if sys.argv[1] == "load":
    asyncio.run(load(int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
else:
    asyncio.run(work())
