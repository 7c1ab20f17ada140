"""The process that walks a path is killed with SIGKILL before and after each of its commits; others go on.

Nothing is told any more to the one who died, so what is left may differ from a walk in peace by attempts that
were lost; but no table may contradict another, and all of it ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from proxy import Proxy, When
from sweep_paths import DIES, PATHS
from sweep_run import carried_on, is_sound, walked

from stage import Stage

HERE = Path(__file__).parent
PATIENCE = 20.0


class Nursery:
    """The process from which those that die are forked."""

    def __init__(self) -> None:
        paths = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "sweep_child.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._process.stdin, self._process.stdout:
            self._process.stdin.close()
            self._process.wait(PATIENCE)

    async def walk(self, stage: Stage, proxy: Proxy, name: str, cut: tuple[int, When]) -> None:
        """Walk a path in a process of its own, which is killed at that commit."""
        await stage.clear()
        given = await PATHS[name].prepare(stage)
        order = {"path": name, "url": proxy.url, "given": msgspec.json.encode(given).decode()}
        async with asyncio.timeout(PATIENCE):
            self._say(json.dumps(order))
            word, pid = (await self._hear()).split()
            assert word == "ready", (word, pid)
            killed = proxy.cut_at(*cut, lambda: os.kill(int(pid), signal.SIGKILL))
            self._say("go")
            assert await self._hear() == f"ended {-signal.SIGKILL}"
            assert killed.is_set()
        proxy.cut()
        await self._sessions_end(stage)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    async def _hear(self) -> str:
        assert self._process.stdout is not None
        line = (await asyncio.to_thread(self._process.stdout.readline)).decode().strip()
        assert line, "the nursery ended"
        return line

    async def _sessions_end(self, stage: Stage) -> None:
        """The server has noticed, and undone what was under way."""
        left = "select count(*) from pg_stat_activity where application_name = 'detent sweep'"
        async with asyncio.timeout(PATIENCE):
            while await stage.db.fetchval(left):
                await asyncio.sleep(0.002)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
async def proxy(stage_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(stage_url) as proxy:
        yield proxy


@pytest.mark.parametrize("name", DIES)
async def test_a_death_at_any_commit_loses_and_doubles_nothing(
    stage: Stage, proxy: Proxy, nursery: Nursery, name: str
) -> None:
    points = (await walked(stage, proxy, PATHS[name])).points
    print(f"{name}: N = {len(points)} ({', '.join(point.label for point in points)})")
    for number in range(1, len(points) + 1):
        for when in ("before", "after"):
            await nursery.walk(stage, proxy, name, (number, when))  # type: ignore[arg-type]
            try:
                await is_sound(stage)
                await carried_on(stage)
            except BaseException as error:
                error.add_note(f"{name}, killed {when} commit {number} ({points[number - 1].label})")
                raise
