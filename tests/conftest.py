"""One PostgreSQL for the whole run, and a fresh, migrated database for every test that asks."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TypeVar

import asyncpg
import pytest
from hypothesis import settings

from detent.store.database import Database
from detent.store.embedded import Embedded, discard, temporary_folder
from detent.store.migrate import migrate

# Samples are seeded: a run that was green is green again.
settings.register_profile("seeded", derandomize=True, deadline=None)
settings.load_profile("seeded")

T = TypeVar("T")

TEMPLATE = "detent_template"
# No database of the shared server outlives the run, and kill -9 of a process loses nothing that the system has: waiting for
# the disk proves nothing here, and takes two thirds of the work of making a database. Tests of what survives start servers
# of their own, as users have them.
WITHOUT_THE_DISK = ("alter system set fsync = off", "select pg_reload_conf()")
_numbers = count(1)


@pytest.fixture
def need() -> Callable[[str], str]:
    """`need("podman")` gives the program's path, or skips the test and says why; in CI that is a failure."""

    def find(tool: str) -> str:
        path = shutil.which(tool)
        if path is None:
            missing(f"{tool} is not installed")
        assert path is not None
        return path

    return find


def missing(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, and CI skips nothing")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def server() -> Iterator[Embedded]:
    """The one PostgreSQL of this run."""
    folder = temporary_folder("detent-test-")
    embedded = Embedded(folder)
    try:
        embedded.start()
        _apart(lambda: _administer(embedded, *WITHOUT_THE_DISK))
        yield embedded
    finally:
        embedded.stop()
        discard(folder)


@pytest.fixture(scope="session")
def template(server: Embedded) -> str:
    """A database with the real schema, which the others are copied from."""
    _apart(lambda: _administer(server, f"create database {TEMPLATE}"))
    _apart(lambda: migrate(url_of(server, TEMPLATE)))
    return TEMPLATE


@pytest.fixture
def empty_database_url(server: Embedded) -> Iterator[str]:
    """A database with nothing in it."""
    yield from _database(server, "template1")


@pytest.fixture
def database_url(server: Embedded, template: str) -> Iterator[str]:
    """A database with the schema and nothing else."""
    yield from _database(server, template)


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    """An open Database on a fresh database."""
    database = await Database.open(database_url, size=4, application_name="detent test")
    yield database
    await database.close()


@pytest.fixture(scope="session")
def seed() -> Iterator[Path]:
    """A data folder that was used and stopped, to be copied: making one takes most of a second."""
    folder = temporary_folder("detent-test-")
    with Embedded(folder):
        pass
    yield folder
    discard(folder)


@pytest.fixture
def new_data() -> Iterator[Path]:
    """An empty data folder."""
    folder = temporary_folder("detent-test-")
    yield folder
    discard(folder)


@pytest.fixture
def seeded(seed: Path) -> Callable[[Path], Path]:
    """Copy a used data folder into this one, with owners and modes."""

    def fill(folder: Path) -> Path:
        subprocess.run(["cp", "-a", f"{seed}/.", folder], check=True)
        return folder

    return fill


@pytest.fixture
def data(new_data: Path, seeded: Callable[[Path], Path]) -> Path:
    """A data folder with a cluster in it, stopped."""
    return seeded(new_data)


def url_of(server: Embedded, name: str) -> str:
    return server.url.replace("/detent?", f"/{name}?")


def _database(server: Embedded, template: str) -> Iterator[str]:
    name = f"detent_test_{next(_numbers)}"
    _apart(lambda: _administer(server, f"create database {name} template {template}"))
    try:
        yield url_of(server, name)
    finally:
        if server.alive():
            _apart(lambda: _administer(server, f"drop database {name} with (force)"))


async def _administer(server: Embedded, *statements: str) -> None:
    connection = await asyncpg.connect(url_of(server, "postgres"))
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def _apart(work: Callable[[], Awaitable[T]]) -> T:
    """Run async work to its end on a loop and thread of its own, so that any test can use the result."""

    async def main() -> T:
        return await work()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, main()).result()
