"""Which Python functions a worker can run, by name.

How a handler wants to be called is decided once, when it is registered:

    def report(): ...                  nothing
    def report(payload): ...           the payload
    def report(payload, ctx): ...      the payload and the Context
    def report(ctx): ...               the Context: a parameter called `ctx` or annotated `Context` gets it
    def report(payload, *, ctx): ...   wherever it stands

The first parameter that is not the context gets the payload, and a second one without a default gets the
context whatever it is called. Parameters with defaults keep them. Anything else that is required is refused
when the function is registered, not when its first job is due.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from detent.execute.context import Context
from detent.model.errors import Conflict, InvalidInput

Handler = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class RegisteredTask:
    """A function, and how it is called."""

    name: str
    function: Handler
    is_async: bool
    takes_context: bool
    call: Callable[[Context], Any]  # calls the function with what it asked for


class Registry:
    """Tasks by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, RegisteredTask] = {}
        self.find = self._tasks.get  # for every attempt, so without a call of ours around it

    def register(self, name: str, function: Handler) -> RegisteredTask:
        """Add a function under a name. The same function again is fine; another one is not."""
        if not name or name != name.strip():
            raise InvalidInput.of("name", f"a task's name must not be empty or padded, got {name!r}")
        known = self._tasks.get(name)
        if known is not None and not _same(known.function, function):
            raise Conflict(
                "duplicate_task",
                f"task {name!r} is already registered for {_where(known.function)};"
                f" {_where(function)} needs another name",
            )
        registered = _describe(name, function)
        self._tasks[name] = registered
        return registered

    def get(self, name: str) -> RegisteredTask | None:
        return self._tasks.get(name)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[RegisteredTask]:
        return iter(list(self._tasks.values()))


default_registry = Registry()
"""Where the `task` decorator puts functions, and where a worker looks unless it is given another one."""


def _describe(name: str, function: Handler) -> RegisteredTask:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput.of("task", f"{_where(function)} is a generator; a task must return its result")
    payload, context = _parameters(name, function)
    return RegisteredTask(
        name=name,
        function=function,
        is_async=_is_async(function),
        takes_context=context is not None,
        call=_caller(function, payload, context),
    )


def _is_async(function: Handler) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004 - an object whose call is a coroutine counts
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _parameters(name: str, function: Handler) -> tuple[inspect.Parameter | None, inspect.Parameter | None]:
    """The parameters that get the payload and the context."""
    payload: inspect.Parameter | None = None
    context: inspect.Parameter | None = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        required = parameter.default is parameter.empty
        if context is None and _wants_context(parameter):
            context = parameter
        elif payload is None and parameter.kind is not parameter.KEYWORD_ONLY:
            payload = parameter
        elif required and context is None and parameter.kind is not parameter.KEYWORD_ONLY:
            context = parameter
        elif required:
            raise InvalidInput.of(
                "task",
                f"task {name!r}: {_where(function)} requires {parameter.name!r};"
                " a task takes (), (payload), (ctx) or (payload, ctx)",
            )
    return payload, context


def _wants_context(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    if isinstance(annotation, str):  # from __future__ import annotations
        annotated = annotation.strip("\"'").rsplit(".", 1)[-1] == "Context"
    else:
        annotated = annotation is Context
    return annotated or parameter.name == "ctx"


def _caller(
    function: Handler, payload: inspect.Parameter | None, context: inspect.Parameter | None
) -> Callable[[Context], Any]:
    """The usual shapes each get a call of their own: this runs once for every attempt."""
    if payload is None and context is None:
        return lambda ctx: function()
    if context is None:
        return lambda ctx: function(ctx.payload)
    if context.kind is context.KEYWORD_ONLY:
        named = context.name
        if payload is None:
            return lambda ctx: function(**{named: ctx})
        return lambda ctx: function(ctx.payload, **{named: ctx})
    if payload is None:
        return lambda ctx: function(ctx)
    return _both(function, payload, context)


def _both(
    function: Handler, payload: inspect.Parameter, context: inspect.Parameter
) -> Callable[[Context], Any]:
    """Both by position, in the order in which the function lists them, when nothing stands between."""
    order = list(inspect.signature(function).parameters)
    if order[:2] == [payload.name, context.name]:
        return lambda ctx: function(ctx.payload, ctx)
    if order[:2] == [context.name, payload.name]:
        return lambda ctx: function(ctx, ctx.payload)
    named = context.name
    return lambda ctx: function(ctx.payload, **{named: ctx})


def _same(one: Handler, other: Handler) -> bool:
    """Whether both are the same function, also when its module was imported twice under two names."""
    if one is other:
        return True
    first, second = getattr(one, "__code__", None), getattr(other, "__code__", None)
    if first is None or second is None or "<locals>" in getattr(one, "__qualname__", "<locals>"):
        return False
    return (first.co_filename, first.co_firstlineno) == (second.co_filename, second.co_firstlineno)


def _where(function: Handler) -> str:
    module = getattr(function, "__module__", None) or "?"
    return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"
