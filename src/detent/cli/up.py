"""`detent up`: everything on this machine, with one command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from detent import __version__
from detent.cli.options import API, EVERY_ROLE, WORKER, settings
from detent.cli.own import hint
from detent.cli.serve import run_reporting
from detent.runtime.config import Config, masked

CLOSING_SECONDS = 60.0

EXAMPLES = """\b
Examples:
  detent up
  detent up --data /srv/detent --port 9000 --import my.tasks --processes 2 --slots 50
  detent up --database postgresql://detent@db.example.org/detent
"""


@click.command(epilog=EXAMPLES)
@settings(*EVERY_ROLE, *API, *WORKER, "schedulers", "retention_days", "allow_private_callbacks")
def up(**flags: Any) -> int:
    """Run everything on this machine: database, server, scheduler, keeper and workers.

    The database is a PostgreSQL of its own in --data, unless --database names another. A process that dies
    is started again. Ctrl-C (or SIGTERM) stops all of it in order; a second one in a hurry.
    """
    return run_reporting("up", flags, _supervise, CLOSING_SECONDS)


def _supervise(config: Config, ready: Callable[[str], None]) -> None:
    from detent.runtime.supervisor import Supervisor, Up

    def announce(up: Up) -> None:
        ready(banner(up.config, up.seconds))

    async def supervise() -> None:
        await Supervisor(config, announce).run()

    asyncio.run(supervise())


def banner(config: Config, seconds: float) -> str:
    elsewhere = None if config.address == Config().address else config.address
    first_job = hint("job create hello --shell 'echo hello' --cron '* * * * *'", elsewhere)
    data = (
        f"data       {_short(config.data)}"
        if config.database is None
        else f"database   {masked(config.database)}"
    )
    return f"""detent {__version__} · everything is up ({seconds:.1f} s)
  dashboard  {config.address}/
  api        {config.address}/api/v1
  {data}
  first job  {first_job}
  stop with Ctrl-C"""


def _short(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
