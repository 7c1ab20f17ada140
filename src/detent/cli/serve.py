"""`detent api | scheduler | worker | keeper`: one role in this process, until SIGINT or SIGTERM.

Below a supervisor (`detent up`) the role reports to it instead of to the terminal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import click

from detent.cli.exits import code_of, lines_of
from detent.cli.options import API, EVERY_ROLE, KEEPER, WORKER, settings
from detent.model.errors import DetentError, StartupError
from detent.runtime import logs
from detent.runtime.bond import Bond
from detent.runtime.config import Config, forget_secrets, load, supervision

Ready = Callable[[str], None]
Body = Callable[[Config, Ready], None]
Role = Callable[[Config, str, Ready], Awaitable[None]]

EXAMPLES = """\b
Examples:
  detent {role} --database postgresql://detent@db.example.org/detent
  detent {role} --data .detent       # beside a running `detent up`
{more}"""


MORE_WORKER = "  detent worker --import my.tasks --slots 50 --processes 4\n"


@click.command(epilog=EXAMPLES.format(role="api", more="  detent api --port 9000\n"))
@settings(*EVERY_ROLE, *API)
def api(**flags: Any) -> int:
    """Run the HTTP server alone."""
    return _run("api", flags)


@click.command(epilog=EXAMPLES.format(role="scheduler", more=""))
@settings(*EVERY_ROLE, "standby")
def scheduler(**flags: Any) -> int:
    """Run a scheduler alone: it fires what is due."""
    return _run("scheduler", flags)


@click.command(epilog=EXAMPLES.format(role="worker", more=MORE_WORKER))
@settings(*EVERY_ROLE, *WORKER)
def worker(**flags: Any) -> int:
    """Run a worker alone: it runs what was fired.

    On SIGTERM it takes no new work, and running work finishes or is handed back. With --processes it runs as
    several, one for each core as a rule, each with its own slots; one that dies is started again.
    """
    return _run("worker", flags)


@click.command(epilog=EXAMPLES.format(role="keeper", more=""))
@settings(*EVERY_ROLE, *KEEPER)
def keeper(**flags: Any) -> int:
    """Run a keeper alone: it rescues the work of lost workers and tends the history."""
    return _run("keeper", flags)


def database_of(config: Config) -> str:
    """The database to use: the one that was named, or the one that runs in the data folder."""
    from detent.store.embedded import find_running

    url = config.database or find_running(config.data)
    if url is None:
        raise StartupError(
            f"no database: nothing runs in {config.data}; start it with `detent up --data {config.data}`, "
            "or name another with --database"
        )
    return url


def run_reporting(name: str, flags: dict[str, Any], body: Body, closing_seconds: float = 0.0) -> int:
    """Run `body` as this process's purpose, and report to a supervisor if there is one.

    `closing_seconds` is what it needs after its grace when its supervisor is gone.
    """
    described = supervision()
    bond = Bond.from_text(described) if described else None
    try:
        config = load(flags).config
        if bond:
            bond.watch(config.grace + closing_seconds)
        logs.configure(config, bond.label if bond else name)
        body(config, bond.ready if bond else click.echo)
    except DetentError as error:
        if bond is None:
            raise
        bond.failed(" ".join(line.strip() for line in lines_of(error)), code_of(error))
        return code_of(error)
    return 0


def _run(name: str, flags: dict[str, Any]) -> int:
    return run_reporting(name, flags, lambda config, ready: _serve(name, config, ready))


def _serve(name: str, config: Config, ready: Ready) -> None:
    url = database_of(config)
    if name == "worker" and config.workers > 1:
        from detent.runtime.copies import run_copies

        asyncio.run(run_copies(config, url, ready))
        return
    if name == "worker":
        from detent.cli.imports import import_tasks

        forget_secrets()
        import_tasks(config.imports)
    import uvloop

    from detent.cli import roles

    role: Role = getattr(roles, f"run_{name}")

    async def serve() -> None:
        await role(config, url, ready)

    uvloop.run(serve())
