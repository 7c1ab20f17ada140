"""The summary: ratios first, because they outlive the machine; then what was reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Lines = list[tuple[str, str, str]]

# What the design asks for, per second, by number of workers.
DRAIN_TO_REACH = {1: 60_000, 2: 70_000}
P50_TO_REACH, P99_TO_REACH = 0.5, 2.0


def summary(figures: Mapping[str, Mapping[str, Any]]) -> str:
    drains = [figure for name, figure in figures.items() if name.startswith("drain")]
    raw = figures.get("raw")
    lines: Lines = []
    if raw:
        lines += [
            (f"drain, {_workers(d)} / raw SQL", f"{d['per_second'] / raw['per_second']:.0%}", "")
            for d in drains
        ]
        lines.append(("raw SQL, claim + close", f"{raw['per_second']:,}/s", ""))
    for d in drains:
        reach = DRAIN_TO_REACH.get(d["workers"])
        lines.append((f"drain, {_workers(d)}", f"{d['per_second']:,}/s", f"≥ {reach:,}/s" if reach else ""))
    if late := figures.get("lateness"):
        at = f"lateness at {late['rate']}/s"
        lines += [
            (f"{at}, p50", f"{late['p50_ms']} ms", f"≤ {P50_TO_REACH} ms"),
            (f"{at}, p99", f"{late['p99_ms']} ms", f"≤ {P99_TO_REACH} ms"),
            (f"{at}, max", f"{late['max_ms']} ms", ""),
            (f"{at}, early", str(late["early"]), "0"),
        ]
    return _table([("what", "reached", "to reach"), *lines])


def _workers(figure: Mapping[str, Any]) -> str:
    return "1 worker" if figure["workers"] == 1 else f"{figure['workers']} workers"


def _table(lines: Lines) -> str:
    first, second, third = (max(len(line[column]) for line in lines) for column in range(3))
    rows = [f"| {a:<{first}} | {b:>{second}} | {c:>{third}} |" for a, b, c in lines]
    rows.insert(1, f"| {'-' * first} | {'-' * (second - 1)}: | {'-' * (third - 1)}: |")
    return "\n".join(rows)
