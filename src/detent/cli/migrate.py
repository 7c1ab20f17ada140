"""`detent migrate`: bring the schema up to date, or only look."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import click

from detent.cli.options import settings
from detent.model.errors import StartupError
from detent.runtime.config import Config, load, masked

PATIENCE = 5.0

EXAMPLES = """\b
Examples:
  detent migrate --database postgresql://detent@db.example.org/detent
  detent migrate --data .detent
  detent migrate --check             # exit code 0: up to date, 1: not
"""


@click.command(epilog=EXAMPLES)
@settings("data", "database")
@click.option("--check", "only_check", is_flag=True, help="Change nothing; say whether it is up to date.")
def migrate(only_check: bool, **flags: Any) -> None:
    """Bring the database's schema up to date. Any number of these may run at once.

    `detent up` does this by itself. Migrations only go forward; a schema that is newer than this program is
    refused.
    """
    config = load(flags).config
    with _database(config, only_check) as url:
        asyncio.run(_check(url) if only_check else _migrate(url))


@contextlib.contextmanager
def _database(config: Config, only_check: bool) -> Iterator[str]:
    """The database that was named, or that of the data folder: the running one, else started for now."""
    from detent.store.embedded import Embedded, find_running

    url = config.database or find_running(config.data)
    if url is not None:
        click.echo(f"database {masked(url)}")
        yield url
        return
    if only_check and not config.data.exists():
        raise StartupError(f"there is no data folder {config.data}: name one with --data, or use --database")
    click.echo(f"database in {config.data}")
    with Embedded(config.data) as embedded:
        yield embedded.url


async def _migrate(url: str) -> None:
    from detent.store.migrate import check, migrate

    applied = await migrate(url, wait_until=time.monotonic() + PATIENCE)
    for migration in applied:
        click.echo(f"applied {migration}")
    number = await check(url)
    click.echo(f"schema {number} is up to date" + ("" if applied else ": nothing to do"))


async def _check(url: str) -> None:
    from detent.store.migrate import check

    number = await check(url, wait_until=time.monotonic() + PATIENCE)
    click.echo(f"schema {number} is up to date")
