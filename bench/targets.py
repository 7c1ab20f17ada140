"""The figures that Detent is to reach, and how each is told of a line of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """One row of the page: what is asked of a figure, in words and as a condition."""

    what: str
    figure: str
    asked: str
    shown: Callable[[Line], str]
    met: Callable[[Line], bool]
    size: tuple[str, float] | None = None  # the figure counts only with so much of this


def pace(line: Line) -> str:
    return f"{line['per_second']:,.0f}/s"


def late(line: Line) -> str:
    return f"{line['p50_ms']:.2f} / {line['p99_ms']:.2f} ms, {line['early']} early"


def _burst(line: Line) -> str:
    return f"{late(line)}, all recorded after {line['recorded_after_seconds']:.2f} s"


def _pace(what: str, figure: str, least: float, size: tuple[str, float]) -> Target:
    return Target(what, figure, f"≥ {least:,.0f}/s", pace, lambda line: line["per_second"] >= least, size)


def _late(what: str, figure: str, p50: float, p99: float) -> Target:
    asked = f"p50 ≤ {p50:g} ms, p99 ≤ {p99:g} ms, 0 early"
    return Target(
        what, figure, asked, late,
        lambda line: line["p50_ms"] <= p50 and line["p99_ms"] <= p99 and not line["early"],
    )  # fmt: skip


TARGETS = (
    _pace("drain of 300,000, 1 worker process", "drain_1", 60_000, ("n", 300_000)),
    _pace("drain of 300,000, 2 worker processes", "drain_2", 70_000, ("n", 300_000)),
    Target(
        "fire → claim → run → recorded, continuously", "pipeline", "≥ 25,000/s and ≥ 50 % of raw", pace,
        lambda line: line["per_second"] >= 25_000 and line.get("ratio", 0) >= 0.5,
    ),
    _late("lateness at 100/s", "lateness_100", 0.5, 2),
    _late("lateness at 1,667/s", "lateness_1667", 1, 5),
    Target(
        "burst: 5,000 due at one instant", "burst", "p99 ≤ 50 ms", _burst,
        lambda line: line["p99_ms"] <= 50 and not line["early"], ("n", 5000),
    ),
    Target(
        "60,000 schedules due in the same second", "burst_schedules", "p99 ≤ 600 ms, recorded within 2 s", _burst,
        lambda line: line["p99_ms"] <= 600 and line["recorded_after_seconds"] <= 2 and not line["early"],
        ("n", 60_000),
    ),
    Target(
        "10,000,000 jobs stored: lateness at 15,000 fires/s", "lateness_stored", "as with few jobs",
        lambda line: f"{late(line)} at {line['reached_per_second']:,}/s, with few jobs "
        f"{line['few_p50_ms']:.2f} / {line['few_p99_ms']:.2f} ms" if "few_p50_ms" in line else late(line),
        lambda line: line["p99_ms"] <= 1.2 * line.get("few_p99_ms", 0) + 1 and not line["early"],
        ("stored", 10_000_000),
    ),
    Target(
        "… peak fire rate", "fire_stored", "≥ 40,000/s", pace,
        lambda line: line["per_second"] >= 40_000, ("stored", 10_000_000),
    ),
    Target(
        "… scheduler's memory", "lateness_stored", "≤ 300 MB", lambda line: f"{line['scheduler_peak_mb']:.0f} MB",
        lambda line: line["scheduler_peak_mb"] <= 300, ("stored", 10_000_000),
    ),
    Target(
        "… cold start to the first fire", "cold_start", "≤ 2 s", lambda line: f"{line['first_fire_seconds']:.2f} s",
        lambda line: line["first_fire_seconds"] <= 2, ("stored", 10_000_000),
    ),
    Target(
        "10,000 async attempts at once", "attempts_async", "≤ 2 heartbeat statements/s, 0 lost, ≤ 500 MB",
        lambda line: f"{line['heartbeat_statements_per_second']:.2f}/s, {line['leases_lost']} lost, "
        f"{line['worker_peak_mb']:.0f} MB",
        lambda line: line["heartbeat_statements_per_second"] <= 2 and not line["leases_lost"]
        and line["worker_peak_mb"] <= 500,
        ("n", 10_000),
    ),
    Target(
        "10,000 HTTP attempts at once", "attempts_http", "≤ 2 heartbeat statements/s, 0 lost, ≤ 500 MB",
        pace, lambda line: False,
    ),
    Target(
        "API, one process, reads and writes mixed", "api", "≥ 5,000/s, p99 ≤ 50 ms",
        lambda line: f"{pace(line)}, p99 {line['p99_ms']:.1f} ms",
        lambda line: line["per_second"] >= 5000 and line["p99_ms"] <= 50 and not line["not_2xx"],
    ),
    Target(
        "takeover after kill -9", "takeover", "≤ 1 s, 0 lost, 0 twice",
        lambda line: f"p50 {line['p50_ms']:,} / max {line['max_ms']:,} ms of {line['kills']}, "
        f"{line['lost']} lost, {line['twice']} twice",
        lambda line: line["max_ms"] <= 1000 and not line["lost"] and not line["twice"],
        ("kills", 40),
    ),
    Target(
        "takeover after a cut network", "takeover", "≤ 5 s, 0 lost, 0 twice",
        lambda line: f"p50 {line['cut_p50_ms']:,} / max {line['cut_max_ms']:,} ms of {line['cuts']}",
        lambda line: line["cut_max_ms"] <= 5000 and not line["lost"] and not line["twice"],
        ("cuts", 10),
    ),
    Target(
        "a transaction held open for 10 min at 1,000/s", "snapshot", "claim p50 and p99 ≤ 2 × baseline",
        lambda line: f"{line['claim_p50_ratio']:.2f} × and {line['claim_p99_ratio']:.2f} × "
        f"({line['claim_p50_ms']:.2f} / {line['claim_p99_ms']:.2f} ms)",
        lambda line: line["claim_p50_ratio"] <= 2 and line["claim_p99_ratio"] <= 2, ("held_seconds", 600),
    ),
)  # fmt: skip
