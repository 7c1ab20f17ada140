"""`detent demo` ends by itself, shows real work, and leaves nothing."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from systems import ancestors, clean_environment, detent, gone, processes, until

from detent.store.embedded import temporary_folder


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files that no other demo of this machine uses."""
    folder = temporary_folder("detent-room-")
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder)


def seconds_to_start(shown: str, began: str) -> int:
    """From the command to the first job that was created, as its line says it."""
    line = next(line for line in shown.splitlines() if "  created " in line)
    return (seconds_of_day(line[:8]) + 1 - seconds_of_day(began)) % 86_400


def seconds_of_day(clock: str) -> int:
    hours, minutes, seconds = map(int, clock.split(":"))
    return hours * 3600 + minutes * 60 + seconds


def test_the_demo_ends_by_itself_within_30_s_and_shows_what_happened(room: Path) -> None:
    began, began_at = time.monotonic(), time.strftime("%H:%M:%S")
    done = detent("demo", timeout=110)
    took = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    assert took < max(30, seconds_to_start(done.stdout, began_at) + 14)
    assert "tick    it is " in done.stdout
    assert "Hello, world!" in done.stdout
    assert "ConnectionError: the network is down" in done.stdout
    assert "attempt 3 got through" in done.stdout
    assert "17984" in done.stdout  # primes below 200,000
    assert "Traceback" not in done.stderr
    assert list(room.iterdir()) == []


def test_an_interrupted_demo_cleans_up(room: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "detent", "demo"],
        stdout=subprocess.PIPE, text=True, env=clean_environment(), start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        while "created" not in (line := process.stdout.readline()):
            assert line, "it ended early"
        family = {pid: words for pid, words in processes().items() if process.pid in ancestors(pid)}
        assert family
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 130
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    until(lambda: gone(family))
    assert list(room.iterdir()) == []
