"""One attempt, from what was claimed to how it ended: look up, run, judge.

Whatever a task does ends here: this is the border that keeps one bad attempt from harming its worker. It
returns an ending and never raises what user code raised, SystemExit and KeyboardInterrupt included.

A worker interrupts an attempt by cancelling its lane, having noted why in the context. That note, not the
exception that comes out, decides: a handler may turn the cancellation into anything else, or swallow it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from detent.execute.context import Context, Interruption
from detent.execute.ending import (
    CANCELLED,
    LOST,
    RELEASED,
    Ending,
    clean,
    failed,
    raised,
    returned,
    timed_out,
)
from detent.execute.python import call_in_thread
from detent.execute.registry import RegisteredTask
from detent.execute.shell import ShellExecutor
from detent.execute.threads import Threads
from detent.model.execution import ErrorInfo
from detent.model.job import PythonTask
from detent.model.work import UNKNOWN_TASK, Claim


@dataclass(frozen=True, slots=True)
class Executors:
    """Everything that runs tasks."""

    find: Callable[[str], RegisteredTask | None]
    threads: Threads
    shell: ShellExecutor


async def perform(claim: Claim, context: Context, executors: Executors) -> Ending:
    """Run an attempt to its end."""
    task = claim.spec.task
    try:
        if isinstance(task, PythonTask):
            registered = executors.find(task.name)
            if registered is None:
                return unknown_task(task.name)
            if registered.is_async:
                ending = returned(await registered.call(context))
            else:
                ending = returned(await call_in_thread(registered, context, executors.threads))
        else:
            ending = await executors.shell.run(task, claim, context.writer())
    except GeneratorExit:  # the loop is being torn down around us; not the task's doing
        raise
    except BaseException as error:  # noqa: BLE001 - the border of an attempt
        ending = _raised(error)
    if context.interruption is not None:
        return interrupted(context.interruption, claim, ending)
    return ending


def interrupted(why: Interruption, claim: Claim, ending: Ending | None) -> Ending:
    """How an attempt ended that its worker stopped; `ending` is what it had to say, if anything."""
    if why is Interruption.TIMEOUT:
        return timed_out(claim.spec.timeout_seconds, claim.deadline_at)
    if why is Interruption.CANCELLED:
        return CANCELLED
    if why is Interruption.LOST:
        return LOST
    # Asked to hurry because the worker stops, and it managed: that work is done.
    return ending if ending is not None and ending.outcome == "succeeded" else RELEASED


def unknown_task(name: str) -> Ending:
    message = (
        f"this worker knows no task {name!r}; start a worker with --import and the module that registers it"
    )
    return Ending("released", None, ErrorInfo(UNKNOWN_TASK, clean(message)))


def _raised(error: BaseException) -> Ending:
    if isinstance(error, asyncio.CancelledError):
        return failed("CancelledError", "the task was cancelled from within, not by the worker")
    return raised(error)
