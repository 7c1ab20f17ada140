"""`detent demo`: a temporary system, a few jobs, and what becomes of them, live.

It starts the same processes as `detent up` and only watches: every line it shows was read over HTTP.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detent.cli.own import hint
from detent.cli.times import milliseconds
from detent.model.errors import StartupError
from detent.runtime.bond import Word
from detent.runtime.config import environment_of_child
from detent.sdk.failures import ClientError

if TYPE_CHECKING:
    from detent.sdk.client import Client
    from detent.sdk.records import Execution, Job

SHOW_FOR = 9.0  # as long as it takes the flaky task to succeed, and a little more
SHOW_AT_LEAST = 4.0
# The whole ends within 30 seconds: a slow start is made up for by a shorter show. One of more than 16
# seconds, on a machine that has better things to do, is waited for.
SHOWN_BY = 20.0
START_PATIENCE = 60.0
STOP_PATIENCE = 8.0
LOOK_EVERY = 0.1

JOBS: tuple[dict[str, Any], ...] = (
    {"name": "tick", "task": {"kind": "shell", "command": "echo it is $(date +%H:%M:%S)"}, "every": 1},
    {"name": "greet", "task": "demo.greet", "delay": 0, "payload": {"who": "world"}},
    {"name": "primes", "task": "demo.count_primes", "delay": 3, "payload": {"below": 200_000}},
    {"name": "flaky", "task": "demo.flaky", "delay": 0, "max_retries": 3, "retry_delay_seconds": 1,
     "retry_backoff": "fixed"},
)  # fmt: skip


@dataclass
class Tally:
    succeeded: int = 0
    retried: int = 0
    other: int = 0
    worst_lateness_ms: float = 0.0


@click.command()
def demo() -> int:
    """Watch a few jobs run on a temporary system. Ends by itself, and leaves nothing behind."""
    from detent.sdk.client import Client
    from detent.store.embedded import discard, temporary_folder

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as with Ctrl-C: nothing stays behind
    click.echo("starting a temporary system (PostgreSQL, api, scheduler, keeper, worker) ...")
    began = time.monotonic()
    folder = temporary_folder("detent-demo-")
    try:
        with _system(folder) as url, Client(url) as client:
            ready = time.monotonic()
            tally = _show(client, until=max(ready + SHOW_AT_LEAST, min(ready + SHOW_FOR, began + SHOWN_BY)))
    finally:
        discard(folder)
    _summary(tally)
    return 0 if tally.succeeded and not tally.other else 1


@contextlib.contextmanager
def _system(folder: Path) -> Iterator[str]:
    """A `detent up` of our own on a free port, tied to our life; yields its address once it is ready."""
    from detent.runtime.supervisor import free_port

    port = free_port("127.0.0.1", 0)
    command = [sys.executable, "-m", "detent", "up", "--data", str(folder), "--port", str(port)]
    command += ["--import", "detent.cli.demo_tasks", "--log-level", "error", "--grace", "2"]
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(
                command,
                env=environment_of_child(f"demo:{theirs.fileno()}:{os.getpid()}"),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is ours, and we stop it in order
            )
        try:
            _until_ready(ours)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _until_ready(bond: socket.socket) -> None:
    bond.settimeout(START_PATIENCE)
    try:
        with bond.makefile("rb") as words:
            line = words.readline()
    except TimeoutError:
        raise StartupError(f"the temporary system is not ready after {START_PATIENCE:g} s") from None
    word = Word.decode(line) if line else Word("failed", "it ended by itself")
    if word.kind != "ready":
        raise StartupError(f"the temporary system did not start: {word.text}")


def _show(client: Client, until: float) -> Tally:
    """Create the jobs and print each change of their executions until the time is over."""
    names: dict[str, str] = {}
    for body in JOBS:
        job = client.create(body)
        names[job.job_id] = job.name
        _line(time.localtime(), "created", job.name, _plan(job))
    seen: dict[str, tuple[str, int]] = {}
    tally = Tally()
    while time.monotonic() < until:
        for execution in reversed(list(client.executions(limit=100))):
            now = (execution.status, execution.attempt)
            if seen.get(execution.execution_id) != now and execution.status != "queued":
                seen[execution.execution_id] = now
                _change(client, names[execution.job_id], execution, tally)
        time.sleep(LOOK_EVERY)
    return tally


def _change(client: Client, name: str, execution: Execution, tally: Tally) -> None:
    at = time.localtime()
    if execution.status == "succeeded":
        tally.succeeded += 1
        tally.worst_lateness_ms = max(tally.worst_lateness_ms, execution.lateness_ms or 0.0)
        took, late = milliseconds(execution.duration_ms), milliseconds(execution.lateness_ms)
        _line(at, "succeeded", name, f"{_said(client, execution)}   (took {took}, started {late} late)")
    elif execution.status == "retrying":
        tally.retried += 1
        error = client.execution(execution.execution_id).attempts[-1].error or {}
        _line(at, "retrying", name, f"{error.get('type')}: {error.get('message')}; it will be tried again")
    elif execution.closed:
        tally.other += 1
        _line(at, execution.status, name, str(execution.error))
    else:
        _line(at, execution.status, name, f"attempt {execution.attempt}")


def _said(client: Client, execution: Execution) -> str:
    """The result of a function, the last line of a program."""
    with contextlib.suppress(ClientError):
        result = client.execution(execution.execution_id).result
        if result is not None and result != {"exit_code": 0}:
            return str(result)
        written = client.logs(execution.execution_id).strip()
        return written.splitlines()[-1] if written else ""
    return ""


def _plan(job: Job) -> str:
    from detent.cli.describe import schedule_words, task_words

    return f"{task_words(job.task)}, {schedule_words(job.raw)}"


def _line(at: time.struct_time, word: str, name: str, text: str) -> None:
    from rich.text import Text

    from detent.cli.output import COLOURS, console

    line = Text(f"{time.strftime('%H:%M:%S', at)}  ")
    line.append(f"{word:<10}", style=COLOURS.get(word, "bold"))
    line.append(f"{name:<8}{text}")
    console().print(line)


def _summary(tally: Tally) -> None:
    late = milliseconds(tally.worst_lateness_ms)
    click.echo(
        f"\n{tally.succeeded} executions succeeded, {tally.retried} attempts failed and were tried again; "
        f"the latest start was {late} after its instant."
    )
    click.echo(f"Your turn: {hint('up')}")
