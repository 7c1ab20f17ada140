"""How a command ends: its exit code, and what it says on standard error when it did not do what was asked.

Expected errors are one line, and one more for each wrong field. A traceback is for what nobody expected.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import click

from detent.cli.own import hint
from detent.model.errors import DetentError, FieldError, InvalidInput, NotFound, StartupError
from detent.runtime.config import wants_colour


class Exit(enum.IntEnum):
    OK = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    INTERRUPTED = 130


MEANINGS = (
    (Exit.OK, "it worked"),
    (Exit.REFUSED, "the system refused or failed"),
    (Exit.USAGE, "wrong usage or invalid input"),
    (Exit.UNREACHABLE, "cannot reach the server or the database"),
    (Exit.NOT_FOUND, "no such job, execution or dead letter"),
    (Exit.INTERRUPTED, "interrupted"),
)


class Absent(NotFound):
    """Nothing goes by this name or id."""


class Ambiguous(InvalidInput):
    """Several things go by this name."""

    def __init__(self, message: str, candidates: Sequence[str]) -> None:
        super().__init__(FieldError("", "ambiguous", message))
        self.candidates = tuple(candidates)


def code_of(error: DetentError) -> Exit:
    from detent.model.errors import StoreUnavailable
    from detent.sdk import failures

    if isinstance(error, failures.CannotConnect | StoreUnavailable):
        return Exit.UNREACHABLE
    if isinstance(error, NotFound | failures.NotFound):
        return Exit.NOT_FOUND
    if isinstance(error, InvalidInput | failures.InvalidRequest):
        return Exit.USAGE
    if isinstance(error, StartupError) and field_errors(error):
        return Exit.USAGE
    return Exit.REFUSED


def field_errors(error: DetentError) -> Sequence[FieldError]:
    errors = getattr(error, "errors", ())
    return errors if isinstance(errors, tuple) else ()


def lines_of(error: DetentError) -> list[str]:
    """The error in words: one line, then one for each field unless the first says it all."""
    errors = field_errors(error)
    if isinstance(error, Ambiguous):
        return [_field(errors[0]), *(f"  {candidate}" for candidate in error.candidates)]
    if len(errors) == 1:
        return [_field(errors[0])]
    if errors:
        return [f"{len(errors)} things are wrong:", *(f"  {_field(one)}" for one in errors)]
    return [str(error)]


def tell(error: DetentError) -> Exit:
    from detent.sdk.failures import CannotConnect

    say(*lines_of(error))
    if isinstance(error, CannotConnect):
        start = hint("up")
        click.echo(f"Is it running? Start it with: {start}   (or name another address with --url)", err=True)
    return code_of(error)


def say(*lines: str) -> None:
    """An error on standard error: the first line in red."""
    first, *others = lines
    click.secho(f"Error: {first}", fg="red" if wants_colour() else None, err=True)
    for line in others:
        click.echo(line, err=True)


def _field(error: FieldError) -> str:
    return f"{error.field}: {error.message}" if error.field else error.message
