"""What to measure, and how much of it: three sizes of everything, and a flag for each."""

from __future__ import annotations

import argparse
from pathlib import Path

SCENARIOS = {
    "drain": "a queue of executions, by one and by two workers",
    "fire": "due timers, by one scheduler",
    "pipeline": "fire, claim, run, record, all at once",
    "lateness": "at 100 and at 1,667 instants a second",
    "burst": "thousands due at one instant",
    "attempts": "thousands of attempts that run at once",
    "api": "reads and writes mixed, on one process",
    "takeover": "schedulers that are killed or cut off",
    "snapshot": "a transaction held open",
    "stored": "lateness and pace beside millions of jobs",
    "peers": "only what other schedulers reach",
}
EVERYDAY = [name for name in SCENARIOS if name != "peers"]

# flag: type, everyday, --quick, --full, help
SIZES: dict[str, tuple[type, float, float, float, str]] = {
    "n": (int, 300_000, 5_000, 300_000, "executions to drain"),
    "timers": (int, 100_000, 5_000, 200_000, "timers to fire, also through the whole pipeline"),
    "rounds": (int, 2, 1, 3, "of drain, fire and pipeline"),
    "seconds": (float, 15.0, 2.0, 30.0, "of each lateness"),
    "burst": (int, 5_000, 500, 5_000, "one-time jobs at one instant"),
    "schedules": (int, 60_000, 2_000, 60_000, "recurring jobs at one instant"),
    "attempts": (int, 10_000, 500, 10_000, "attempts at once"),
    "hold": (float, 40.0, 3.0, 60.0, "seconds that they run"),
    "api-seconds": (float, 15.0, 2.0, 30.0, "of requests"),
    "takeovers": (int, 25, 2, 50, "repetitions; every fifth is a cut network"),
    "snapshot": (float, 60.0, 3.0, 600.0, "seconds that a transaction is held open"),
    "jobs": (int, 1_000_000, 20_000, 10_000_000, "jobs stored"),
    "fires": (int, 15_000, 1_000, 15_000, "fires a second beside the stored jobs"),
    "peer-share": (float, 1.0, 0.02, 1.0, "of each peer's usual number of jobs"),
    "patience": (float, 5.0, 0.0, 20.0, "seconds to wait before each figure until others leave the machine alone"),
}  # fmt: skip


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    about = "; ".join(f"{name}: {what}" for name, what in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="bench", description="Measure Detent beside the bare database and its peers."
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"{about}. Default: all but peers")
    parser.add_argument("--quick", action="store_true", help="shows that it works, not how fast")
    parser.add_argument("--full", action="store_true", help="ten million jobs, ten minutes of held snapshot")
    parser.add_argument("--no-peers", action="store_true", help="leave other schedulers out")
    parser.add_argument("--peer", action="append", help="only this one; may be repeated")
    parser.add_argument("--out", type=Path, metavar="FILE", help="append the JSON lines to this file too")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="measure nothing: print the page's table from these lines"
    )
    for name, (kind, normal, _, _, text) in SIZES.items():
        parser.add_argument(f"--{name}", type=kind, help=f"{text} (default {normal:,g})")
    options = parser.parse_args(given)
    if options.quick and options.full:
        parser.error("--quick or --full, not both")
    for name, (kind, *sizes, _) in SIZES.items():
        field = name.replace("-", "_")
        if getattr(options, field) is None:
            setattr(options, field, kind(sizes[1 if options.quick else 2 if options.full else 0]))
        if getattr(options, field) < 0 or (getattr(options, field) == 0 and name != "patience"):
            parser.error(f"--{name} must be positive")
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    options.scenarios = options.scenarios or EVERYDAY
    return options
