"""The table of `docs/performance.md`, made of a run's lines and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.machine import DISTURBED
from bench.percentile import median
from bench.targets import TARGETS, Line, Target, late, pace

_RAW = {
    "plain_queue": "plain queue",
    "raw_claim_close": "raw claim + close",
    "raw_fire": "raw fire, one connection",
    "fire": "fire, 1 scheduler",
    "raw_pipeline": "raw fire + claim + close",
    "raw_lateness_100": "raw lateness at 100/s",
    "lateness_few": "lateness at 15,000 fires/s, nothing else stored",
    "bulk_load": "jobs copied into the store",
}
_PEERS = {
    "drain_1": "drain, 1 process",
    "drain_2": "drain, 2 processes",
    "lateness_100": "lateness at 100/s",
    "burst": "burst at one instant",
}


def report(lines: Sequence[dict[str, Any]]) -> str:
    """Every target with what was reached, then the raw limits, then the peers. Medians where there were rounds."""
    found = _medians(lines)
    if not found:
        return "These lines have no figures."
    if (few := found.get(("lateness_few", ""))) and (stored := found.get(("lateness_stored", ""))):
        found["lateness_stored", ""] = stored | {"few_p50_ms": few["p50_ms"], "few_p99_ms": few["p99_ms"]}
    why = {
        line["figure"]: line.get("skipped") or line.get("failed")
        for line in lines
        if {"skipped", "failed"} & line.keys() and "peer" not in line
    }
    rows = [
        "| what | target | reached | of raw | of the best peer | |",
        "| --- | --- | --- | ---: | ---: | --- |",
        *(_row(target, found, why) for target in TARGETS),
    ]
    return "\n".join(
        [_head(lines), "", *rows, "", *_limits(found), "", *_peers(lines, found), "", *_disturbed(lines)]
    )


def _head(lines: Sequence[Line]) -> str:
    of = lines[-1]
    machine, versions = of["machine"], of["versions"]
    return (
        f"{lines[0]['date'][:16].replace('T', ' ')} to {of['date'][11:16]} UTC, size `{of['size']}`, "
        f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gb']} GB, "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
        + "; fsync, synchronous_commit and full_page_writes on."
    )


def _medians(lines: Sequence[Line]) -> dict[tuple[str, str], dict[str, Any]]:
    """Each figure with the median of every number of its rounds."""
    rounds: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if not {"failed", "skipped"} & line.keys():
            rounds.setdefault((line["figure"], line.get("peer", "")), []).append(line)
    return {key: {**several[-1], **_middle(several)} for key, several in rounds.items()}


def _middle(several: Sequence[Line]) -> dict[str, Any]:
    numbers = [name for name, value in several[-1].items() if isinstance(value, int | float)]
    return {name: median([line[name] for line in several if name in line]) for name in numbers}


def _row(target: Target, found: Mapping[tuple[str, str], Line], why: Mapping[str, str | None]) -> str:
    line = found.get((target.figure, ""))
    if line is None:
        told = why.get(target.figure) or "not measured in this run"
        return f"| {target.what} | {target.asked} | {told} | | | |"
    raw = f"{line['ratio']:.2f} ×" if "ratio" in line else ""
    peer = f"{line['ratio_to_best_peer']:.2f} × ({line['best_peer']})" if "best_peer" in line else ""
    verdict = "reached" if target.met(line) else "**not reached**"
    if target.size and line[target.size[0]] != target.size[1]:
        verdict = f"smaller: {target.size[0]} {line[target.size[0]]:,.0f}"
    return f"| {target.what} | {target.asked} | {target.shown(line)} | {raw} | {peer} | {verdict} |"


def _limits(found: Mapping[tuple[str, str], Line]) -> list[str]:
    rows = [
        f"| {name} | {pace(line) if 'per_second' in line else _late(line)} |"
        for figure, name in _RAW.items()
        if (line := found.get((figure, "")))
    ]
    return ["| raw limits and parts | reached |", "| --- | ---: |", *rows] if rows else []


def _late(line: Line) -> str:
    return late(line) if "early" in line else f"{line['p50_ms']:.2f} / {line['p99_ms']:.2f} ms"


def _peers(lines: Sequence[Line], found: Mapping[tuple[str, str], Line]) -> list[str]:
    names = list(dict.fromkeys(line["peer"] for line in lines if "peer" in line))
    if not names:
        return []
    absent = {(line["figure"], line["peer"]): line for line in lines if "peer" in line}
    rows = [f"| peer | {' | '.join(_PEERS.values())} |", f"| --- |{' ---: |' * len(_PEERS)}"]
    for name in [*names, ""]:
        cells = []
        for figure in _PEERS:
            if line := found.get((figure, name)):
                cells.append(pace(line) if "per_second" in line else late(line))
            elif line := absent.get((figure, name)):
                cells.append(str(line.get("skipped") or line.get("failed")))
            else:
                cells.append("–")
        rows.append(f"| {name or '**Detent**'} | {' | '.join(cells)} |")
    return rows


def _disturbed(lines: Sequence[Line]) -> list[str]:
    share = max((line.get("others_busy", 0.0) for line in lines), default=0.0)
    if share < DISTURBED:
        return []
    return [f"Others used up to {share:.0%} of the cores right before or after a figure: a disturbed run."]
