"""`detent demo` ends by itself, shows real work, and leaves nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from systems import ancestors, clean_environment, detent, gone, processes, until


def leftovers() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("detent-demo-*")}


def test_the_demo_ends_by_itself_within_30_s_and_shows_what_happened() -> None:
    before = leftovers()
    began = time.monotonic()
    done = detent("demo")
    assert time.monotonic() - began < 30
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tick    it is " in done.stdout
    assert "Hello, world!" in done.stdout
    assert "ConnectionError: the network is down" in done.stdout
    assert "attempt 3 got through" in done.stdout
    assert "17984" in done.stdout  # primes below 200,000
    assert "Traceback" not in done.stderr
    assert leftovers() == before


def test_an_interrupted_demo_cleans_up() -> None:
    before = leftovers()
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
    assert leftovers() == before
