"""Runs shell commands and programs.

A command that is one string goes through `/bin/sh -c`; a list is a program and its arguments, with no shell
in between. It finds the payload as JSON on its standard input, and about itself in the environment:

    DETENT_EXECUTION_ID, DETENT_JOB_ID, DETENT_ATTEMPT, DETENT_TOKEN, DETENT_SCHEDULED_FOR
    DETENT_PAYLOAD        the payload too, when it has at most 32 KiB

Of the worker's own environment only what programs need to find their way is passed on: a worker's database
password must not end up in every job. Exit code 0 is success.

Service managers ask all processes of a worker to stop at once, programs included. One that SIGTERM ended
while its worker was asked to stop as well did not fail: it is handed back.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC
from pathlib import Path
from typing import BinaryIO

from detent.execute.ending import RELEASED, Ending, failed
from detent.execute.guard import Guard
from detent.execute.output import Output
from detent.execute.process import Program
from detent.model.job import ShellTask
from detent.model.work import Claim

PAYLOAD_IN_ENVIRONMENT = 32 * 1024
HEARD_WITHIN = 0.2

_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR")
_SUCCEEDED = Ending("succeeded", '{"exit_code":0}')


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of a worker's environment that its programs get."""
    kept = {name: environ[name] for name in _INHERITED if name in environ}
    kept.update((name, value) for name, value in environ.items() if name.startswith("LC_"))
    kept.setdefault("PATH", os.defpath)
    return kept


class ShellExecutor:
    """Runs programs, and sees to it that none outlives its attempt or the worker."""

    def __init__(self, environ: Mapping[str, str], leaving: Callable[[], bool] = lambda: False) -> None:
        """`leaving` says whether the worker was asked to stop."""
        self._leaving = leaving
        self._inherited = inherited(environ)
        self._guard = Guard()

    async def run(self, task: ShellTask, claim: Claim, output: Output) -> Ending:
        """Run to the end. Cancelling this ends the whole process tree before it returns."""
        command = task.command
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        refusal = _refusal(argv, task)
        if refusal is not None:
            return refusal
        self._guard.ready()
        program = Program(output)
        try:
            with _payload_file(claim.payload) as stdin:
                await program.start(argv, self._environment(task, claim), task.cwd, stdin)
        except (OSError, ValueError) as error:
            return _not_started(argv[0], error)
        self._guard.begin(program.group)
        try:
            code = await program.wait()
        finally:
            await program.end()
            self._guard.end(program.group)
        if code == -signal.SIGTERM and await self._asked_to_leave():
            return RELEASED
        return _ending(code, program.last_error_line)

    async def _asked_to_leave(self) -> bool:
        """The signal to us may be heard a moment after that to the program."""
        if not self._leaving():
            await asyncio.sleep(HEARD_WITHIN)
        return self._leaving()

    def close(self) -> None:
        self._guard.close()

    def _environment(self, task: ShellTask, claim: Claim) -> dict[str, str]:
        about = {
            "DETENT_EXECUTION_ID": str(claim.execution_id),
            "DETENT_JOB_ID": str(claim.job_id),
            "DETENT_ATTEMPT": str(claim.attempt),
            "DETENT_TOKEN": str(claim.token),
            "DETENT_SCHEDULED_FOR": claim.scheduled_for.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        }
        if len(claim.payload) <= PAYLOAD_IN_ENVIRONMENT:
            about["DETENT_PAYLOAD"] = claim.payload
        return {**self._inherited, **task.env, **about}


def _refusal(argv: list[str], task: ShellTask) -> Ending | None:
    """What no program can be given. Event loops differ in what they make of it: cut it short, or raise."""
    if not argv or not argv[0]:
        return failed("CommandNotFound", "the command is empty")
    if any("\0" in text for text in (*argv, *task.env, *task.env.values(), task.cwd or "")):
        return failed("CommandNotStarted", "a command and its environment cannot have NUL characters")
    if any(not name or "=" in name for name in task.env):
        return failed("CommandNotStarted", "a variable of the environment needs a name without '='")
    if task.cwd is not None and not Path(task.cwd).is_dir():
        return failed("BadDirectory", f"cwd {task.cwd!r} is not a directory on this worker")
    return None


def _payload_file(payload: str) -> BinaryIO:
    """Standard input as a file rather than a pipe: a program that never reads it blocks nobody."""
    if hasattr(os, "memfd_create"):
        file: BinaryIO = os.fdopen(os.memfd_create("payload"), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller's `with` closes it
    file.write(payload.encode())
    file.seek(0)
    return file


def _not_started(program: str, error: OSError | ValueError) -> Ending:
    if isinstance(error, FileNotFoundError):
        return failed("CommandNotFound", f"{program!r} was not found on this worker", exit_code=127)
    if isinstance(error, PermissionError):
        return failed("CommandNotExecutable", f"{program!r} may not be executed: {error}", exit_code=126)
    return failed("CommandNotStarted", f"{program!r} could not be started: {error}")


def _ending(code: int, last_line: str) -> Ending:
    if code == 0:
        return _SUCCEEDED
    said = f": {last_line}" if last_line else ""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return failed("Signal", f"killed by {name}{said}", exit_code=128 - code)
    return failed("ExitCode", f"exit code {code}{said}", exit_code=code)
