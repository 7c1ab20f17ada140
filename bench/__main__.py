"""`python -m bench [raw] [drain] [lateness]`: measure, print one JSON line for each figure, then a table."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvloop

from bench import drain, lateness, machine, raw
from bench.server import durability, embedded, fresh_database, version
from bench.table import summary
from detent.store.embedded import Embedded

SCENARIOS = ("raw", "drain", "lateness")
WORKERS = (1, 2)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; default all"
    )
    parser.add_argument("--n", type=int, default=100_000, help="executions to drain (default %(default)s)")
    parser.add_argument("--rate", type=int, default=100, help="one-time jobs a second (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="of lateness (default %(default)s)")
    options = parser.parse_args(given)
    options.scenarios = options.scenarios or list(SCENARIOS)
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    if min(options.n, options.rate, options.seconds) <= 0:
        parser.error("--n, --rate and --seconds must be positive")
    return options


async def measure(
    server: Embedded, options: argparse.Namespace, folder: Path
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    if "raw" in options.scenarios:
        async with fresh_database(server) as url:
            yield "raw", await raw.measure(url, options.n)
    if "drain" in options.scenarios:
        for workers in WORKERS:
            async with fresh_database(server) as url:
                yield f"drain_{workers}", await drain.measure(url, options.n, workers, folder)
    if "lateness" in options.scenarios:
        async with fresh_database(server) as url:
            yield "lateness", await lateness.measure(url, options.rate, options.seconds, folder)


async def run(server: Embedded, options: argparse.Namespace, folder: Path) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    durable = await durability(server.url)
    postgres = await version(server.url)
    figures: dict[str, dict[str, Any]] = {}
    async for name, figure in measure(server, options, folder):
        figures[name] = figure
        print(
            json.dumps({"figure": name, **figure, **machine.facts(postgres), "durable": durable}), flush=True
        )
    print(f"\n{summary(figures)}", flush=True)


def main() -> int:
    options = arguments()
    try:
        with embedded() as server, tempfile.TemporaryDirectory(prefix="detent-bench-") as folder:
            uvloop.run(run(server, options, Path(folder)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
