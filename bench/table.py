"""The summary: ratios first, because they outlive the machine; then what was reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.machine import DISTURBED
from bench.percentile import median

Result = tuple[str, Mapping[str, Any]]
Lines = list[tuple[str, str, str]]

# What the design asks for.
TO_REACH = {
    "drain_1": "≥ 60,000/s",
    "drain_2": "≥ 70,000/s",
    "fire": "≥ 40,000/s",
    "p50_ms": "≤ 0.5 ms",
    "p99_ms": "≤ 2.0 ms",
    "early": "0",
}
_WARNING = "Others used up to {:.0%} of the cores right before or after a figure: disturbed, measure again."
NAMES = {
    "plain_queue": "plain queue",
    "raw_claim_close": "raw claim + close",
    "drain_1": "drain, 1 worker",
    "drain_2": "drain, 2 workers",
    "raw_fire": "raw fire",
    "fire": "fire, 1 scheduler",
    "raw_lateness": "raw lateness",
    "lateness": "lateness",
}


def with_ratio(
    figure: dict[str, Any], limit: Mapping[str, Any] | None, limit_name: str | None
) -> dict[str, Any]:
    """The figure with its ratio to the raw limit of the same round: a share of its pace, a multiple of its
    lateness."""
    if limit is None:
        return figure
    of = "per_second" if "per_second" in figure else "p50_ms"
    return {**figure, "ratio": round(figure[of] / limit[of], 3), "ratio_to": limit_name}


def summary(results: Sequence[Result]) -> str:
    """A table of medians; the spread of the rounds behind each."""
    figures: dict[str, list[Mapping[str, Any]]] = {}
    for name, figure in results:
        figures.setdefault(name, []).append(figure)
    ratios: Lines = []
    reached: Lines = []
    for name, rounds in figures.items():
        shown = NAMES[name]
        if "ratio" in rounds[0]:
            ratios.append((f"{shown} / {NAMES[rounds[0]['ratio_to']]}", _ratio(rounds), ""))
        if "per_second" in rounds[0]:
            reached.append((shown, _pace(rounds), TO_REACH.get(name, "")))
        else:
            reached += _lateness(name, rounds[0])
    table = _table([("what", "reached", "to reach"), *ratios, *reached])
    others = max((figure["others_busy"] for _, figure in results), default=0.0)
    return table if others < DISTURBED else f"{table}\n\n{_WARNING.format(others)}"


def _ratio(rounds: Sequence[Mapping[str, Any]]) -> str:
    form = "{:.0%}" if "per_second" in rounds[0] else "{:.1f} x"
    return _spread([figure["ratio"] for figure in rounds], form)


def _pace(rounds: Sequence[Mapping[str, Any]]) -> str:
    return _spread([figure["per_second"] for figure in rounds], "{:,.0f}/s")


def _spread(values: Sequence[float], form: str) -> str:
    middle = form.format(median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({form.format(min(values))} to {form.format(max(values))})"


def _lateness(name: str, figure: Mapping[str, Any]) -> Lines:
    at = f"{NAMES[name]} at {figure['rate']}/s"
    ours = name == "lateness"
    lines = [
        (f"{at}, {key[:3]}", f"{figure[key]:.2f} ms", TO_REACH.get(key, "") if ours else "")
        for key in ("p50_ms", "p99_ms", "max_ms")
    ]
    if ours:
        lines.append((f"{at}, early starts of {figure['n']:,}", str(figure["early"]), TO_REACH["early"]))
    return lines


def _table(lines: Lines) -> str:
    first, second, third = (max(len(line[column]) for line in lines) for column in range(3))
    rows = [f"| {a:<{first}} | {b:>{second}} | {c:>{third}} |" for a, b, c in lines]
    rows.insert(1, f"| {'-' * first} | {'-' * (second - 1)}: | {'-' * (third - 1)}: |")
    return "\n".join(rows)
