"""How users name the functions that jobs run.

    from detent.sdk.task import Context, NonRetryable, task

    @task("billing.invoice")
    async def invoice(payload, ctx: Context):
        ...

    @task
    def cleanup():
        ...

An `async def` runs on the worker's event loop, a `def` in a thread. The function itself stays as it is and
can be called and tested like any other. What it returns is the execution's result: JSON of up to 64 KiB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from detent.execute.context import Context
from detent.execute.ending import NonRetryable
from detent.execute.registry import Registry, default_registry
from detent.model.errors import InvalidInput

__all__ = ["Context", "NonRetryable", "task"]

F = TypeVar("F", bound=Callable[..., Any])


@overload
def task(name: F, /) -> F: ...
@overload
def task(name: str | None = None, /, *, registry: Registry = ...) -> Callable[[F], F]: ...


def task(name: F | str | None = None, /, *, registry: Registry = default_registry) -> F | Callable[[F], F]:
    """Register a function as a task, under `name` or under the function's own name."""
    if callable(name):
        registry.register(_name_of(name), name)
        return name

    def decorate(function: F) -> F:
        registry.register(name or _name_of(function), function)
        return function

    return decorate


def _name_of(function: Callable[..., Any]) -> str:
    own = getattr(function, "__name__", None)
    if not isinstance(own, str) or own == "<lambda>":
        raise InvalidInput.of("name", f"{function!r} has no name of its own; write @task('a.name')")
    return own
