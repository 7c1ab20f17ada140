"""Imports the modules that hold a user's tasks."""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from detent.model.errors import DetentError, StartupError

log = logging.getLogger("detent.roles")


def import_tasks(modules: Sequence[str]) -> None:
    """Import each module, from the current folder too; StartupError says which cannot be, and why."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    problems = [problem for module in modules if (problem := _import(module))]
    if problems:
        raise StartupError("; ".join(problems))
    _warn_of_nothing(modules)


def _warn_of_nothing(modules: Sequence[str]) -> None:
    """A module without tasks is most likely the wrong one, or its functions lack the decorator."""
    if not modules:
        return
    from detent.execute.registry import default_registry

    if not len(default_registry):
        log.warning("%s: no task is registered there; a task is a function with @task", ", ".join(modules))


def _import(module: str) -> str | None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            return f"cannot import {module}: no such module, in {Path.cwd()} or installed"
        return f"cannot import {module}: {error}{_where(error)}"
    except DetentError as error:  # a task that cannot be registered
        return f"cannot import {module}: {error}{_where(error)}"
    except SystemExit as error:  # a script, and not a module of tasks
        return f"cannot import {module}: it ends the program (exit code {error.code}){_where(error)}"
    except SyntaxError as error:
        return f"cannot import {module}: SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
    except Exception as error:  # noqa: BLE001 - a module may raise anything while it is imported
        return f"cannot import {module}: {type(error).__name__}: {error}{_where(error)}"
    return None


def _where(error: BaseException) -> str:
    """The user's line that raised: the last frame that is neither Python's import machinery nor ours."""
    ours = str(Path(__file__).parent.parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(("<frozen", ours)) and "/importlib/" not in frame.filename:
            return f" ({frame.filename}, line {frame.lineno})"
    return ""
