"""Measure Detent on a PostgreSQL of its own, beside what the bare statements and other schedulers reach there.

Prints one JSON line for each result and a table at the end. A figure stands right behind what it is held
against, because the machine's pace drifts. What fails is told with its reason, and the rest goes on.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
import traceback
from argparse import Namespace
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import uvloop

from bench import machine
from bench.options import arguments
from bench.plan import plan
from bench.report import report
from bench.server import durability, embedded, fresh_database, version
from bench.step import Figure, Skipped, Step, broken_promises, with_ratios
from bench.table import summary
from detent.store.embedded import Embedded

QUICK_PEERS = 4


class Run:
    """The lines of one run, each printed when it is there."""

    def __init__(self, server: Embedded, options: Namespace, constant: dict[str, Any]) -> None:
        self._server = server
        self._options = options
        self._constant = constant
        self.lines: list[Figure] = []

    async def take_all(self, steps: Iterable[Step], at_once: int) -> None:
        turns = asyncio.Semaphore(at_once)

        async def in_turn(step: Step) -> None:
            try:
                await self.take(step)
            finally:
                turns.release()

        async with asyncio.TaskGroup() as group:
            for step in steps:
                await turns.acquire()
                group.create_task(in_turn(step))

    async def take(self, step: Step) -> None:
        head: Figure = {"figure": step.name} | ({"peer": step.peer} if step.peer else {})
        try:
            figures = await self._measure(step)
        except Skipped as reason:
            self._say({**head, "skipped": str(reason)})
            return
        except Exception as error:
            traceback.print_exc()
            why = f"{type(error).__name__}: {error}".strip().rstrip(":")
            self._say({**head, "failed": why.splitlines()[0][:300]})
            return
        raw = next((line for line in reversed(self._good()) if line["figure"] == step.raw), None)
        peers = [line for line in self._good() if line["figure"] == step.name and "peer" in line]
        for figure in figures:
            self._say(with_ratios(head | figure, raw, [] if step.peer else peers))

    async def _measure(self, step: Step) -> list[Figure]:
        before = await machine.quiet(self._options.patience)
        async with asyncio.timeout(step.limit), fresh_database(self._server, migrated=step.migrated) as url:
            measured = await step.measure(url)
        others = max(before, await machine.busy())
        figures = measured if isinstance(measured, list) else [measured]
        return [figure | {"others_busy": others} for figure in figures]

    def _good(self) -> list[Figure]:
        return [line for line in self.lines if not {"failed", "skipped"} & line.keys()]

    def _say(self, line: Figure) -> None:
        self.lines.append(line)
        text = json.dumps({**line, "date": machine.now(), **self._constant})
        print(text, flush=True)
        if self._options.out:
            with self._options.out.open("a") as file:
                file.write(f"{text}\n")


async def run(server: Embedded, options: Namespace, folder: Path) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    size = "quick" if options.quick else "full" if options.full else "everyday"
    constant = {
        "size": size,
        **machine.facts(await version(server.url)),
        "durable": await durability(server.url),
    }
    taken = Run(server, options, constant)
    for peers, steps in groupby(plan(server, options, folder), lambda step: step.peer is not None):
        # With --quick no pace is asked for, and peers share no file and no table.
        await taken.take_all(steps, QUICK_PEERS if options.quick and peers else 1)
    print(f"\n{summary(taken.lines)}", flush=True)
    return 1 if any("failed" in line or broken_promises(line) for line in taken.lines) else 0


def main() -> int:
    options = arguments()
    if options.report:
        print(report([json.loads(line) for line in options.report.read_text().splitlines() if line]))
        return 0
    try:
        with embedded() as server, tempfile.TemporaryDirectory(prefix="detent-bench-") as folder:
            return uvloop.run(run(server, options, Path(folder)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


if __name__ == "__main__":
    sys.exit(main())
