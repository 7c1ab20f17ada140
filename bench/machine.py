"""What a figure was measured on. Nothing that names the machine or its folders."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import re
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

SAMPLE_SECONDS = 0.5
# Above this share of the cores, what others do here shows in the figures.
DISTURBED = 0.1


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def facts(postgres: str) -> dict[str, Any]:
    return {
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
            "cpu": _cpu(),
        },
        "versions": {
            "detent": version("detent"),
            "postgres": postgres,
            "python": platform.python_version(),
            "asyncpg": version("asyncpg"),
            "uvloop": version("uvloop"),
        },
    }


async def busy() -> float:
    """What else goes on here: the share of all cores that is in use while we do nothing."""
    idle, total = _ticks()
    await asyncio.sleep(SAMPLE_SECONDS)
    idle_after, total_after = _ticks()
    return round(1 - (idle_after - idle) / max(1, total_after - total), 2)


async def quiet(patience: float) -> float:
    """Wait until others leave the machine alone, but not longer than this; returns how busy they keep it."""
    deadline = time.monotonic() + patience
    while (share := await busy()) >= DISTURBED and time.monotonic() < deadline:
        pass
    return share


def _ticks() -> tuple[int, int]:
    with contextlib.suppress(OSError):
        ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        return ticks[3] + ticks[4], sum(ticks[:8])
    return 0, 0


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()
