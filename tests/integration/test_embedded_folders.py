"""Where a data folder may be, what may be in it, and what is refused, each with one clear line."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from detent.model.errors import StartupError
from detent.store import binaries, folder
from detent.store.embedded import Embedded, discard, find_running, temporary_folder

Fill = Callable[[Path], Path]
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root has to give the server another user")


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder that only its owner may enter, as root's home is; with a data folder inside."""
    place = temporary_folder("detent-test-")
    place.chmod(0o700)
    data = place / "clone" / ".detent"
    yield data
    if data.exists():
        discard(data)
    shutil.rmtree(place)


@pytest.fixture
def closed_used(closed: Path, seeded: Fill) -> Path:
    """The same after it was used: its cluster is outside, and a pointer says where."""
    binaries.own_folder(folder.OUTSIDE)
    home = folder.OUTSIDE / f"test-{os.getpid()}"
    home.mkdir(mode=0o711)
    seeded(home)
    closed.mkdir(parents=True)
    (closed / "cluster").write_text(f"{home}\n")
    return closed


def works(url: str) -> bool:
    async def work() -> bool:
        connection = await asyncpg.connect(url)
        try:
            return bool(await connection.fetchval("select true"))
        finally:
            await connection.close()

    return asyncio.run(work())


def outside_of(data: Path) -> Path:
    return Path((data / "cluster").read_text().strip())


@as_root
def test_below_roots_home_the_cluster_is_kept_where_its_user_can_reach_it(closed: Path) -> None:
    with Embedded(closed) as embedded:
        assert works(embedded.url)
        assert find_running(closed) == embedded.url
        home = outside_of(closed)
        assert home.parent == Path("/var/lib/detent")
        assert (home / "postgres").stat().st_uid == 65534
        assert stat.S_IMODE((home / "postgres").stat().st_mode) == 0o700
        assert stat.S_IMODE((home / "run").stat().st_mode) == 0o700
        assert (closed / "postgres.log").exists()
    assert stat.S_IMODE(closed.parent.parent.stat().st_mode) == 0o700  # nothing was opened for it
    with Embedded(closed) as embedded:
        assert outside_of(closed) == home
        assert works(embedded.url)


@as_root
def test_below_roots_home_a_data_folder_made_again_starts_empty(closed: Path) -> None:
    with Embedded(closed):
        first = outside_of(closed)
    shutil.rmtree(closed)
    try:
        with Embedded(closed):
            assert outside_of(closed) != first
    finally:
        shutil.rmtree(first)


@as_root
def test_discarding_a_folder_below_roots_home_leaves_nothing(closed_used: Path) -> None:
    with Embedded(closed_used):
        home = outside_of(closed_used)
        with pytest.raises(StartupError, match="is in use"):
            discard(closed_used)
    discard(closed_used)
    assert not home.exists()
    assert not closed_used.exists()


@as_root
def test_a_copy_of_a_data_folder_does_not_take_the_cluster_away(closed_used: Path) -> None:
    with Embedded(closed_used) as embedded:
        copy = closed_used.with_name("copy")
        shutil.copytree(closed_used, copy)
        with pytest.raises(StartupError, match=f"{copy} is in use by process {os.getpid()}"):
            Embedded(copy).start()
        assert works(embedded.url)


@as_root
def test_a_lost_cluster_is_said_to_be_lost_and_not_replaced(closed_used: Path) -> None:
    home = outside_of(closed_used)
    shutil.rmtree(home)
    with pytest.raises(StartupError, match=f"in {home}, which is gone"):
        Embedded(closed_used).start()


