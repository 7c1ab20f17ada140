"""The `detent` command.

Its parts are imported when they are asked for: `detent when` must not pay for a web server. Nothing that a
user can cause ends in a traceback.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

from detent import __version__
from detent.cli.exits import MEANINGS, Exit, say, tell
from detent.model.errors import DetentError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

# name: where its command is, and what it does in a line
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("detent.cli.up:up", "Run everything on this machine."),
    "demo": ("detent.cli.demo:demo", "Watch a few jobs run, for half a minute at most."),
    "job": ("detent.cli.job:job", "Create, list, show, pause, resume, cancel and run jobs."),
    "execution": ("detent.cli.execution:execution", "List and show executions, read their logs, cancel."),
    "dead-letter": ("detent.cli.dead_letter:dead_letter", "List, show, replay and discard dead letters."),
    "fleet": ("detent.cli.fleet:fleet", "Show scheduler nodes, shards and workers."),
    "when": ("detent.cli.when:when", "Explain a schedule: when would it run?"),
    "api": ("detent.cli.serve:api", "Run the HTTP server alone."),
    "scheduler": ("detent.cli.serve:scheduler", "Run a scheduler alone."),
    "worker": ("detent.cli.serve:worker", "Run a worker alone."),
    "keeper": ("detent.cli.serve:keeper", "Run a keeper alone."),
    "migrate": ("detent.cli.migrate:migrate", "Bring the database's schema up to date."),
    "config": ("detent.cli.config:config", "Show the effective settings and where each comes from."),
    "version": ("detent.cli.version:version", "Show the version."),
}

EPILOG = """\b
Start:
  detent up
  detent job create hello --shell 'echo hello' --cron '* * * * *'
  detent execution logs --job hello

\b
Exit codes:
""" + "\n".join(f"  {code.value:<4} {meaning}" for code, meaning in MEANINGS)


class Commands(click.Group):
    """Knows its commands by name, and imports the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=Commands, context_settings=CONTEXT, epilog=EPILOG)
@click.version_option(__version__, "-V", "--version", message="detent %(version)s")
def root() -> None:
    """Detent fires every job at its instant, once, and can say why.

    Commands about jobs and executions talk to a running server (--url or DETENT_URL). Each has -h with
    examples, and --json where it shows something.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    try:
        answer = root.main(arguments, prog_name="detent", standalone_mode=False)
        sys.stdout.flush()
        return answer if isinstance(answer, int) else Exit.OK
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.message, err=True)
        return Exit.USAGE
    except click.UsageError as error:
        return _usage(error)
    except click.ClickException as error:
        say(error.format_message())
        return Exit.USAGE
    except DetentError as error:
        return tell(error)
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python's own last flush must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK


def _usage(error: click.UsageError) -> Exit:
    say(error.format_message())
    if error.ctx is not None:
        click.echo(f"See: {error.ctx.command_path} -h", err=True)
    return Exit.USAGE
