"""The data folder: who owns it now, and where its cluster and sockets are.

    <data>/lock              held (flock) by the process that serves the folder: its pid, then its URL
    <data>/postgres/         the cluster
    <data>/run/              the Unix socket, in a folder nobody else may enter
    <data>/postgresql.conf   our settings, written at every start
    <data>/postgres.log      what PostgreSQL says
    <data>/cluster           only below root, where the server's user cannot reach <data>: the path of
                             the folder in /var/lib/detent that holds lock, postgres, run and conf

The lock is the kernel's: it is gone the moment its holder is, however that died. The pointer names a
folder with a random name, so that a data folder deleted and made again starts empty.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from detent.model.errors import StartupError
from detent.store.binaries import ServerUser, can_reach, own_folder

OUTSIDE = Path("/var/lib/detent")
NOBODY = ServerUser(65534, 65534)
LOCK, CLUSTER, POINTER, SOCKETS = "lock", "postgres", "cluster", "run"
SOCKET_NAME = ".s.PGSQL.5432"
# sun_path, less its terminating zero
SOCKET_PATH_LIMIT = 103 if sys.platform == "darwin" else 107
# A probe of the lock and the exit of a killed holder both take a moment.
LOCK_PATIENCE = 0.5
FOREIGN_BUT_HARMLESS = frozenset({"lost+found"})


@contextlib.contextmanager
def plain_words(place: Path) -> Iterator[None]:
    """Turn what the file system refuses into one line that says where and why."""
    try:
        yield
    except OSError as error:
        reason = {
            errno.ENOSPC: "no space is left on its device",
            errno.EDQUOT: "the disk quota is used up",
            errno.EROFS: "the file system is read-only",
            errno.EACCES: "permission denied",
            errno.EPERM: "permission denied",
            errno.ENOTDIR: "a part of the path is not a folder",
            errno.EEXIST: "it is not a folder",
        }.get(error.errno or 0, error.strerror or str(error))
        raise StartupError(f"cannot use the data folder {place}: {reason}") from error


class FolderLock:
    """The claim of one process on one folder, for as long as it lives."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._fd: int | None = None

    def acquire(self, shown: Path) -> None:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        deadline = time.monotonic() + LOCK_PATIENCE
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    holder = _lines(fd)[:1]
                    os.close(fd)
                    by = f" by process {holder[0]}" if holder else ""
                    raise StartupError(f"the data folder {shown} is in use{by}") from None
                time.sleep(0.02)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def publish(self, url: str) -> None:
        assert self._fd is not None
        os.pwrite(self._fd, f"{os.getpid()}\n{url}\n".encode(), 0)

    def release(self) -> None:
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None

    @property
    def held(self) -> bool:
        return self._fd is not None


def published(data: Path) -> str | None:
    """The URL that the holder of this folder published, or None if nobody holds it."""
    try:
        fd = os.open(data / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return next(iter(_lines(fd)[1:]), None)
    finally:
        os.close(fd)


def _lines(fd: int) -> list[str]:
    """Whole lines only: the last one may be half written."""
    return os.pread(fd, 4096, 0).decode().split("\n")[:-1]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the cluster of a data folder is, and who runs it (None: we do, as ourselves)."""

    data: Path
    home: Path
    user: ServerUser | None

    @property
    def cluster(self) -> Path:
        return self.home / CLUSTER

    @property
    def sockets(self) -> Path:
        """Beside the cluster; in /tmp where that path is too long or has characters a URL would split."""
        beside = self.home / SOCKETS
        path = str(beside / SOCKET_NAME)
        if len(os.fsencode(path)) <= SOCKET_PATH_LIMIT and re.fullmatch(r"[A-Za-z0-9._/@+=~-]+", path):
            return beside
        uid = self.user.uid if self.user else os.getuid()
        name = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        return Path(f"/tmp/detent-{uid}-{name}")  # noqa: S108 - private_folder refuses what is not ours

    def private_folder(self, folder: Path) -> None:
        """Make a folder for the server's user alone, or refuse one that is not."""
        uid = self.user.uid if self.user else os.getuid()
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            info = folder.lstat()
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != uid or info.st_mode & 0o077:
                raise StartupError(f"{folder} must be a folder that only uid {uid} can enter") from None
        else:
            folder.chmod(0o700)
            if self.user:
                os.chown(folder, self.user.uid, self.user.gid)


def prepare(data: Path) -> None:
    """Make the data folder, or refuse a folder that is somebody else's."""
    with plain_words(data):
        if not data.exists():
            data.mkdir(parents=True)
            # Below root the server's user has to pass through; what is inside is closed.
            data.chmod(0o711 if os.getuid() == 0 else 0o700)
        names = {entry.name for entry in data.iterdir()} - FOREIGN_BUT_HARMLESS
    if names and not names & {LOCK, CLUSTER, POINTER}:
        raise StartupError(
            f"{data} is not empty and is not a Detent data folder: name another one with --data"
        )


def find_place(data: Path) -> Place:
    """Decide where the cluster is, or will be. The caller holds the lock of `data`."""
    with plain_words(data):
        if os.getuid() != 0:
            return _as_ourselves(data)
        if (data / POINTER).exists():
            home = Path((data / POINTER).read_text().strip())
            if not home.is_dir():
                raise StartupError(
                    f"{data / POINTER} says that the database is in {home}, which is gone: "
                    f"restore it, or delete {data} to start empty"
                )
            return Place(data, home, _server_user(home / CLUSTER))
        user = _server_user(data / CLUSTER)
        if can_reach(data, user):
            return Place(data, data, user)
        if (data / CLUSTER).exists():
            raise StartupError(
                f"PostgreSQL runs as uid {user.uid} here and cannot reach {data}: "
                "move the folder to where every user may enter"
            )
        return Place(data, _make_outside(data), user)


def _as_ourselves(data: Path) -> Place:
    if (data / POINTER).exists():
        raise StartupError(
            f"the data folder {data} was made by root: run as root, or name another one with --data"
        )
    cluster = data / CLUSTER
    if cluster.exists() and (owner := cluster.stat().st_uid) != os.getuid():
        raise StartupError(f"the database in {data} belongs to uid {owner}: run as that user, or as root")
    return Place(data, data, None)


def _server_user(cluster: Path) -> ServerUser:
    """The owner of the cluster if there is one; a folder first used without root keeps its user."""
    if not cluster.exists():
        return NOBODY
    info = cluster.stat()
    if info.st_uid == 0:
        raise StartupError(
            f"{cluster} belongs to root, and PostgreSQL does not run as root: chown it to its user"
        )
    return ServerUser(info.st_uid, info.st_gid)


def _make_outside(data: Path) -> Path:
    own_folder(OUTSIDE)
    home = OUTSIDE / secrets.token_hex(8)
    home.mkdir()
    home.chmod(0o711)
    fresh = data / f"{POINTER}.new"
    fresh.write_text(f"{home}\n")
    fresh.replace(data / POINTER)
    return home


def discard(data: Path) -> None:
    """Delete a data folder that nobody serves, and what it keeps outside of itself."""
    data = Path(os.path.realpath(data))
    if not data.exists():
        return
    prepare(data)
    with plain_words(data), contextlib.ExitStack() as locks:
        doomed = [data]
        if os.getuid() == 0 and (data / POINTER).exists():
            home = Path((data / POINTER).read_text().strip())
            if home.parent == OUTSIDE and home.is_dir():
                doomed.insert(0, home)
        for folder in reversed(doomed):
            lock = FolderLock(folder)
            lock.acquire(data)
            locks.callback(lock.release)
        for folder in doomed:
            shutil.rmtree(folder)
