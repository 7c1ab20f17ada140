"""Measuring a peer: the same work as ours, checked in the same way.

A driver (in `drivers/`) is a program in the peer's environment that knows two words: `load`, which queues jobs, and
`work`, which runs them until it is told to end. A job's body appends to a file: 16 bytes in a drain, and how late it
started, in milliseconds, where jobs have an instant. The clock of a drain starts when a lock that all workers wait
for is given up, or, without a table to lock, with the first byte; it stops when nothing is left to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.lateness import percentiles
from bench.peers.environment import modules, python_of
from bench.peers.redis import redis
from bench.server import Connection, connection

if TYPE_CHECKING:
    from bench.peers.catalogue import Peer

BODY_BYTES = 16
LOOK_EVERY = 0.02
LOAD_SECONDS = 120.0
STOP_SECONDS = 10.0
STUCK_SECONDS = 30.0
GATE_SECONDS = 30.0
GATE_CALM = 1.0
START_FACTOR = 3.0  # times as long as the driver takes to start and end, for the next one to be done
_HERE = Path(__file__).with_name("drivers")
_WAITING = """
select count(*) from pg_locks where relation = $1::text::regclass and not granted
  and database = (select oid from pg_database where datname = current_database())
"""
_numbers = count(1)


@dataclass(frozen=True)
class Order:
    """So many jobs for so many processes; with instants at a rate, or all at one."""

    n: int
    workers: int
    rate: int = 0
    delayed: bool = False


async def measure(url: str, peer: Peer, order: Order, folder: Path) -> dict[str, Any]:
    file = folder / f"peer-{next(_numbers)}"
    file.touch()
    async with contextlib.AsyncExitStack() as stack:
        env = {"BENCH_URL": url, "BENCH_FILE": str(file), "BENCH_SLOTS": str(peer.slots)}
        env |= {"BENCH_BATCH": str(peer.batch), "BENCH_DELAYED": str(int(order.delayed))}
        if peer.redis:
            env["BENCH_REDIS"] = await stack.enter_async_context(redis())
        command = await _command(peer.kind)
        watch = await stack.enter_async_context(connection(url))
        await watch.execute("set search_path = public")
        if order.delayed:
            figure = await _late(command, env, watch, peer, order, file, stack)
        else:
            figure = await _drained(command, env, watch, peer, order, file, stack)
    return {
        **figure,
        "n": order.n,
        "workers": order.workers,
        "batch": peer.batch or None,
        "slots": peer.slots or None,
    }


async def _drained(
    command: list[str],
    env: dict[str, str],
    watch: Connection,
    peer: Peer,
    order: Order,
    file: Path,
    stack: contextlib.AsyncExitStack,
) -> dict[str, Any]:
    await _load(command, env, order.n, 0.0, 0)
    gate = await stack.enter_async_context(connection(env["BENCH_URL"]))
    async with contextlib.AsyncExitStack() as held:
        if peer.table:
            await gate.execute("set search_path = public")
            await watch.execute(f"vacuum analyze {peer.table}")
            await watch.execute("checkpoint")
            await held.enter_async_context(gate.transaction())
            await gate.execute(f"lock table {peer.table} in {peer.lock} mode")
        for _ in range(order.workers):
            await stack.enter_async_context(_worker(command, env))
        if peer.table:
            await _all_wait(watch, peer.table, order.workers)
        else:
            await _first_byte(file)
    started = time.perf_counter()
    await _done(watch, peer, file, order.n * BODY_BYTES)
    seconds = time.perf_counter() - started
    if file.stat().st_size != order.n * BODY_BYTES:
        raise RuntimeError(f"{order.n} jobs were queued, and {file.stat().st_size / BODY_BYTES:g} ran")
    return {"per_second": round(order.n / seconds), "seconds": round(seconds, 3)}


async def _late(
    command: list[str],
    env: dict[str, str],
    watch: Connection,
    peer: Peer,
    order: Order,
    file: Path,
    stack: contextlib.AsyncExitStack,
) -> dict[str, Any]:
    before = time.monotonic()
    await _load(command, env, 0, 0.0, 0)
    start = START_FACTOR * (time.monotonic() - before)
    if peer.hears:
        await stack.enter_async_context(_worker(command, env))
        await asyncio.sleep(1.0)
    for patience in (1, 4) if peer.hears else (3,):
        first = time.time() + patience * (start + order.n / peer.loaded_per_second)
        await _load(command, env, order.n, first, order.rate)
        if not peer.hears:
            await stack.enter_async_context(_worker(command, env))
            await asyncio.sleep(1.0)
        if in_time := time.time() < first - 0.5:
            break
        await _done(watch, peer, file, None, lines=order.n)
        os.truncate(file, 0)
    if not in_time:
        raise RuntimeError("the jobs were made too late for their first instant")
    await asyncio.sleep(max(0.0, first - time.time()) + (order.n / order.rate if order.rate else 0.0))
    started = time.perf_counter()
    await _done(watch, peer, file, None, lines=order.n)
    recorded = time.perf_counter() - started
    late = sorted(float(line) for line in file.read_text().split())
    if len(late) != order.n:
        raise RuntimeError(f"{order.n} jobs were asked for, and {len(late)} ran")
    return {**percentiles(late), "rate": order.rate or None, "recorded_after_seconds": round(recorded, 3)}


async def _command(kind: str) -> list[str]:
    if kind == "graphile":
        return ["node", str(_HERE / "drive_graphile.mjs"), str(await modules())]
    return [await python_of(kind), str(_HERE / f"drive_{kind}.py")]


async def _load(command: list[str], env: dict[str, str], n: int, first: float, rate: int) -> None:
    """Make the peer's tables if there are none, and queue jobs."""
    process = await asyncio.create_subprocess_exec(
        *command, "load", str(n), repr(first), str(rate),
        env={**os.environ, **env}, cwd=_HERE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(LOAD_SECONDS):
            output, _ = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    if process.returncode:
        raise RuntimeError(f"its jobs were not made: {output.decode(errors='replace').strip()[-300:]}")


@contextlib.asynccontextmanager
async def _worker(command: list[str], env: dict[str, str]) -> AsyncIterator[None]:
    """A worker in a session of its own, so that what it starts ends with it."""
    process = await asyncio.create_subprocess_exec(
        *command, "work", env={**os.environ, **env}, cwd=_HERE, start_new_session=True,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
        if process.returncode is not None:
            raise RuntimeError(f"its worker ended by itself, with code {process.returncode}")
    finally:
        await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _all_wait(watch: Connection, table: str, workers: int) -> None:
    """Wait until all workers wait for the table: at least one session of each, and for a while no more."""
    deadline = time.monotonic() + GATE_SECONDS
    waiting, since = 0, time.monotonic()
    while waiting < workers or time.monotonic() < since + GATE_CALM:
        if (now := await watch.fetchval(_WAITING, table if "." in table else f"public.{table}")) != waiting:
            waiting, since = now, time.monotonic()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{waiting} sessions of {workers} workers wait for {table}")
        await asyncio.sleep(LOOK_EVERY)


async def _first_byte(file: Path) -> None:
    deadline = time.monotonic() + GATE_SECONDS
    while not file.stat().st_size:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no job ran within {GATE_SECONDS:g} s")
        await asyncio.sleep(0.002)


async def _done(watch: Connection, peer: Peer, file: Path, size: int | None, *, lines: int = 0) -> None:
    """Wait until all have run, and then until all are recorded; fail when nothing moves any more."""
    known, moved = (-1, -1), time.monotonic()
    while True:
        written = file.stat().st_size
        ran = written >= size if size is not None else file.read_bytes().count(b"\n") >= lines
        left = await watch.fetchval(peer.left) if ran and peer.left else 0
        if ran and not left:
            return
        if (written, left) != known:
            known, moved = (written, left), time.monotonic()
        if time.monotonic() > moved + STUCK_SECONDS:
            raise RuntimeError(f"stuck: {written} bytes were written, {left} jobs are left")
        await asyncio.sleep(LOOK_EVERY)
