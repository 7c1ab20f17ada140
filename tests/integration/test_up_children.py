"""Child processes and their bond with a supervisor, with small programs in the place of roles."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from detent.model.errors import StartupError
from detent.runtime.child import Child

PRELUDE = """
import os, signal, sys, time, threading
from detent.runtime.bond import Bond
from detent.runtime.config import supervision
bond = Bond.from_text(supervision())
"""
SERVES = """
def stop(*_):
    print("stopping", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
bond.watch(0.2)
bond.ready("serving")
while True:
    time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


async def until(condition: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


def pids(notes: Path) -> list[int]:
    return [int(line) for line in notes.read_text().split()] if notes.exists() else []


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "pids"


Make = Callable[..., Child]


@pytest.fixture
async def make(notes: Path) -> AsyncIterator[Make]:
    made: list[Child] = []

    def child(program: str, patience: float = 10.0) -> Child:
        words = [sys.executable, "-c", PRELUDE + textwrap.dedent(program), str(notes)]
        made.append(Child("worker", "worker-1", words, dict(os.environ), patience))
        return made[-1]

    yield child
    hurry = asyncio.Event()
    hurry.set()
    for one in made:
        one.stop()
        await one.ended(hurry)
    assert not [pid for pid in pids(notes) if alive(pid)]


async def test_a_child_says_that_it_is_ready_and_ends_when_asked(make: Make, notes: Path) -> None:
    child = make(SERVES)
    life = child.start()
    await asyncio.wait_for(child.ready.wait(), 15)
    child.stop()
    await child.ended(asyncio.Event())
    assert life.done()
    assert life.exception() is None
    assert len(pids(notes)) == 1


async def test_a_killed_child_is_started_again(
    make: Make, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    child = make(SERVES)
    child.start()
    await asyncio.wait_for(child.ready.wait(), 15)
    os.kill(pids(notes)[0], signal.SIGKILL)
    await until(lambda: len(pids(notes)) == 2)
    assert "worker-1 was ended by SIGKILL; starting it again" in caplog.text


async def test_a_child_that_was_never_ready_is_not_tried_again_and_says_why(make: Make) -> None:
    child = make("bond.failed('cannot import my.tasks: no such module', 1); sys.exit(1)")
    with pytest.raises(StartupError, match=r"worker-1: cannot import my\.tasks: no such module"):
        await asyncio.wait_for(child.start(), 15)


async def test_a_child_that_ends_without_a_word_is_told_by_its_exit_code(make: Make) -> None:
    child = make("sys.exit(7)")
    with pytest.raises(StartupError, match="worker-1 ended with exit code 7"):
        await asyncio.wait_for(child.start(), 15)


async def test_a_program_that_is_not_there_is_a_start_error() -> None:
    child = Child("worker", "worker", ["/nowhere/python"], dict(os.environ), 1.0)
    with pytest.raises(StartupError, match="worker cannot be started: No such file"):
        await asyncio.wait_for(child.start(), 15)


STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
bond.ready("never leaving")
while True:
    time.sleep(60)
"""


async def test_a_hurry_does_not_wait_for_a_stubborn_child(make: Make) -> None:
    child = make(STUBBORN, patience=600.0)
    child.start()
    await asyncio.wait_for(child.ready.wait(), 15)
    hurry = asyncio.Event()
    child.stop()
    ending = asyncio.create_task(child.ended(hurry))
    await asyncio.sleep(0)
    assert not ending.done()
    hurry.set()
    await asyncio.wait_for(ending, 15)


async def test_patience_ends(make: Make) -> None:
    child = make(STUBBORN, patience=0.1)
    child.start()
    await asyncio.wait_for(child.ready.wait(), 15)
    child.stop()
    await asyncio.wait_for(child.ended(asyncio.Event()), 15)


async def test_a_stop_while_it_is_being_born_leaves_nothing(make: Make, notes: Path) -> None:
    child = make(SERVES)
    life = child.start()
    await asyncio.sleep(0)
    child.stop()
    await asyncio.wait_for(child.ended(asyncio.Event()), 15)
    assert life.done()


PARENT = """
import asyncio, os, sys
from detent.runtime.child import Child

async def main():
    child = Child("worker", "worker", [sys.executable, "-c", sys.argv[1], sys.argv[2]], dict(os.environ), 5.0)
    child.start()
    await child.ready.wait()
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("program", [SERVES, STUBBORN.replace("bond.ready", "bond.watch(-4.5)\nbond.ready")])
async def test_children_end_with_a_supervisor_that_was_killed(program: str, notes: Path) -> None:
    """Also one that ignores the signal, after its grace."""
    words = [sys.executable, "-c", PARENT, PRELUDE + program, str(notes)]
    parent = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        assert await asyncio.to_thread(parent.stdout.readline) == "ready\n"
        (pid,) = pids(notes)
        assert alive(pid)
        parent.kill()
        await until(lambda: not alive(pid))
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
