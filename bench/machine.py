"""What a figure was measured on. Nothing that names the machine or its folders."""

from __future__ import annotations

import os
import platform
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any


def facts(postgres: str) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
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


def load() -> float:
    """What else goes on here: runnable processes, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()
