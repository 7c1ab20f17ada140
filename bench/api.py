"""The HTTP door: reads and writes mixed, by wrk, on one process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path
from typing import Any

from bench.load import create_schedules
from bench.packages import debian_program
from bench.processes import cpu_seconds, free_port, role
from bench.server import connection

CONNECTIONS = 32
JOBS = 20_000
_MIX = Path(__file__).with_name("mix.lua")


async def measure(url: str, seconds: float, folder: Path) -> dict[str, Any]:
    wrk = await debian_program("wrk", "wrk")
    ids = folder / "ids"
    async with connection(url) as watch:
        await create_schedules(url, watch, JOBS, await watch.fetchval("select now() + interval '1 day'"))
        rows = await watch.fetch("select job_id from detent.jobs order by md5(job_id::text) limit 2000")
        ids.write_text("".join(f"{row['job_id']}\n" for row in rows))
        port = free_port()
        async with role("api", url, folder / "unused", "--port", str(port)) as api:
            await _wrk(wrk, port, min(2.0, seconds), ids)
            before = cpu_seconds(api)
            figure = await _wrk(wrk, port, seconds, ids)
            cpu = cpu_seconds(api) - before
        made = await watch.fetchval("select count(*) from detent.jobs where name like 'mix %'")
    if figure["not_2xx"] or figure["broken"] or not made:
        raise RuntimeError(f"not every request was answered well: {figure}, {made} jobs were made")
    requests = figure.pop("requests")
    return {
        "per_second": round(requests / figure["seconds"]),
        **figure,
        "n": requests,
        "api_cpu_us_each": round(1e6 * cpu / requests),
        "connections": CONNECTIONS,
        "writes_share": 0.35,
    }


async def _wrk(wrk: str, port: int, seconds: float, ids: Path) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        wrk, "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", "--latency", "--timeout", "10s",
        "-s", str(_MIX), f"http://127.0.0.1:{port}",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "BENCH_IDS": str(ids)},
    )  # fmt: skip
    try:
        output, _ = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    for line in output.decode().splitlines():
        if line.startswith("RESULT "):
            figure: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return figure
    raise RuntimeError(f"wrk gave no result: {output.decode()[-300:]}")