@as_root
def test_programs_that_their_user_cannot_reach_are_copied_once(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a virtual environment in root's home. tmp_path is closed to others by pytest itself."""
    found = binaries.locate()
    hidden = tmp_path / "site-packages"
    for part in (Path(binaries.PACKAGE) / found.inner.name, Path(f"{binaries.PACKAGE}.libs")):
        shutil.copytree(found.root / part, hidden / part)
    unreachable = binaries.Binaries(hidden, found.inner, found.version)
    monkeypatch.setattr("detent.store.embedded.locate", lambda: unreachable)
    monkeypatch.setattr(binaries, "CACHE", data / "cache")
    (data / "cache" / ".new-left").mkdir(parents=True)
    with Embedded(data) as embedded:
        assert works(embedded.url)
        (copy,) = (data / "cache").glob("postgres-*")
        assert str(copy) in Path(f"/proc/{embedded.pid}/cmdline").read_text()
        made = (copy / "complete").stat().st_mtime_ns
        assert not (data / "cache" / ".new-left").exists()
    with Embedded(data) as embedded:
        assert works(embedded.url)
        assert (copy / "complete").stat().st_mtime_ns == made
    (copy / "complete").unlink()  # as if the copying had been cut short
    with Embedded(data) as embedded:
        assert works(embedded.url)
        assert (copy / "complete").exists()


@as_root
def test_a_cache_that_others_can_write_is_not_trusted(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(StartupError, match="only root can write"):
        binaries.own_folder(tmp_path)


@as_root
def test_a_folder_first_used_by_a_user_keeps_that_user_below_root(data: Path) -> None:
    for path in (data / "postgres", data / "run", *(data / "postgres").rglob("*")):
        os.chown(path, 1234, 1234, follow_symlinks=False)
    with Embedded(data) as embedded:
        assert works(embedded.url)
        assert Path(f"/proc/{embedded.pid}").stat().st_uid == 1234


@as_root
def test_an_ordinary_user_needs_no_help(new_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork of this process becomes that user: the modules it needs are loaded, wherever they are."""
    found = [
        Path(path)
        for path in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin"))
        if path
    ]
    readable = [path for path in found if binaries.can_reach(path, folder.NOBODY)]
    if not readable or not binaries.can_reach(binaries.locate().initdb, folder.NOBODY):
        pytest.skip("no interpreter or no PostgreSQL that another user could read")
    monkeypatch.setattr(sys, "executable", str(readable[0]))
    os.chown(new_data, folder.NOBODY.uid, folder.NOBODY.gid)
    said, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(folder.NOBODY.gid)
            os.setuid(folder.NOBODY.uid)
            with Embedded(new_data) as embedded:
                os.write(said[1], embedded.url.encode())
                os.read(go[0], 1)
            code = 0
        except BaseException as error:
            os.write(said[1], repr(error).encode())
        finally:
            os._exit(code)
    try:
        url = os.read(said[0], 4096).decode()
        assert url.startswith("postgresql://"), url
        assert works(url)
        assert (new_data / "postgres").stat().st_uid == folder.NOBODY.uid
    finally:
        os.write(go[1], b".")
        assert os.waitpid(child, 0)[1] == 0
        for fd in (*said, *go):
            os.close(fd)


@pytest.mark.parametrize("name", ["d" * 120, "a space, a comma", "ünïcode's"])
def test_any_path_will_do_however_long_or_odd(new_data: Path, seeded: Fill, name: str) -> None:
    (new_data / "lock").touch()
    odd = new_data / name
    odd.mkdir(mode=0o711)
    seeded(odd)
    with Embedded(odd) as embedded:
        assert works(embedded.url)
        sockets = embedded.url.partition("host=")[2].partition("&")[0]
        assert sockets.startswith("/tmp/detent-")
        assert stat.S_IMODE(Path(sockets).stat().st_mode) == 0o700
        assert find_running(odd) == embedded.url
    assert not Path(sockets).exists()


def test_a_folder_with_other_peoples_files_is_refused(new_data: Path) -> None:
    (new_data / "thesis.txt").write_text("precious")
    try:
        with pytest.raises(StartupError) as refusal:
            Embedded(new_data).start()
        assert str(refusal.value).startswith(f"{new_data} is not empty and is not a Detent data folder")
        assert [entry.name for entry in new_data.iterdir()] == ["thesis.txt"]
    finally:
        (new_data / "thesis.txt").unlink()


def test_a_cluster_folder_that_is_no_cluster_is_refused(new_data: Path) -> None:
    (new_data / "postgres").mkdir()
    os.chown(new_data / "postgres", 65534 if os.getuid() == 0 else os.getuid(), -1)
    (new_data / "postgres" / "notes").touch()
    with pytest.raises(StartupError, match=f"{new_data}/postgres is not a PostgreSQL cluster and not empty"):
        Embedded(new_data).start()


def test_an_empty_cluster_folder_is_used(new_data: Path) -> None:
    (new_data / "postgres").mkdir(mode=0o700)
    os.chown(new_data / "postgres", 65534 if os.getuid() == 0 else os.getuid(), -1)
    with Embedded(new_data) as embedded:
        assert works(embedded.url)


def test_a_cluster_of_another_version_is_refused_by_version(data: Path) -> None:
    (data / "postgres" / "PG_VERSION").write_text("16\n")
    with pytest.raises(StartupError, match=r"is a cluster of PostgreSQL 16, and this program brings \d\d:"):
        Embedded(data).start()


def test_a_file_in_place_of_the_folder_is_refused(new_data: Path) -> None:
    (new_data / "lock").touch()
    for path in (new_data / "lock", new_data / "lock" / "inside"):
        with pytest.raises(StartupError, match=f"cannot use the data folder {path}"):
            Embedded(path).start()


def test_a_place_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(StartupError, match="cannot use the data folder /proc/detent"):
        Embedded("/proc/detent").start()


@as_root
def test_a_full_disk_is_named_and_leaves_a_folder_that_works_later(new_data: Path) -> None:
    (new_data / "lock").touch()
    small = new_data / "small"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0755", "none", small], capture_output=True
    ).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(StartupError) as refusal:
            Embedded(small / "data").start()
        assert str(refusal.value) == f"cannot make a database in {small}/data: no space is left on its device"
        subprocess.run(["mount", "-o", "remount,size=200m", small], check=True)
        with Embedded(small / "data") as embedded:
            assert works(embedded.url)
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
        with pytest.raises(StartupError, match="the file system is read-only"):
            Embedded(small / "data").start()
    finally:
        subprocess.run(["umount", small], check=True)


def test_the_log_is_cut_when_it_has_grown(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.store.embedded.LOG_LIMIT", 1000)
    log = data / "postgres.log"
    with Embedded(data) as embedded:
        with log.open("a") as file:
            file.write("x" * 2000)
        assert embedded.restart_if_dead() is False
        assert log.stat().st_size < 1000
        assert (data / "postgres.log.1").stat().st_size > 2000
    assert "shut down" in log.read_text()
    assert "\0" not in log.read_text()


def test_a_settings_mistake_is_reported_in_the_servers_words(data: Path) -> None:
    (data / "postgresql.local.conf").write_text("shared_buffers = lots\n")
    with pytest.raises(StartupError, match=r"PostgreSQL does not start in .*lots.*see .*postgres.log"):
        Embedded(data).start()
    (data / "postgresql.local.conf").write_text("work_mem = 12MB\n")
    with Embedded(data) as embedded:
        assert works(embedded.url)


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_no_file_descriptor_is_left_after_a_stop(data: Path) -> None:
    with Embedded(data):
        pass
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(2):
        with Embedded(data):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
