"""Thousands of attempts that run at once in one worker: what holding them costs, and whether all are held.

The statements are counted by the server, which logs each of them with its name while the attempts run. A keeper
runs beside the worker and would take back what was not held; so one lost lease shows.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp

from bench.drain import until_empty
from bench.load import queue_executions
from bench.processes import cpu_seconds, free_port, memory_mb, role, slots
from bench.server import Connection, connection
from bench.serverlog import ServerLog
from bench.step import Skipped

HEARTBEAT, LEASE = 10.0, 30.0
# A heartbeat is these two; progress goes with it.
BEAT = ("beat_worker", "orders_for_attempts", "record_progress")
START_PATIENCE = 60.0


async def measure_async(url: str, n: int, hold: float, folder: Path, log: Path) -> dict[str, Any]:
    """Coroutines that sleep."""
    if n > slots(n):
        raise Skipped(f"a worker takes {slots(n):,} slots at most")
    heartbeat = min(HEARTBEAT, hold / 3)
    start = 3.0 + n / 1000
    until = {"BENCH_UNTIL": repr(time.time() + start + hold)}
    flags = ("--import", "bench.tasks", "--slots", str(n), "--heartbeat", f"{heartbeat:g}")
    lease = ("--heartbeat", f"{heartbeat:g}", "--lease", f"{max(1.0, LEASE * heartbeat / HEARTBEAT):g}")
    statements = ServerLog(log)
    async with connection(url) as watch:
        await queue_executions(url, watch, n, "bench.sleep")
        await statements.switch(watch, on=True)
        async with (
            role("keeper", url, folder / "unused", *lease),
            role("worker", url, folder / "unused", *flags, *lease[2:], env=until) as worker,
        ):
            seconds_to_all = await _all_running(watch, n)
            statements.forget()
            cpu, since = cpu_seconds(worker), time.monotonic()
            await asyncio.sleep(max(1.0, float(until["BENCH_UNTIL"]) - time.time() - 1.0))
            held = time.monotonic() - since
            statements.read()
            cpu = cpu_seconds(worker) - cpu
            running = await watch.fetchval("select count(*) from detent.live where state = 'running'")
            memory = memory_mb(worker)
            await until_empty(watch, n)
        lost = await watch.fetchval("select count(*) from detent.attempts where outcome <> 'succeeded'")
    if running != n:
        raise RuntimeError(f"{n} attempts ran, and {running} in the end")
    beats = sum(statements.calls[name] for name in BEAT)
    return {
        "n": n,
        "leases_lost": lost,
        "heartbeat_statements_per_second": round(beats / held, 2),
        "worker_rss_mb": memory[0],
        "worker_peak_mb": memory[1],
        "worker_cpu_share": round(cpu / held, 3),
        "seconds_until_all_ran": round(seconds_to_all, 2),
        "held_seconds": round(held, 1),
        "heartbeat_seconds": heartbeat,
        "statements": {name: count for name, count in statements.calls.most_common() if name in BEAT},
        "other_statements_per_second": round((statements.calls.total() - beats) / held, 1),
    }


async def measure_http(url: str, folder: Path) -> dict[str, Any]:
    """HTTP requests that wait for their answer, once there are tasks that make them."""
    port = free_port()
    job = {"name": "probe", "task": {"kind": "http", "method": "GET", "url": f"http://127.0.0.1:{port}/"}}
    async with (
        role("api", url, folder / "unused", "--port", str(port)),
        aiohttp.ClientSession() as client,
        client.post(f"http://127.0.0.1:{port}/api/v1/jobs", json=job) as answer,
    ):
        if answer.status != 422:
            raise RuntimeError("there are HTTP tasks now, and this does not measure them yet")
        problem = await answer.json()
    raise Skipped("; ".join(error["message"] for error in problem["errors"]))


async def _all_running(watch: Connection, n: int) -> float:
    started = time.monotonic()
    while await watch.fetchval("select count(*) from detent.live where state = 'running'") < n:
        if time.monotonic() > started + START_PATIENCE:
            raise RuntimeError(f"not all of {n} ran at once within {START_PATIENCE:g} s")
        await asyncio.sleep(0.1)
    return time.monotonic() - started
