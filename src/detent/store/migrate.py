"""Migrations: numbered SQL files, forward only, each applied once and in one transaction.

Any number of processes may start at once on an empty database. Each file is applied under an advisory
lock that lives as long as its transaction: the first one in does the work, the others wait for the lock
and then see that it is done. The record of what was applied is written in the same transaction, so a
migration that fails, or whose process is killed, leaves nothing behind, not even the record's table.

The record keeps a checksum. A file that was changed after it was applied, a schema that is newer than the
program, and a record with holes are refused: guessing there would damage what we promise to keep.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from detent import __version__
from detent.model.errors import SchemaMismatch, StartupError
from detent.store.session import Dedicated, connect, keep_trying, session
from detent.store.sql import Queries
from detent.store.unavailable import store_errors, trouble_in

FOLDER = Path(__file__).with_name("migrations")
_FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_ENDS_TRANSACTION = re.compile(
    r"^\s*(begin|commit|rollback|start\s+transaction)\s*;", re.IGNORECASE | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    checksum: str
    text: str

    def __str__(self) -> str:
        return f"{self.number:04}_{self.name}"


@dataclass(frozen=True, slots=True)
class Applied:
    number: int
    name: str
    checksum: str


def known(folder: Path | None = None) -> list[Migration]:
    """The migrations of this program, in order: numbered from 1 without a gap."""
    found: list[Migration] = []
    for file in sorted((folder or FOLDER).glob("*.sql")):
        match = _FILE_NAME.fullmatch(file.name)
        text = file.read_text(encoding="utf-8")  # universal newlines: a checkout may have changed them
        if match is None:
            raise StartupError(f"{file.name} is not the name of a migration: NNNN_name.sql")
        if int(match[1]) != len(found) + 1:
            raise StartupError(f"{file.name} is out of order: number {len(found) + 1} was expected")
        if _ENDS_TRANSACTION.search(text):
            raise StartupError(f"{file.name} ends its transaction: each migration is exactly one")
        found.append(Migration(int(match[1]), match[2], hashlib.sha256(text.encode()).hexdigest(), text))
    return found


async def migrate(
    url: str, folder: Path | None = None, *, wait_until: float | None = None
) -> list[Migration]:
    """Bring the schema up to date; return what this call applied."""
    migrations = known(folder)
    connection = await keep_trying(lambda: _connect(url), wait_until)
    applied: list[Migration] = []
    try:
        with store_errors():
            if compare(migrations, await _read(connection)):
                for migration in migrations:
                    if await _apply(connection, migrations, migration):
                        applied.append(migration)
    finally:
        await Dedicated(connection).close()
    return applied


async def check(url: str, folder: Path | None = None, *, wait_until: float | None = None) -> int:
    """Return the number of the schema if it is the one this program needs, or raise SchemaMismatch."""
    migrations = known(folder)
    connection = await keep_trying(lambda: _connect(url), wait_until)
    try:
        with store_errors():
            applied = await _read(connection)
    finally:
        await Dedicated(connection).close()
    if missing := compare(migrations, applied):
        has = f"has schema {len(applied)}" if applied else "has no schema yet"
        raise SchemaMismatch(
            f"the database {has}, this program needs {missing[-1].number}: run detent migrate"
        )
    return len(applied)


def compare(migrations: list[Migration], applied: list[Applied]) -> list[Migration]:
    """The migrations still to be applied, or SchemaMismatch if what was applied is not ours."""
    if applied and applied[-1].number > len(migrations):
        raise SchemaMismatch(
            f"the database has schema {applied[-1].number}, this program knows up to {len(migrations)}: "
            "upgrade detent"
        )
    for migration, record in zip(migrations, applied, strict=False):
        if record.number != migration.number:
            raise SchemaMismatch(
                f"the database lacks migration {migration}, but has {record.number} and later"
            )
        if record.checksum != migration.checksum:
            raise SchemaMismatch(
                f"migration {migration} was changed after it was applied to this database: "
                "run the detent that applied it, or restore that file"
            )
    return migrations[len(applied) :]


async def _connect(url: str) -> asyncpg.Connection[asyncpg.Record]:
    # A migration may take as long as it needs, and so may the wait for somebody else's.
    settings = session("detent migrate", statement_seconds=0, lock_seconds=0)
    return await connect(url, settings, command_seconds=None)


async def _read(connection: asyncpg.Connection[asyncpg.Record]) -> list[Applied]:
    queries = Queries.load()
    if not await connection.fetchval(queries.has_migrations):
        return []
    return [Applied(*row) for row in await connection.fetch(queries.list_migrations)]


async def _apply(
    connection: asyncpg.Connection[asyncpg.Record], migrations: list[Migration], migration: Migration
) -> bool:
    queries = Queries.load()
    # Read committed, whatever the server's default: after the wait we must see what the others did.
    async with connection.transaction(isolation="read_committed"):
        await connection.execute(queries.lock_migrations)
        if migration not in compare(migrations, await _read(connection)):
            return False
        if migration.number == 1:
            await connection.execute(queries.make_schema)
            await connection.execute(queries.make_migrations)
        try:
            await connection.execute(migration.text)
        except asyncpg.PostgresError as error:
            if trouble_in(error):
                raise
            raise StartupError(f"migration {migration} failed: {error}") from error
        await connection.execute(
            queries.record_migration, migration.number, migration.name, migration.checksum, __version__
        )
    return True
