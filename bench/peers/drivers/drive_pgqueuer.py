"""PgQueuer: one asyncpg connection, batches as told, a poll every 20 ms besides its notifications."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from datetime import timedelta

import asyncpg
import uvloop
from body import POLL_SECONDS, instants, write
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries

CHUNK = 20_000


async def load(n: int, first: float, rate: int) -> None:
    queuer = PgQueuer.from_asyncpg_connection(await asyncpg.connect(os.environ["BENCH_URL"]))
    queries = queuer.queries
    assert isinstance(queries, Queries)
    if not await queries.schema_is_installed():
        await queries.install()
    at = instants(n, first, rate)
    for start in range(0, n, CHUNK):
        part = at[start : start + CHUNK]
        now = time.time()
        await queries.enqueue(
            ["write"] * len(part),
            [repr(instant).encode() for instant in part],
            [0] * len(part),
            [timedelta(seconds=instant - now) if instant else None for instant in part],
        )


async def work() -> None:
    queuer = PgQueuer.from_asyncpg_connection(await asyncpg.connect(os.environ["BENCH_URL"]))
    poll = timedelta(seconds=POLL_SECONDS)
    queuer.qm.min_dequeue_poll_interval = poll

    @queuer.entrypoint("write")
    async def run(job: Job) -> None:
        write(float(job.payload or b"0"))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queuer.shutdown.set)
    await queuer.run(dequeue_timeout=poll, batch_size=int(os.environ["BENCH_BATCH"]))


if sys.argv[1] == "load":
    uvloop.run(load(int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
else:
    uvloop.run(work())
