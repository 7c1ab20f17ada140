"""The tasks that the measured workers run."""

from __future__ import annotations

import asyncio
import os
import time

from detent.sdk.task import task

SIXTEEN_BYTES = b"0123456789abcde\n"

# Appending is atomic, so several workers may share the file and its size counts the runs.
_file = os.open(os.environ["BENCH_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@task("bench.write")
async def write() -> None:
    os.write(_file, SIXTEEN_BYTES)


@task("bench.nothing")
async def nothing() -> None:
    return None


@task("bench.sleep")
async def sleep() -> None:
    """Until an instant that is the same for all."""
    await asyncio.sleep(float(os.environ["BENCH_UNTIL"]) - time.time())
