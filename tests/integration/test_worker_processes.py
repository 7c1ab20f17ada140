"""`detent worker --processes`: several workers under one command."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from detent.store.database import Database, Record

LIVE = "select worker_id, pid, slots from detent.workers where status = 'live' order by started_at"
READY_SECONDS = 40.0


@asynccontextmanager
async def command(url: str, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "detent", "worker", "--database", url, "--log-level", "warning", *flags,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def said(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(READY_SECONDS):
        return (await process.stdout.readline()).decode().strip()


async def workers(db: Database, count: int, apart_from: set[int] = frozenset()) -> list[Record]:  # type: ignore[assignment]
    """Wait until so many live, without those of these process ids."""
    async with asyncio.timeout(READY_SECONDS):
        while True:
            found = [row for row in await db.fetch(LIVE) if row["pid"] not in apart_from]
            if len(found) == count:
                return found
            await asyncio.sleep(0.05)


async def gone(pids: list[int]) -> None:
    async with asyncio.timeout(READY_SECONDS):
        while any(Path(f"/proc/{pid}").exists() for pid in pids):
            await asyncio.sleep(0.05)


async def test_each_process_is_a_worker_and_all_leave_on_sigterm(database_url: str, db: Database) -> None:
    async with command(database_url, "--processes", "2", "--slots", "7") as process:
        assert await said(process) == "worker: 2 processes, 7 slots each in default"
        found = await workers(db, 2)
        assert {row["slots"] for row in found} == {7}
        assert process.pid not in {row["pid"] for row in found}
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(READY_SECONDS):
            assert await process.wait() == 0
    left = await db.fetch("select status from detent.workers")
    assert [row["status"] for row in left] == ["stopped", "stopped"]


async def test_a_process_that_dies_is_started_again(database_url: str, db: Database) -> None:
    async with command(database_url, "--processes", "2") as process:
        await said(process)
        first, second = [row["pid"] for row in await workers(db, 2)]
        os.kill(first, signal.SIGKILL)
        found = await workers(db, 2, apart_from={first})
        assert second in {row["pid"] for row in found}
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(READY_SECONDS):
            assert await process.wait() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_processes_end_with_the_one_that_started_them(database_url: str, db: Database) -> None:
    async with command(database_url, "--processes", "2", "--grace", "1") as process:
        await said(process)
        pids = [row["pid"] for row in await workers(db, 2)]
        process.kill()
        await gone(pids)
