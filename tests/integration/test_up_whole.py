"""`detent up` from outside: start, use, kill, stop, and nothing left behind."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from systems import Up, detent, gone, until

from detent.store.embedded import discard, temporary_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture
def data() -> Iterator[Path]:
    folder = temporary_folder("detent-up-")
    yield folder
    until(lambda: _discarded(folder), 30, "the end of everything in the data folder")


def _discarded(folder: Path) -> bool:
    try:
        discard(folder)
    except Exception:
        return False
    return True


@pytest.fixture
def ups(data: Path) -> Iterator[list[Up]]:
    """What a test starts is put here, and ended whatever happens."""
    started: list[Up] = []
    yield started
    for up in started:
        up.end(signal.SIGINT)


def start(ups: list[Up], data: Path, *words: str, cwd: Path | None = None) -> Up:
    ups.append(Up(data, words, cwd))
    return ups[-1]


def test_from_start_to_output_to_a_clean_stop(ups: list[Up], data: Path, tmp_path: Path) -> None:
    (tmp_path / "my_tasks.py").write_text(
        "from detent import task\n\n"
        "@task('double')\n"
        "def double(payload):\n    print('doubling', payload)\n    return payload * 2\n"
    )
    up = start(ups, data, "--import", "my_tasks", "--workers", "2", cwd=tmp_path).ready()
    assert "everything is up" in up.out[0]
    family = up.family()
    for role in ("api", "scheduler", "keeper"):
        assert up.child(role)
    assert sum(words.endswith("-m detent worker") for words in family.values()) == 2

    created = up.detent("job", "create", "hello", "--shell", "echo hello; echo oops >&2", "--every", "1s")
    assert created.returncode == 0, created.stderr
    assert "every 1 s" in created.stdout
    listed = until(lambda: up.json("execution", "list", "--job", "hello", "--status", "succeeded"), 20)
    # Its latest execution may have started just now.
    until(lambda: "hello\n" in up.detent("execution", "logs", "--job", "hello").stdout, 20)
    assert "oops\n" in up.detent("execution", "logs", listed[-1]["execution_id"]).stdout

    ran = up.detent("job", "create", "double", "--payload", "21", "--delay", "0", "--json")
    assert ran.returncode == 0, ran.stderr
    done = until(lambda: up.json("execution", "list", "--job", "double", "--status", "succeeded"))
    assert up.json("execution", "show", done[0]["execution_id"])["result"] == 42

    family = up.family()
    assert up.end(signal.SIGTERM) == 0
    assert gone(family)
    assert not [line for line in up.err if "Traceback" in line or "does not stop" in line], up.err


def test_ctrl_c_is_a_clean_stop_too_and_a_second_start_finds_the_jobs(ups: list[Up], data: Path) -> None:
    up = start(ups, data).ready()
    assert up.detent("job", "create", "kept", "--shell", "true", "--cron", "0 0 1 1 *").returncode == 0
    family = up.family()
    assert up.end(signal.SIGINT) == 0
    until(lambda: gone(family), 10, "the end of every process")
    again = start(ups, data).ready()
    assert [job["name"] for job in again.json("job", "list")] == ["kept"]


def test_a_data_folder_in_use_is_refused(ups: list[Up], data: Path) -> None:
    up = start(ups, data).ready()
    second = detent("up", "--data", str(data), "--port", "0")
    assert second.returncode == 1
    assert "is in use" in second.stderr
    assert second.stderr.startswith("Error: ")
    same_port = detent("up", "--data", str(data), "--port", up.url.rpartition(":")[2])
    assert same_port.returncode == 1
    assert "the data folder" in same_port.stderr
    assert up.process.poll() is None


def test_a_taken_port_is_refused_before_anything_starts(data: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = detent("up", "--data", str(data / "fresh"), "--port", str(port))
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (data / "fresh").exists()


def test_a_module_that_cannot_be_imported_stops_the_start(ups: list[Up], data: Path, tmp_path: Path) -> None:
    up = start(ups, data, "--import", "no.such_tasks", cwd=tmp_path)
    until(up.family, 20)
    family = up.family()
    assert up.process.wait(40) == 1
    up.end()
    assert up.out == []
    assert up.err[-1].startswith("Error: worker: cannot import no.such_tasks: no such module")
    assert gone(family)


def test_a_database_that_is_not_there_is_told_with_3(data: Path) -> None:
    nowhere = "postgresql://u:secret@127.0.0.1:1/none"
    done = detent("up", "--data", str(data), "--port", "0", "--database", nowhere)
    assert done.returncode == 3
    assert done.stderr.startswith("Error: ")
    assert "secret" not in done.stderr


@pytest.mark.parametrize("role", ["api", "scheduler", "keeper", "worker"])
def test_a_killed_role_is_started_again_and_work_goes_on(ups: list[Up], data: Path, role: str) -> None:
    up = start(ups, data, "--heartbeat", "0.5", "--lease", "2").ready()
    before = up.child(role)
    os.kill(before, signal.SIGKILL)
    until(lambda: any(f"{role} was ended by SIGKILL; starting it again" in line for line in up.err))
    until(lambda: any(f"{role} is running again" in line for line in up.err))
    assert up.child(role) != before
    done = up.detent("job", "create", "after", "--shell", "echo still here", "--delay", "0")
    assert done.returncode == 0, done.stderr
    until(lambda: up.json("execution", "list", "--job", "after", "--status", "succeeded"), 30)


def test_a_killed_postgresql_is_started_again_and_work_goes_on(ups: list[Up], data: Path) -> None:
    up = start(ups, data).ready()
    (postmaster,) = [pid for pid, words in up.family().items() if "/bin/postgres " in f"{words} "]
    os.kill(postmaster, signal.SIGKILL)
    until(lambda: any("PostgreSQL is running again" in line for line in up.err), 30)
    until(lambda: up.detent("job", "create", "after", "--shell", "true", "--delay", "0").returncode == 0, 30)
    until(lambda: up.json("execution", "list", "--job", "after", "--status", "succeeded"), 30)


def test_nothing_outlives_a_supervisor_that_was_killed(ups: list[Up], data: Path) -> None:
    up = start(ups, data, "--grace", "1").ready()
    assert up.detent("job", "create", "long", "--shell", "sleep 600", "--delay", "0").returncode == 0
    until(lambda: up.json("execution", "list", "--job", "long", "--status", "running"))
    family = up.family()
    up.end(signal.SIGKILL)
    until(lambda: gone(family), 30, "the end of all children")
    again = start(ups, data).ready()
    assert [job["name"] for job in again.json("job", "list")] == ["long"]


def test_a_second_signal_hurries(ups: list[Up], data: Path) -> None:
    up = start(ups, data, "--grace", "600").ready()
    assert up.detent("job", "create", "long", "--shell", "sleep 600", "--delay", "0").returncode == 0
    until(lambda: up.json("execution", "list", "--job", "long", "--status", "running"))
    family = up.family()
    up.process.send_signal(signal.SIGINT)
    until(lambda: len(up.family()) < len(family), 30, "the first child to leave")
    assert up.end(signal.SIGINT) == 0
    until(lambda: gone(family), 30, "the end of all children")
