"""A Redis of our own on a Unix socket, with every write on disk within a second."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from bench.packages import debian_program

READY_SECONDS = 10.0


@contextlib.asynccontextmanager
async def redis() -> AsyncIterator[str]:
    program = await debian_program("redis-server", "redis-server")
    with tempfile.TemporaryDirectory(prefix="detent-bench-redis-") as folder:
        path = Path(folder) / "redis.sock"
        process = await asyncio.create_subprocess_exec(
            program, "--port", "0", "--unixsocket", str(path), "--dir", folder, "--save", "",
            "--appendonly", "yes", "--appendfsync", "everysec", "--loglevel", "warning",
            stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with asyncio.timeout(READY_SECONDS):
                while not path.exists():
                    await asyncio.sleep(0.02)
            yield f"redis+socket://{path}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await asyncio.shield(process.wait())
