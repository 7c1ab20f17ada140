"""A witness outside of the system: what really ran, whatever the system says about it.

Every test task appends a line when it starts and another just before it ends, each on the disk before the
task goes on. So a line that is there is true, and so is the order: an attempt that the system recorded as
ended must have both. This module is imported by the workers, for the tasks, and by the tests, to read.

    start <execution> <attempt> <token> <pid> <unix seconds>
    done | fail <the same>

Each attempt also writes the same words to its output, where the system has to keep them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from detent import task

# What a task finds in its payload: {"witness": path, "seconds": how long it takes,
# "fail_through": attempts up to this one fail, "long_once": seconds of the first attempt}


@task("fault.threaded")
def threaded(payload: dict[str, Any], ctx: Any) -> str:
    path = _begin(payload, ctx)
    time.sleep(_length(payload, ctx))
    return _end(path, payload, ctx)


@task("fault.looped")
async def looped(payload: dict[str, Any], ctx: Any) -> str:
    path = _begin(payload, ctx)
    await asyncio.sleep(_length(payload, ctx))
    return _end(path, payload, ctx)


@task("fault.dies")
def dies(payload: dict[str, Any], ctx: Any) -> str:
    """Takes its worker along, on its first attempt: before it has begun, or after it is done."""
    if ctx.attempt == 1 and payload["when"] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    path = _begin(payload, ctx)
    ended = _end(path, payload, ctx)
    if ctx.attempt == 1 and payload["when"] == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return ended


@task("fault.gives")
def gives(payload: dict[str, Any]) -> Any:
    """Whatever its payload says, as its result or its error; with half a character, which no payload can have."""
    half = "\ud800" if payload.get("half") else ""
    if "error" in payload:
        raise RuntimeError(payload["error"] + half)
    return half or payload["result"] * int(payload.get("times", 1))


def said(execution_id: UUID, attempt: int) -> str:
    """What an attempt writes to its output."""
    return f"here is attempt {attempt} of {execution_id}"


def _length(payload: dict[str, Any], ctx: Any) -> float:
    return float(payload.get("long_once", 0) if ctx.attempt == 1 else 0) or float(payload.get("seconds", 0))


def _begin(payload: dict[str, Any], ctx: Any) -> Path:
    path = Path(payload["witness"])
    _append(path, "start", ctx)
    ctx.log(said(ctx.execution_id, ctx.attempt))
    return path


def _end(path: Path, payload: dict[str, Any], ctx: Any) -> str:
    fails = ctx.attempt <= payload.get("fail_through", 0)
    _append(path, "fail" if fails else "done", ctx)
    if fails:
        raise RuntimeError("this one fails, as it was told to")
    return f"{ctx.attempt}"


def _append(path: Path, event: str, ctx: Any) -> None:
    line = f"{event} {ctx.execution_id} {ctx.attempt} {ctx.token} {os.getpid()} {time.time():.6f}\n"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, line.encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def shell_task(path: Path, seconds: float, fail_through: int) -> dict[str, Any]:
    """The same as a program: one that writes its lines with the shell alone."""
    keep = 'sync "$WITNESS"' if shutil.which("sync") else ":"
    say = (
        'say() { echo "$1 $DETENT_EXECUTION_ID $DETENT_ATTEMPT $DETENT_TOKEN $$ $(date +%s.%N)"'
        f' >> "$WITNESS"; {keep}; }}'
    )
    end = f'if [ "$DETENT_ATTEMPT" -le {fail_through} ]; then say fail; exit 3; else say done; fi'
    output = 'echo "here is attempt $DETENT_ATTEMPT of $DETENT_EXECUTION_ID"'
    return {
        "kind": "shell",
        "command": f"{say}; say start; {output}; sleep {seconds:.3f}; {end}",
        "env": {"WITNESS": str(path)},
    }


@dataclass(frozen=True, slots=True)
class Line:
    event: str
    execution_id: UUID
    attempt: int
    token: int
    pid: int
    at: float

    @property
    def key(self) -> tuple[UUID, int, int]:
        return (self.execution_id, self.attempt, self.token)


class Witness:
    """Reads what was witnessed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[Line]:
        return list(self._read())

    def of(self, execution_id: UUID) -> list[Line]:
        return [line for line in self._read() if line.execution_id == execution_id]

    def _read(self) -> Iterator[Line]:
        if not self.path.exists():
            return
        for text in self.path.read_text().split("\n")[:-1]:
            event, execution, attempt, token, pid, at = text.split()
            assert event in ("start", "done", "fail"), text
            yield Line(event, UUID(execution), int(attempt), int(token), int(pid), float(at))
