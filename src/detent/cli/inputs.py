"""What people type, as values: durations, payloads, programs after `--`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import click

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|w)")
_PROGRAM = "detent.program"


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | str | None:
    """`30s`, `5m`, `1h30m`, `1d`, a number of seconds, or ISO 8601 such as `PT30S`."""
    if value is None:
        return None
    text = value.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if re.fullmatch(rf"({_PART.pattern}\s*)+", text.lower()):
        return round(sum(float(n) * UNITS[unit] for n, unit in _PART.findall(text.lower())), 3)
    if re.fullmatch(r"[Pp].*\d.*", text):
        return text.upper()  # the server reads ISO 8601
    raise click.BadParameter(f"{value!r} is not a duration: write 30s, 5m, 2h, 1h30m, 1d or PT30S")


def payload(ctx: click.Context, param: click.Parameter, value: str | None) -> JsonText | None:
    """JSON text, `@file`, or `-` for standard input."""
    if value is None:
        return None
    where = "it"
    if value == "-":
        value, where = sys.stdin.read(), "standard input"
    elif value.startswith("@"):
        where = value[1:]
        try:
            value = Path(where).read_text(encoding="utf-8")
        except OSError as error:
            raise click.BadParameter(f"cannot read {where}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise click.BadParameter(f"{where} is not UTF-8 text") from None
    try:
        return JsonText(value)
    except ValueError as error:
        right = """write for example '{"to": "ops"}'"""
        raise click.BadParameter(f"{where} is not JSON ({error}): {right}") from None


class JsonText:
    """A parsed JSON document. Wrapped, because `null` is a payload and None means none was given."""

    def __init__(self, text: str) -> None:
        self.value = json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


class WithProgram(click.Command):
    """A command that takes a program and its arguments after `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_PROGRAM] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PROGRAM [ARGUMENT]...]"]


def program(ctx: click.Context) -> list[str] | None:
    """The words after `--`; None if there was no `--`."""
    words: list[str] | None = ctx.meta.get(_PROGRAM)
    if words == []:
        raise click.UsageError("a program must follow --, for example: -- echo hello", ctx)
    return words
