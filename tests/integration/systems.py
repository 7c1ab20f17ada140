"""A whole system in processes of its own, for tests that look at it from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

START_SECONDS = 40.0


def clean_environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DETENT_")}
    return {**kept, "COLUMNS": "200", **more}


def detent(*words: str, cwd: Path | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end."""
    return subprocess.run(
        [sys.executable, "-m", "detent", *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env=clean_environment(),
    )


def until(condition: Callable[[], T], seconds: float = 20, what: str = "it") -> T:
    """Wait for something true."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds:g} s"
        time.sleep(0.02)


@dataclass
class Up:
    """One `detent up`. Lines of standard output and error are gathered as they come."""

    data: Path
    words: tuple[str, ...] = ()
    cwd: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        words = ["up", "--data", str(self.data), *self.words]
        if "--port" not in words:
            words += ["--port", "0"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "detent", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.cwd,
            env=clean_environment(**self.environment),
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=self._gather, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _gather(stream: Any, lines: list[str]) -> None:
        with stream:
            for line in stream:
                lines.append(line.rstrip("\n"))

    def ready(self) -> Up:
        until(lambda: self.out or self.process.poll() is not None, START_SECONDS, "being up")
        assert self.out, f"it ended with {self.process.poll()}:\n" + "\n".join(self.err)
        until(lambda: any("stop with" in line for line in self.out))
        return self

    @property
    def url(self) -> str:
        (line,) = [line for line in self.out if line.strip().startswith("dashboard")]
        return line.split()[1].rstrip("/")

    def family(self) -> dict[int, str]:
        """Every process of this system but `up` itself, by pid: those whose ancestor it is."""
        return {pid: words for pid, words in processes().items() if self.process.pid in ancestors(pid)}

    def child(self, role: str) -> int:
        (pid,) = [pid for pid, words in self.family().items() if words.endswith(f"-m detent {role}")]
        return pid

    def end(self, sign: signal.Signals = signal.SIGTERM, seconds: float = 30) -> int:
        """Signal it, wait for its end, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(sign)
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(5)
        return code

    def detent(self, *words: str) -> subprocess.CompletedProcess[str]:
        return detent(*words, "--url", self.url)

    def json(self, *words: str) -> Any:
        done = self.detent(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def processes() -> dict[int, str]:
    """Command lines by pid, without zombies."""
    found: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                )
            except OSError:
                continue
            if words:
                found[int(folder.name)] = words
    return found


def ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        found.add(pid)
    return found


def gone(pids: dict[int, str]) -> bool:
    """Whether none of these processes is left. The same number with other words is another process."""
    now = processes()
    return not any(now.get(pid) == words for pid, words in pids.items())
