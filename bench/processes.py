"""Roles as real processes: started as a user would, and ended whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

READY_SECONDS = 30.0
STOP_SECONDS = 30.0
_ROOT = Path(__file__).parent.parent


@contextlib.asynccontextmanager
async def role(name: str, url: str, file: Path, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`detent <name>` on this database, from when it says that it is ready to when it has ended."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "detent", name, "--database", url, "--log-level", "warning", *flags,
        stdout=asyncio.subprocess.PIPE, cwd=_ROOT, env={**os.environ, "BENCH_FILE": str(file)},
    )  # fmt: skip
    try:
        await _ready(name, process)
        yield process
    finally:
        await asyncio.shield(_end(process))


async def _ready(name: str, process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(READY_SECONDS):
        line = await process.stdout.readline()
    if not line:
        raise RuntimeError(f"detent {name} ended before it was ready, with code {await process.wait()}")


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def cpu_seconds(process: asyncio.subprocess.Process) -> float:
    """Processor time that a running process has used: user and system."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
