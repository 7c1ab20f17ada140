"""Roles as real processes: started as a user would, and ended whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from functools import cache
from pathlib import Path

from detent.runtime.config import BadConfiguration, load

READY_SECONDS = 30.0
STOP_SECONDS = 30.0
_ROOT = Path(__file__).parent.parent


@contextlib.asynccontextmanager
async def role(
    name: str, url: str, file: Path, *flags: str, env: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`detent <name>` on this database, from when it says that it is ready to when it has ended."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "detent", name, "--database", url, "--log-level", "warning", *flags,
        stdout=asyncio.subprocess.PIPE, cwd=_ROOT, env={**os.environ, "BENCH_FILE": str(file), **(env or {})},
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


def memory_mb(process: asyncio.subprocess.Process) -> tuple[float, float]:
    """What a running process holds in memory now, and the most that it ever held."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    held = {name: int(kb) for name, kb in re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", status, re.MULTILINE)}
    return round(held["VmRSS"] / 1024, 1), round(held["VmHWM"] / 1024, 1)


@cache
def slots(wanted: int) -> int:
    """So many, or the most that a worker takes."""
    for most in (wanted, 10_000):
        try:
            return load({"slots": most}, {}).config.slots
        except BadConfiguration:
            continue
    raise AssertionError("a worker takes 10,000 slots")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
