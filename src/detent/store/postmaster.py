"""One run of the `postgres` program, and the hunt for runs that outlived their owner.

The server is started by a thread that then waits for it, for two reasons. The kernel sends the
parent-death signal when the *thread* that forked dies, so that thread has to live as long as the
server; and somebody has to reap the server at once, because a zombie looks alive to those who only ask
for its pid. Whether it is ready is read from `postmaster.pid`, as pg_ctl does: no connection is needed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from detent.model.errors import StartupError
from detent.store import launch
from detent.store.binaries import ServerUser

PID_FILE = "postmaster.pid"
# Fast shutdown; immediate shutdown, which the next start recovers from; and no more asking.
STOP_STEPS = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
STRAY_STEPS = ((signal.SIGQUIT, 3.0), (signal.SIGKILL, 3.0))
TICK = 0.005


def launcher(user: ServerUser | None, death: signal.Signals) -> list[str]:
    """The words that start a program as `user` and end it with `death` when we are gone."""
    uid, gid = (user.uid, user.gid) if user else (-1, -1)
    script = str(Path(launch.__file__).resolve())
    return [sys.executable, "-I", "-S", script, str(os.getpid()), str(uid), str(gid), str(int(death))]


class Postmaster:
    """A started server. It ends by `stop`, by a crash, or soon after this process does."""

    def __init__(self, command: Sequence[str], user: ServerUser | None, cluster: Path, log: Path) -> None:
        self._command = [*launcher(user, signal.SIGINT), *command]
        self._user = user
        self._cluster = cluster
        self._log = log
        self._log_from = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: OSError | None = None
        self._spawned = threading.Event()
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._live, name="postmaster", daemon=True).start()
        self._spawned.wait()
        if self._failure is not None:
            raise self._failure

    def _live(self) -> None:
        try:
            # The log is opened by us: the server's user may not reach its folder. Appending lets us cut it.
            fd = os.open(
                self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            try:
                if self._user:
                    os.fchown(fd, self._user.uid, self._user.gid)
                self._log_from = os.fstat(fd).st_size
                # A session of its own: Ctrl-C in the terminal is for us, and we stop the server last.
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=fd, stderr=fd, start_new_session=True
                )
            finally:
                os.close(fd)
        except OSError as error:
            self._failure = error
            self._ended.set()
            return
        finally:
            self._spawned.set()
        self._process.wait()
        self._ended.set()

    @property
    def alive(self) -> bool:
        return self._process is not None and not self._ended.is_set()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def wait_ready(self, seconds: float, cancelled: Callable[[], bool]) -> bool:
        """Wait until it takes connections; False if it ended, was cancelled, or took too long."""
        deadline = time.monotonic() + seconds
        while self.alive and time.monotonic() < deadline and not cancelled():
            if self._is_ready():
                return True
            self._ended.wait(TICK)
        return False

    def _is_ready(self) -> bool:
        try:
            lines = (self._cluster / PID_FILE).read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def complaint(self) -> str:
        """What it said when it failed, in a line: the fatal ones, else its last words."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._log_from)
                said = log.read(1 << 20).decode(errors="replace").splitlines()
        except OSError:
            return "it left no message"
        # A mistake in the settings is a LOG line of its own before a FATAL one that only says where.
        marks = ("PANIC:", "FATAL:", "LOG:  invalid", "LOG:  unrecognized", "LOG:  syntax error")
        # Clients that came too early are turned away with FATAL lines: those are about them.
        said = [line for line in said if "FATAL:  the database system is " not in line]
        told = [line for line in said if any(mark in line for mark in marks)] or said[-1:]
        words = [re.sub(r"^.*?(PANIC|FATAL|LOG): +", "", line).strip() for line in told[:3]]
        return "; ".join(words) or "it left no message"

    def stop(self) -> None:
        if self._process is None:
            return
        for sign, seconds in STOP_STEPS:
            if self._ended.is_set():
                return
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(sign)
            if self._ended.wait(seconds):
                return


def stop_orphans(cluster: Path) -> None:
    """End every server process that still works on this cluster. The caller holds the folder's lock."""
    leader = _leader(cluster)
    if leader is not None and _works_on(leader, cluster):
        _end([leader], cluster, STOP_STEPS)
    elif leader is not None and _exists(leader):
        # The number was given to somebody else since, and the server would take it for its predecessor.
        (cluster / PID_FILE).unlink(missing_ok=True)
    # Backends whose postmaster was killed keep the shared memory and must not write any more.
    _end(_strays(cluster), cluster, STRAY_STEPS)


def _end(pids: list[int], cluster: Path, steps: Sequence[tuple[signal.Signals, float]]) -> None:
    for sign, seconds in steps:
        pids = [pid for pid in pids if _works_on(pid, cluster)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
        deadline = time.monotonic() + seconds
        while pids and time.monotonic() < deadline:
            time.sleep(TICK)
            pids = [pid for pid in pids if _works_on(pid, cluster)]
    if pids:
        raise StartupError(f"process {pids[0]} still works on {cluster} and cannot be stopped")


def _leader(cluster: Path) -> int | None:
    try:
        return abs(int((cluster / PID_FILE).read_text().split("\n", 1)[0]))
    except (OSError, ValueError):
        return None


def _strays(cluster: Path) -> list[int]:
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names only
    except OSError:
        return []
    return [pid for pid in pids if _works_on(pid, cluster)]


def _works_on(pid: int, cluster: Path) -> bool:
    """Whether `pid` is a PostgreSQL server process of this cluster: they all stand in its folder.

    A recycled number belongs to another program, and a zombie stands nowhere: neither is taken for one.
    """
    if Path("/proc/self").exists():
        try:
            program = Path(f"/proc/{pid}/exe").readlink().name.removesuffix(" (deleted)")
            return program == "postgres" and Path(f"/proc/{pid}/cwd").samefile(cluster)
        except OSError:
            return False
    shown = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True).stdout
    return "postgres" in shown and str(cluster) in shown


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
