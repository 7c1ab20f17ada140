"""What the measurements say of their lines: ratios, broken promises, the page's table."""

from __future__ import annotations

from typing import Any

from bench.report import report
from bench.step import broken_promises, with_ratios
from bench.table import summary
from bench.targets import TARGETS

CONSTANT: dict[str, Any] = {
    "date": "2026-01-01T00:00:00+00:00",
    "size": "everyday",
    "machine": {"cores": 2, "memory_gb": 8, "cpu": "some"},
    "versions": {"detent": "0.1.0"},
    "others_busy": 0.0,
}
PACE = {"figure": "drain_1", "per_second": 60_000, "n": 300_000}
LATE = {"figure": "burst", "n": 5000, "p50_ms": 2.0, "p99_ms": 40.0, "max_ms": 41.0, "early": 0}


def line(**figure: Any) -> dict[str, Any]:
    return {**CONSTANT, **figure}


def test_a_pace_is_held_against_the_fastest_peer_and_a_lateness_against_the_least() -> None:
    raw = {"figure": "raw_claim_close", "per_second": 80_000}
    peers = [{"peer": "slow", "per_second": 10_000}, {"peer": "fast", "per_second": 30_000}]
    assert with_ratios(PACE, raw, peers).items() >= {
        "ratio": 0.75, "ratio_to": "raw_claim_close", "ratio_to_best_peer": 2.0, "best_peer": "fast"
    }.items()  # fmt: skip
    late = [{"peer": "calm", "p99_ms": 80.0, "early": 0}, {"peer": "rash", "p99_ms": 1.0, "early": 3}]
    told = with_ratios(LATE, None, late)
    assert (told["ratio_to_best_peer"], told["best_peer"]) == (0.5, "calm")


def test_an_early_start_breaks_a_promise_of_ours_and_not_of_a_peer() -> None:
    assert broken_promises({"figure": "burst", "early": 1, "lost": 0}) == ["early"]
    assert broken_promises({"figure": "burst", "peer": "other", "early": 1}) == []


def test_the_page_has_a_row_for_every_target_whatever_was_measured() -> None:
    few = report([line(**PACE)])
    assert all(f"| {target.what} | {target.asked} |" in few for target in TARGETS)
    assert few.count("not measured in this run") == len(TARGETS) - 1


def test_the_page_says_what_was_reached_missed_smaller_left_out_and_failed() -> None:
    page = report(
        [
            line(**PACE, ratio=0.75, ratio_to="raw", ratio_to_best_peer=1.2, best_peer="Other"),
            line(figure="drain_1", peer="Other", per_second=50_000),
            line(figure="drain_2", per_second=69_000, n=300_000),
            line(**{**LATE, "n": 500}, recorded_after_seconds=0.1),
            line(figure="attempts_http", skipped="no such tasks"),
            line(figure="api", failed="RuntimeError: it broke"),
        ]
    )
    rows = {row.split(" | ")[0].strip("| "): row for row in page.splitlines() if row.startswith("| ")}
    assert "| 60,000/s | 0.75 × | 1.20 × (Other) | reached |" in rows["drain of 300,000, 1 worker process"]
    assert "**not reached**" in rows["drain of 300,000, 2 worker processes"]
    assert "smaller: n 500" in rows["burst: 5,000 due at one instant"]
    assert "no such tasks" in rows["10,000 HTTP attempts at once"]
    assert "it broke" in rows["API, one process, reads and writes mixed"]
    assert "50,000/s" in rows["Other"]


def test_the_summary_gives_medians_of_rounds_and_names_what_failed() -> None:
    rounds = [line(figure="fire", per_second=pace) for pace in (10, 30, 20)]
    told = summary([*rounds, line(figure="api", failed="no"), line(figure="burst", skipped="not here")])
    assert "20/s (10/s to 30/s)" in told
    assert "api FAILED: no" in told
    assert "burst left out: not here" in told
