"""Migrations: once each, in order, all or nothing, and refused when they are not ours."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from detent.model.errors import SchemaMismatch, StartupError, StoreUnavailable
from detent.store.migrate import check, known, migrate

FIRST = "create table detent.marks (n int);\ninsert into detent.marks values (1);\n"
# Slow enough that everybody who starts at once finds it under way; twice, it would fail.
SLOW_FIRST = FIRST + "select pg_sleep(0.3);\n"
SECOND = "insert into marks values (2);\n"
IN_A_PROCESS = """
import asyncio, sys
from pathlib import Path
from detent.store.migrate import migrate
sys.stdin.readline()
print(*asyncio.run(migrate(sys.argv[1], Path(sys.argv[2]))))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "0001_first.sql").write_text(FIRST)
    (tmp_path / "0002_second.sql").write_text(SECOND)
    return tmp_path


async def rows(url: str, query: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


async def test_each_file_is_applied_once_and_recorded(empty_database_url: str, folder: Path) -> None:
    with pytest.raises(SchemaMismatch, match="has no schema yet, this program needs 2: run detent migrate"):
        await check(empty_database_url, folder)
    applied = await migrate(empty_database_url, folder)
    assert [str(m) for m in applied] == ["0001_first", "0002_second"]
    assert await migrate(empty_database_url, folder) == []
    assert await check(empty_database_url, folder) == 2
    assert await rows(empty_database_url, "select n from detent.marks order by n") == [(1,), (2,)]
    record = await rows(
        empty_database_url,
        "select number, name, checksum, program_version <> '', applied_at <= now()"
        " from detent.migrations order by number",
    )
    assert record == [
        (1, "first", hashlib.sha256(FIRST.encode()).hexdigest(), True, True),
        (2, "second", hashlib.sha256(SECOND.encode()).hexdigest(), True, True),
    ]


async def test_a_later_file_is_applied_on_top(empty_database_url: str, folder: Path) -> None:
    later = folder / "0002_second.sql"
    text = later.read_text()
    later.unlink()
    assert len(await migrate(empty_database_url, folder)) == 1
    later.write_text(text)
    with pytest.raises(SchemaMismatch, match="has schema 1, this program needs 2: run detent migrate"):
        await check(empty_database_url, folder)
    assert [m.number for m in await migrate(empty_database_url, folder)] == [2]


async def test_of_many_that_start_at_once_exactly_one_applies_each(
    empty_database_url: str, folder: Path
) -> None:
    (folder / "0001_first.sql").write_text(SLOW_FIRST)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", IN_A_PROCESS, empty_database_url, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(5)
    ]
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        here = await asyncio.gather(*(migrate(empty_database_url, folder) for _ in range(20)))
        there = await asyncio.gather(*(asyncio.to_thread(p.communicate, timeout=60) for p in processes))
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * 5
    applied = [str(m) for some in here for m in some] + [name for out, _ in there for name in out.split()]
    assert sorted(applied) == ["0001_first", "0002_second"]
    assert await rows(empty_database_url, "select n from detent.marks order by n") == [(1,), (2,)]


@pytest.mark.long
def test_twenty_processes_that_start_at_once_agree(empty_database_url: str, folder: Path) -> None:
    (folder / "0001_first.sql").write_text(SLOW_FIRST)
    words = [sys.executable, "-c", IN_A_PROCESS, empty_database_url, str(folder)]
    processes = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(20)
    ]
    try:
        applied = [name for p in processes for name in p.communicate("go\n", timeout=100)[0].split()]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * 20
    assert sorted(applied) == ["0001_first", "0002_second"]


async def test_a_failing_migration_leaves_nothing_behind(empty_database_url: str, folder: Path) -> None:
    (folder / "0001_first.sql").write_text("create table detent.half (n int);\nselect 1 / 0;\n")
    with pytest.raises(StartupError, match="migration 0001_first failed: division by zero"):
        await migrate(empty_database_url, folder)
    assert await rows(empty_database_url, "select 1 from pg_namespace where nspname = 'detent'") == []


async def test_what_came_before_a_failing_migration_stays(empty_database_url: str, folder: Path) -> None:
    (folder / "0002_second.sql").write_text(
        "create table detent.half (n int);\ninsert into nowhere values (1);\n"
    )
    with pytest.raises(StartupError, match="migration 0002_second failed"):
        await migrate(empty_database_url, folder)
    assert await rows(empty_database_url, "select number from detent.migrations") == [(1,)]
    assert await rows(empty_database_url, "select to_regclass('detent.half')::text") == [(None,)]
    (folder / "0002_second.sql").write_text(SECOND)
    assert [m.number for m in await migrate(empty_database_url, folder)] == [2]


Call = Callable[[str, Path], object]


@pytest.mark.parametrize("call", [migrate, check])
async def test_a_changed_file_is_refused_by_name(empty_database_url: str, folder: Path, call: Call) -> None:
    await migrate(empty_database_url, folder)
    (folder / "0001_first.sql").write_text(FIRST + "-- a small correction\n")
    with pytest.raises(SchemaMismatch, match="migration 0001_first was changed after it was applied"):
        await call(empty_database_url, folder)  # type: ignore[misc]


async def test_other_line_ends_are_not_a_change(empty_database_url: str, folder: Path) -> None:
    await migrate(empty_database_url, folder)
    (folder / "0001_first.sql").write_bytes(FIRST.replace("\n", "\r\n").encode())
    assert await check(empty_database_url, folder) == 2


@pytest.mark.parametrize("call", [migrate, check])
async def test_a_newer_schema_is_refused_in_one_line(
    empty_database_url: str, folder: Path, call: Call
) -> None:
    await migrate(empty_database_url, folder)
    (folder / "0002_second.sql").unlink()
    with pytest.raises(SchemaMismatch) as refusal:
        await call(empty_database_url, folder)  # type: ignore[misc]
    assert str(refusal.value) == "the database has schema 2, this program knows up to 1: upgrade detent"


async def test_a_record_with_a_hole_is_refused(empty_database_url: str, folder: Path) -> None:
    await migrate(empty_database_url, folder)
    await rows(empty_database_url, "delete from detent.migrations where number = 1 returning 1")
    with pytest.raises(SchemaMismatch, match="lacks migration 0001_first"):
        await migrate(empty_database_url, folder)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("0004_gap.sql", "select 1;", "out of order: number 3"),
        ("0002_again.sql", "select 1;", "out of order: number"),
        ("third.sql", "select 1;", "not the name of a migration"),
        ("0003_open.sql", "select 1;\ncommit;\n", "ends its transaction"),
    ],
)
def test_a_wrong_folder_is_refused_before_anything_runs(
    folder: Path, name: str, text: str, complaint: str
) -> None:
    (folder / name).write_text(text)
    with pytest.raises(StartupError, match=complaint):
        known(folder)


async def test_an_unreachable_server_is_said_to_be_so(folder: Path) -> None:
    with pytest.raises(StoreUnavailable, match="nothing listens there"):
        await migrate("postgresql://detent@/detent?host=/nowhere", folder)


async def test_the_programs_own_migrations_are_all_applied(database_url: str) -> None:
    assert await check(database_url) == len(known()) > 0
