"""Measure Detent on a PostgreSQL of its own, beside what the bare statements reach there.

Prints one JSON line for each result and a table at the end. Every round measures everything once, the raw
limit right before what is held against it, because the machine's pace drifts; ratios are taken within a
round, and the table has the median of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from bench import chain, drain, fire, lateness, machine, plain, raw
from bench.server import durability, embedded, fresh_database, version
from bench.table import Result, summary, with_ratio
from detent.store.embedded import Embedded

SCENARIOS = ("drain", "fire", "lateness")
WORKERS = (1, 2)
QUICK = {"n": 20_000, "rounds": 1, "seconds": 5.0, "patience": 0.0}

Measure = Callable[[str], Awaitable[dict[str, Any]]]
Step = tuple[str, str | None, Measure]


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; default all"
    )
    parser.add_argument(
        "--n", type=int, default=100_000, help="executions to drain, timers to fire (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="of drain and fire; lateness once (default %(default)s)"
    )
    parser.add_argument("--rate", type=int, default=100, help="one-time jobs a second (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of lateness (default %(default)s)")
    parser.add_argument(
        "--patience",
        type=float,
        default=5.0,
        help="seconds to wait before each figure for others to leave the machine alone (default %(default)s)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="half a minute: shows that it works, not how fast"
    )
    options = parser.parse_args(given)
    if options.quick:
        vars(options).update(QUICK)
    options.scenarios = options.scenarios or list(SCENARIOS)
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    if min(options.n, options.rounds, options.rate, options.seconds) <= 0:
        parser.error("--n, --rounds, --rate and --seconds must be positive")
    return options


def _draining(n: int, workers: int, folder: Path) -> Measure:
    return lambda url: drain.measure(url, n, workers, folder)


def plan(options: argparse.Namespace, folder: Path) -> list[Step]:
    """What is measured, in order: name, the raw limit it is held against, how."""
    n, rate, seconds = options.n, options.rate, options.seconds
    one_round: list[Step] = []
    if "drain" in options.scenarios:
        one_round.append(("plain_queue", None, lambda url: plain.measure(url, n)))
        one_round.append(("raw_claim_close", "plain_queue", lambda url: raw.measure(url, n)))
        for workers in WORKERS:
            one_round.append((f"drain_{workers}", "raw_claim_close", _draining(n, workers, folder)))
    if "fire" in options.scenarios:
        one_round.append(("raw_fire", None, lambda url: fire.measure_raw(url, n)))
        one_round.append(("fire", "raw_fire", lambda url: fire.measure(url, n, folder)))
    steps: list[Step] = one_round * int(options.rounds)
    if "lateness" in options.scenarios:
        steps.append(("raw_lateness", None, lambda url: chain.measure_raw(url, rate, seconds)))
        steps.append(("lateness", "raw_lateness", lambda url: lateness.measure(url, rate, seconds, folder)))
    return steps


async def measure(server: Embedded, options: argparse.Namespace, folder: Path) -> AsyncIterator[Result]:
    latest: dict[str, dict[str, Any]] = {}
    for name, raw_name, step in plan(options, folder):
        before = await machine.quiet(options.patience)
        async with fresh_database(server) as url:
            figure = await step(url)
        figure["others_busy"] = max(before, await machine.busy())
        latest[name] = with_ratio(figure, latest.get(raw_name) if raw_name else None, raw_name)
        yield name, latest[name]


async def run(server: Embedded, options: argparse.Namespace, folder: Path) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    durable = await durability(server.url)
    postgres = await version(server.url)
    results: list[Result] = []
    async for name, figure in measure(server, options, folder):
        results.append((name, figure))
        facts = machine.facts(postgres)
        print(json.dumps({"figure": name, **figure, **facts, "durable": durable}), flush=True)
    print(f"\n{summary(results)}", flush=True)


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
