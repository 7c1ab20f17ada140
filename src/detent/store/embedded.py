"""A real PostgreSQL in a data folder, started and stopped by us.

Three promises. One owner: a lock of the kernel's decides who serves a folder. Nothing lingers: the
server is told to stop when its owner dies, however it dies, and the next start ends what is left over.
Nothing is half done: a cluster is made under another name and renamed when whole, so that a folder
called `postgres` is always a complete cluster.

The server listens on a Unix socket in a folder that only its user may enter; that folder is the wall,
so connections through it need no password. `fsync` and `synchronous_commit` stay on.

All of it is synchronous and may be called from any thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from detent.model.errors import StartupError
from detent.store.binaries import Binaries, locate, usable_by
from detent.store.cluster import DATABASE, ROLE, command, make_cluster
from detent.store.folder import FolderLock, Place, discard, find_place, plain_words, prepare, published
from detent.store.postmaster import Postmaster, stop_orphans

__all__ = ["Embedded", "discard", "find_running", "temporary_folder"]

log = logging.getLogger("detent")

READY_PATIENCE = 300.0  # recovery after a crash replays up to max_wal_size
MEMORY_PATIENCE = 15.0  # how long the shared memory of a killed server may stay in use
LOG_LIMIT = 16 << 20
STILL_IN_USE = ("shared memory block", 'lock file "postmaster.pid" already exists')


class Embedded:
    """The database of one data folder. Owns the folder from `start` to `stop`."""

    def __init__(self, data: Path | str) -> None:
        self._data = Path(os.path.realpath(data))
        self._log = self._data / "postgres.log"
        self._turn = threading.RLock()
        self._locks: list[FolderLock] = []
        self._place: Place | None = None
        self._binaries: Binaries | None = None
        self._server: Postmaster | None = None
        self._stopping = threading.Event()
        self._url: str | None = None

    @property
    def data(self) -> Path:
        return self._data

    @property
    def url(self) -> str:
        """The address of the database, once started."""
        if self._url is None:
            raise StartupError(f"the database in {self._data} is not started")
        return self._url

    def start(self) -> str:
        """Make the cluster if there is none, recover it if need be, serve it, and return its URL."""
        with self._turn:
            if self._url is not None:
                return self._url
            self._stopping.clear()
            prepare(self._data)
            try:
                with plain_words(self._data):
                    self._open()
            except BaseException:
                self._close()
                raise
            return self.url

    def stop(self) -> None:
        """Stop the server and give the folder back. Does nothing if it is not started."""
        self._stopping.set()
        with self._turn:
            self._close()

    def alive(self) -> bool:
        return self._server is not None and self._server.alive

    @property
    def pid(self) -> int | None:
        """The server's process, for those who watch it."""
        return self._server.pid if self._server else None

    def restart_if_dead(self) -> bool:
        """Serve again if the server died on its own; whether it had. For a supervisor's every tick."""
        with self._turn:
            if self._url is None or self._stopping.is_set():
                return False
            if self.alive():
                self._trim_log()
                return False
            log.warning("the embedded PostgreSQL ended by itself and is started again")
            with plain_words(self._data):
                self._serve()
            return True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _open(self) -> None:
        self._claim(self._data)
        place = self._place = find_place(self._data)
        if place.home != place.data:
            # A copy of a data folder points to the same cluster: the cluster has a lock of its own.
            self._claim(place.home)
        self._binaries = usable_by(locate(), place.user)
        make_cluster(place, self._binaries)
        self._serve()
        self._url = f"postgresql://{ROLE}@/{DATABASE}?host={quote(str(place.sockets))}&port=5432"
        self._locks[0].publish(self._url)

    def _claim(self, folder: Path) -> None:
        lock = FolderLock(folder)
        lock.acquire(self._data)
        self._locks.append(lock)

    def _serve(self) -> None:
        """Start the server; while the memory of a killed one is in use, wait for it to go."""
        assert self._place is not None
        assert self._binaries is not None
        place = self._place
        deadline = time.monotonic() + MEMORY_PATIENCE
        pause = 0.05
        while True:
            stop_orphans(place.cluster)
            self._trim_log()
            self._server = Postmaster(command(place, self._binaries), place.user, place.cluster, self._log)
            self._server.start()
            if self._server.wait_ready(READY_PATIENCE, self._stopping.is_set):
                return
            self._server.stop()
            why = self._server.complaint()
            if self._stopping.is_set():
                raise StartupError(f"the database in {self._data} was stopped while it started")
            if not any(sign in why for sign in STILL_IN_USE) or time.monotonic() > deadline:
                raise StartupError(f"PostgreSQL does not start in {self._data}: {why} (see {self._log})")
            self._stopping.wait(pause)
            pause = min(pause * 2, 1.0)

    def _close(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._place is not None and self._place.sockets.parent != self._place.home:
            shutil.rmtree(self._place.sockets, ignore_errors=True)
        self._place, self._url = None, None
        while self._locks:
            self._locks.pop().release()

    def _trim_log(self) -> None:
        """Keep the last 16 MB or so: one old file, and the current one emptied under the server's hands."""
        with contextlib.suppress(OSError):
            if self._log.stat().st_size > LOG_LIMIT:
                shutil.copyfile(self._log, self._log.with_suffix(".log.1"))
                os.truncate(self._log, 0)


def find_running(data: Path | str) -> str | None:
    """The URL of the database of a data folder that some process is serving now."""
    return published(Path(os.path.realpath(data)))


def temporary_folder(prefix: str = "detent-") -> Path:
    """A new data folder for a while, where the server's user can reach it; `discard` deletes it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o711 if os.getuid() == 0 else 0o700)
    return folder
