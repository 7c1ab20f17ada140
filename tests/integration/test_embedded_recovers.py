"""The embedded PostgreSQL: one owner, nothing lingers, nothing is half done."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from detent.model.errors import StartupError
from detent.store.binaries import locate, usable_by
from detent.store.cluster import command
from detent.store.embedded import Embedded, find_running
from detent.store.folder import find_place

OWNER = """
import sys
from detent.store.binaries import locate, usable_by
from detent.store.cluster import command
from detent.store.embedded import Embedded
embedded = Embedded(sys.argv[1])
print(embedded.start(), embedded.pid, flush=True)
sys.stdin.read()
"""


def ask(url: str, *statements: str) -> object:
    """The value of the last of these statements."""

    async def work() -> object:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                value = await connection.fetchval(statement)
            return value
        finally:
            await connection.close()

    return asyncio.run(work())


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def gone(pid: int) -> bool:
    """Nothing runs under this number: a zombie that waits to be reaped does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def owner(data: Path) -> tuple[subprocess.Popen[str], str, int]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    url, _, pid = process.stdout.readline().strip().partition(" ")
    return process, url, int(pid)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_data_outlives_a_stop_and_a_start(data: Path) -> None:
    with Embedded(data) as first:
        assert first.alive()
        ask(first.url, "create table t (n int)", "insert into t values (7)")
    assert not first.alive()
    with Embedded(data) as second:
        assert ask(second.url, "select n from t") == 7


def test_it_is_durable_and_can_be_reached_through_its_closed_folder_only(data: Path) -> None:
    wanted = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "listen_addresses": "",
        "unix_socket_permissions": "0700",
        "server_encoding": "UTF8",
        "max_connections": "200",
        "jit": "off",
    }
    with Embedded(data) as embedded:
        assert {name: ask(embedded.url, f"show {name}") for name in wanted} == wanted
        sockets = Path(str(ask(embedded.url, "show unix_socket_directories")))
        assert sockets.stat().st_mode & 0o777 == 0o700
        assert (data / "postgres").stat().st_mode & 0o777 == 0o700
        assert (sockets / ".s.PGSQL.5432").is_socket()


def test_a_folder_in_use_is_refused_with_one_line_that_names_the_holder(data: Path) -> None:
    with Embedded(data):
        with pytest.raises(StartupError) as refusal:
            Embedded(data).start()
        assert str(refusal.value) == f"the data folder {data} is in use by process {os.getpid()}"
    with Embedded(data) as again:  # neither the refused one nor the stopped one left a lock
        assert again.alive()


def test_a_running_database_is_found_by_its_folder(data: Path) -> None:
    assert find_running(data) is None
    with Embedded(data) as embedded:
        assert find_running(data) == embedded.url
    assert find_running(data) is None


def test_a_killed_owner_takes_its_server_along_and_loses_nothing(data: Path) -> None:
    process, url, pid = owner(data)
    ask(url, "create table t (n int)", "insert into t values (1)")
    kill(process)
    with Embedded(data) as embedded:
        assert gone(pid)
        assert ask(embedded.url, "select n from t") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_a_server_whose_owner_was_killed_ends_by_itself(data: Path) -> None:
    process, _, pid = owner(data)
    kill(process)
    until(lambda: gone(pid))


def test_a_server_that_outlived_its_owner_is_ended_before_the_next_starts(data: Path) -> None:
    with Embedded(data) as embedded:
        ask(embedded.url, "create table t (n int)", "insert into t values (2)")
    place = find_place(data)
    words = command(place, usable_by(locate(), place.user))
    user = place.user.uid if place.user else None
    with subprocess.Popen(words, user=user, group=user, extra_groups=[] if user else None, cwd="/") as orphan:
        until(lambda: "ready" in read(data / "postgres" / "postmaster.pid"))
        assert find_running(data) is None
        with Embedded(data) as embedded:
            assert orphan.wait(1) == 0  # shut down, not killed
            assert ask(embedded.url, "select n from t") == 2


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_killed_owner_and_a_killed_server_at_once_lose_nothing(data: Path) -> None:
    process, url, pid = owner(data)
    ask(url, "create table t (n int)", "insert into t values (3)")
    os.kill(pid, signal.SIGKILL)
    kill(process)
    with Embedded(data) as embedded:
        assert ask(embedded.url, "select n from t") == 3


def test_a_killed_server_is_started_again_by_its_owner(data: Path) -> None:
    with Embedded(data) as embedded:
        ask(embedded.url, "create table t (n int)", "insert into t values (4)")
        assert embedded.restart_if_dead() is False
        old = embedded.pid
        assert old is not None
        os.kill(old, signal.SIGKILL)
        until(lambda: not embedded.alive())
        assert embedded.restart_if_dead() is True
        assert embedded.alive()
        assert embedded.pid != old
        assert ask(embedded.url, "select n from t") == 4


def test_a_backend_that_works_on_after_its_server_was_killed_is_ended(data: Path) -> None:
    with Embedded(data) as embedded:
        backend = ask_forever(embedded.url)
        assert embedded.pid is not None
        os.kill(embedded.pid, signal.SIGKILL)
        until(lambda: not embedded.alive())
        assert embedded.restart_if_dead() is True
        assert gone(backend)
        assert ask(embedded.url, "select 1") == 1


def ask_forever(url: str) -> int:
    """Leave a backend that computes and never looks whether its server is there; its pid."""

    async def work() -> int:
        connection = await asyncpg.connect(url)
        pid: int = await connection.fetchval("select pg_backend_pid()")
        busy = asyncio.ensure_future(
            connection.execute("do $$ begin loop perform 1; end loop; end $$", timeout=600)
        )
        other = await asyncpg.connect(url)
        while not await other.fetchval(
            "select true from pg_stat_activity where pid = $1 and state = 'active'", pid
        ):
            await asyncio.sleep(0.005)
        await other.close()
        os.kill(pid, signal.SIGSTOP)  # so that cancelling below does not reach it
        busy.cancel()
        connection.terminate()
        os.kill(pid, signal.SIGCONT)
        return pid

    return asyncio.run(work())


@pytest.mark.parametrize("state", ["alive", "zombie"])
def test_a_pid_file_that_names_somebody_else_does_not_stop_a_start(data: Path, state: str) -> None:
    with Embedded(data) as embedded:
        pid_file = data / "postgres" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
        user = pid_file.stat().st_uid
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=user) as other:
        if state == "zombie":
            other.kill()
            until(lambda: gone(other.pid))
        pid_file.write_text("\n".join([str(other.pid), *lines[1:]]) + "\n")
        os.chown(pid_file, user, user)
        with Embedded(data) as embedded:
            assert ask(embedded.url, "select 1") == 1
        assert (other.poll() is None) == (state == "alive")
        other.kill()


def test_a_half_made_cluster_is_made_again(new_data: Path) -> None:
    data = new_data
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(data)], stdin=subprocess.PIPE)
    try:
        until(lambda: any(data.glob("postgres.new-*/PG_VERSION")))
    finally:
        process.kill()
        process.communicate()
    assert not (data / "postgres").exists()
    with Embedded(data) as embedded:
        assert ask(embedded.url, "select 1") == 1
        assert not list(data.glob("postgres.new-*"))
