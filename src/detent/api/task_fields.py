"""What to run: a name, or a description by kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from detent.api import values
from detent.api.refusals import Refusals
from detent.api.vocabulary import refuse_unknown
from detent.model.errors import InvalidInput
from detent.model.job import PythonTask, ShellTask, Task

T = TypeVar("T")

LATER_KINDS = ("http", "container")
LONGEST_COMMAND = 100_000  # Linux takes 128 KiB in one argument
MOST_ARGUMENTS = 1_000
MOST_VARIABLES = 100
LONGEST_PATH = 4_096


def read_task(field: str, value: Any, refusals: Refusals) -> Task | None:
    """The task, or None after noting why not."""
    if isinstance(value, str):
        return _taken(lambda: PythonTask(values.text(field, value)), refusals)
    if not isinstance(value, dict):
        refusals.add(
            field,
            "must be the name of a Python task, or an object such as {'kind': 'shell', 'command': 'echo hi'}",
            "wrong_type",
        )
        return None
    kind = value.get("kind")
    if kind == "python":
        refuse_unknown(value, ("kind", "name"), refusals, f"{field}.")
        if value.get("name") is None:
            refusals.add(f"{field}.name", "is needed: the name of a registered task", "required")
            return None
        return _taken(lambda: PythonTask(values.text(f"{field}.name", value["name"])), refusals)
    if kind == "shell":
        refuse_unknown(value, ("kind", "command", "env", "cwd"), refusals, f"{field}.")
        return _shell(field, value, refusals)
    if kind in LATER_KINDS:
        refusals.add(f"{field}.kind", f"tasks of the kind {kind!r} are not available yet", "not_available")
    else:
        refusals.add(
            f"{field}.kind", "must be one of python, shell", "required" if kind is None else "invalid"
        )
    return None


def _taken(read: Callable[[], T], refusals: Refusals) -> T | None:
    try:
        return read()
    except InvalidInput as refusal:
        refusals.take(refusal)
        return None


def _shell(field: str, value: dict[str, Any], refusals: Refusals) -> ShellTask | None:
    command = _taken(lambda: _command(f"{field}.command", value.get("command")), refusals)
    env = _taken(lambda: _env(f"{field}.env", value.get("env")), refusals)
    cwd = value.get("cwd")
    if cwd is not None:
        cwd = _taken(lambda: values.text(f"{field}.cwd", cwd, LONGEST_PATH), refusals)
    return None if command is None or env is None else ShellTask(command, env, cwd)


def _command(field: str, value: Any) -> str | tuple[str, ...]:
    if isinstance(value, str):
        if not value.strip():
            raise values.refuse(field, "must not be empty", "too_short")
        return values.text(field, value, LONGEST_COMMAND, one_line=False)
    if not isinstance(value, list):
        code = "required" if value is None else "wrong_type"
        raise values.refuse(field, "must be a shell command, or a program and its arguments as a list", code)
    if not 1 <= len(value) <= MOST_ARGUMENTS:
        raise values.refuse(field, f"must have 1 to {MOST_ARGUMENTS:,} parts", "out_of_range")
    values.text(f"{field}[0]", value[0], LONGEST_PATH, one_line=False)
    return tuple(_plain(f"{field}[{i}]", part) for i, part in enumerate(value))


def _env(field: str, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise values.refuse(field, "must be an object of strings", "wrong_type")
    if len(value) > MOST_VARIABLES:
        raise values.refuse(
            field, f"has {len(value)} variables, at most {MOST_VARIABLES} are allowed", "too_many"
        )
    for name, setting in value.items():
        if not name or "=" in name or "\0" in name or len(name) > values.LONGEST_NAME:
            raise values.refuse(field, f"{name[:64]!r} cannot be the name of a variable")
        _plain(f"{field}.{name}", setting)
    return value


def _plain(field: str, value: Any) -> str:
    """A string that a program can be given; it may be empty."""
    return value if value == "" else values.text(field, value, LONGEST_COMMAND, one_line=False)
