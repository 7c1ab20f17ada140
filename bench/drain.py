"""Draining a queue: how fast real worker processes run and record what waits.

The start is the same instant for all workers and for the clock: an exclusive lock on `live` makes each of
them wait in its first claim, and is given up when all of them do. The end is when `live` is empty, which is
in the same commit in which the last closing row is in the history.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from itertools import count
from pathlib import Path
from typing import Any

from bench.load import queue_executions
from bench.processes import cpu_seconds, role
from bench.server import Connection, all_wait, connection
from detent.execute.report import BATCH as FINISH_BATCH

SLOTS = 500
BODY_BYTES = 16
LOOK_EVERY = 0.02
STUCK_SECONDS = 60.0
_numbers = count(1)

# From the far end of the key: while the last execution is open this reads one row, not all dead ones.
_LAST_OPEN = "select execution_id from detent.live order by execution_id desc limit 1"
_CLOSED = "select count(*) from detent.executions"


async def measure(url: str, n: int, workers: int, folder: Path) -> dict[str, Any]:
    file = folder / f"written-{next(_numbers)}"
    flags = ("--import", "bench.tasks", "--slots", str(SLOTS))
    async with (
        connection(url, hot=True) as watch,
        connection(url) as gate,
        contextlib.AsyncExitStack() as stack,
    ):
        await queue_executions(url, watch, n)
        async with gate.transaction():
            await gate.execute("lock table detent.live in exclusive mode")
            # One after the other: each that has started is known to the stack, which ends it.
            running = [
                await stack.enter_async_context(role("worker", url, file, *flags)) for _ in range(workers)
            ]
            await all_wait(watch, "live", workers)
            before = [cpu_seconds(process) for process in running]
        started = time.perf_counter()
        await until_empty(watch, n)
        seconds = time.perf_counter() - started
        cpu = sum(map(cpu_seconds, running)) - sum(before)
        await _verify(watch, n, file)
    return {
        "per_second": round(n / seconds),
        "n": n,
        "workers": workers,
        "seconds": round(seconds, 3),
        "worker_cpu_us_each": round(1e6 * cpu / n, 1),
        "worker_cores_busy": round(cpu / seconds, 2),
        "slots": SLOTS,
        "finish_batch": FINISH_BATCH,
    }


async def until_empty(watch: Connection, n: int) -> None:
    """Wait until `n` are closed and nothing is open; fail when nothing moves any more."""
    last_look = await watch.prepare(_LAST_OPEN)
    closed, moved = -1, time.monotonic()
    while await last_look.fetchval() is not None or await watch.fetchval(_CLOSED) < n:
        await asyncio.sleep(LOOK_EVERY)
        if time.monotonic() - moved > STUCK_SECONDS:
            now_closed = await watch.fetchval(_CLOSED)
            if now_closed == closed:
                raise RuntimeError(f"stuck: {closed} were recorded, and no more in {STUCK_SECONDS:g} s")
            closed, moved = now_closed, time.monotonic()


async def _verify(watch: Connection, n: int, file: Path) -> None:
    """Every execution succeeded at its first attempt, has its history, and ran exactly once."""
    row = await watch.fetchrow(
        "select (select count(*) from detent.executions where status = 'succeeded' and attempt = 1) closed,"
        " (select count(*) from detent.attempts where outcome = 'succeeded') attempts"
    )
    assert row is not None
    written = file.stat().st_size // BODY_BYTES
    if not row["closed"] == row["attempts"] == written == n:
        raise RuntimeError(f"{n} were queued, {row} are recorded, {written} ran")
