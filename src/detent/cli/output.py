"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

COLOURS = {
    "scheduled": "cyan",
    "running": "blue",
    "queued": "cyan",
    "held": "yellow",
    "retrying": "yellow",
    "paused": "yellow",
    "succeeded": "green",
    "completed": "green",
    "failed": "red",
    "timed_out": "red",
    "dead_lettered": "red",
    "cancelled": "dim",
    "skipped": "dim",
    "worker_lost": "red",
    "released": "dim",
}


def console() -> Console:
    from rich.console import Console

    # Text that comes from users is not markup, and ids must not break in two when piped.
    made = Console(markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made = Console(markup=False, highlight=False, emoji=False, width=1000)
    return made


def as_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> None:
    """A table whose `status` column is coloured; ids stay whole. Without rows it says `empty`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        made.add_column(column, no_wrap=column in ("id", "job id", "status", "when"), overflow="fold")
    coloured = [column in ("status", "outcome") for column in columns]
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007 - counted for the message below
        made.add_row(
            *(
                Text(cell, style=COLOURS.get(cell, "") if paint else "")
                for cell, paint in zip(row, coloured, strict=True)
            )
        )
    if count:
        console().print(made)
    else:
        click.echo(empty)


def details(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values, one to a line; later lines of a value line up with its first."""
    shown = [(name, value) for name, value in pairs if value != ""]
    width = max((len(name) for name, _ in shown), default=0) + 2
    for name, value in shown:
        first, *others = value.splitlines() or [""]
        click.echo(f"{name:<{width}}{first}")
        for line in others:
            click.echo(" " * width + line)
