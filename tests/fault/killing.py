"""Starting whole systems over one data folder, and killing them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from customer import Api
from systems import Up, ancestors, processes, until
from witness import Witness

from detent.model.errors import StartupError
from detent.store.embedded import discard, find_running, temporary_folder

HERE = Path(__file__).parent
# A PostgreSQL that is killed while it starts, and a worker that hears late that it was given up.
EXCUSED = ("PostgreSQL does not start", "was given up on")
ROLES = ("api", "scheduler", "keeper", "worker", "postgres")
# Short, so that a rescue is soon; the defaults are 10 and 30.
LEASE = ("--heartbeat", "1", "--lease", "2")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Systems:
    """One data folder and one port, and every system that was started over them."""

    def __init__(self, notes: Path, *, schedulers: int = 1, workers: int = 1) -> None:
        self.schedulers, self.workers = schedulers, workers
        self.data = temporary_folder("detent-fault-")
        self.port = free_port()
        self.api = Api(f"http://127.0.0.1:{self.port}")
        self.witness = Witness(notes / "witness")
        self.ups: list[Up] = []
        self.zombies: set[int] = set()  # processes that were made to stand still, and then to go on
        self._seen: dict[int, str] = {}

    def start(self, *words: str) -> Up:
        fixed = ("--port", str(self.port), "--import", "witness", *LEASE)
        copies = ("--schedulers", str(self.schedulers), "--workers", str(self.workers))
        self.ups.append(
            Up(self.data, (*fixed, *copies, *words), HERE, {"DETENT_ALLOW_PRIVATE_CALLBACKS": "true"})
        )
        return self.ups[-1]

    @property
    def up(self) -> Up:
        return self.ups[-1]

    @property
    def database(self) -> str:
        url = find_running(self.data)
        assert url is not None
        return url

    def family(self) -> dict[int, str]:
        """All processes of the system that runs now, its supervisor too."""
        family = {**self.up.family(), self.up.process.pid: processes().get(self.up.process.pid, "")}
        self._seen.update(family)
        return family

    def roles(self) -> dict[str, set[int]]:
        """The processes of each role, and PostgreSQL's first one. What a worker has forked and has not yet become
        a program looks like a worker itself, and is none.
        """
        found: dict[str, set[int]] = {}
        family = {pid: _role(words) for pid, words in self.family().items()}
        for pid, role in family.items():
            if role is not None and not any(family.get(one) for one in ancestors(pid)):
                found.setdefault(role, set()).add(pid)
        return found

    def kill(self, role: str) -> int:
        """kill -9 of the one process of a role."""
        (pid,) = self.roles()[role]
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_everything(self, chance: random.Random, *, programs: bool) -> dict[int, str]:
        """kill -9 of all at once, in any order: as a power cut does it, or all but what workers started."""
        family = self.family()
        doomed = [pid for pid, words in family.items() if programs or _is_role(words)]
        chance.shuffle(doomed)
        for pid in doomed:
            strike(pid)
        self.up.end(signal.SIGKILL)
        return family

    def leftovers(self) -> dict[int, str]:
        """Processes of any system that was started here and that run now."""
        ours = {pid: words for pid, words in processes().items() if str(self.data) in words}
        return {**self.running(self._seen), **ours}

    @staticmethod
    def running(family: dict[int, str]) -> dict[int, str]:
        """Those of them that still run."""
        now = processes()
        return {pid: words for pid, words in family.items() if now.get(pid) == words}

    def complaints(self) -> list[str]:
        """What the systems said that no fault excuses: errors of their own, with what led to them."""
        found = []
        for up in self.ups:
            for at, line in enumerate(up.err):
                if ("error: " in line or "Traceback" in line) and not any(word in line for word in EXCUSED):
                    found.append("\n".join(up.err[at : at + 40]))
        return found

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Whatever fails in here comes with what the systems had to say."""
        try:
            yield
        except BaseException as error:
            error.add_note("\n".join([*self.complaints()[:5], "The last words:", *self.up.err[-40:]]))
            raise

    def stop(self) -> None:
        """An orderly end, after which nothing is left running and the data folder can go."""
        self.family()
        code = self.up.end(signal.SIGTERM)
        assert code == 0, "\n".join(self.up.err[-30:])
        until(lambda: not self.leftovers(), 10, "the end of every process")
        assert not list((self.data / "run").glob("*")), "a socket was left behind"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for up in self.ups:
            if up.process.poll() is None:
                self._seen.update(up.family())
                up.end(signal.SIGTERM, 60)
        for pid in self.leftovers():
            strike(pid)
        until(lambda: not self.leftovers(), 10, "the end of every process")
        until(self._discarded, 10, "the end of the data folder")

    def _discarded(self) -> bool:
        try:
            discard(self.data)
        except StartupError:
            return False
        return not self.data.exists()


def strike(pid: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Signal a process that may have ended by itself meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, how)


def _role(words: str) -> str | None:
    if "/bin/postgres -D" in words:
        return "postgres"
    role = words.rpartition("-m detent ")[2].partition(" ")[0] if "-m detent " in words else ""
    return role if role in ROLES else None


def _is_role(words: str) -> bool:
    return "-m detent " in words or "postgres" in words.partition(" ")[0]
