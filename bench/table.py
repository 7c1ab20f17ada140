"""The summary of a run: ratios first, because they outlive the machine; then what was reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.machine import DISTURBED
from bench.percentile import median
from bench.step import broken_promises

Line = Mapping[str, Any]
Row = tuple[str, str]

_WARNING = "Others used up to {:.0%} of the cores right before or after a figure: disturbed, measure again."
_UNITS = {"ms": " ms", "seconds": " s", "mb": " MB", "gb": " GB", "second": "/s", "ratio": " ×"}


def summary(lines: Sequence[Line]) -> str:
    """Medians of each figure, with the least and the greatest of its rounds."""
    figures: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if not {"failed", "skipped"} & line.keys():
            figures.setdefault((line["figure"], line.get("peer", "")), []).append(line)
    ratios: list[Row] = []
    reached: list[Row] = []
    for (name, peer), rounds in figures.items():
        shown = f"{name} · {peer}" if peer else name
        for ratio, of in (("ratio", "ratio_to"), ("ratio_to_best_peer", "best_peer")):
            if ratio in rounds[0]:
                ratios.append((f"{shown} / {rounds[-1][of]}", spread(rounds, ratio, "{:.2f} ×")))
        reached.append((shown, _reached(rounds)))
    parts = [table(("held against", "ratio"), ratios), table(("figure", "reached"), reached)]
    parts += [f"{_named(line)} left out: {line['skipped']}" for line in lines if "skipped" in line]
    parts += [f"{_named(line)} FAILED: {line['failed']}" for line in lines if "failed" in line]
    parts += [
        f"{_named(line)} BROKE A PROMISE: {', '.join(what)}"
        for line in lines
        if (what := broken_promises(line))
    ]
    others = max((line.get("others_busy", 0.0) for line in lines), default=0.0)
    if others >= DISTURBED:
        parts.append(_WARNING.format(others))
    return "\n\n".join(part for part in parts if part)


def _named(line: Line) -> str:
    return f"{line['figure']} · {line['peer']}" if "peer" in line else str(line["figure"])


def _reached(rounds: Sequence[Line]) -> str:
    first = rounds[0]
    if "per_second" in first:
        text = spread(rounds, "per_second", "{:,.0f}/s")
        return f"{text}, p99 {first['p99_ms']:.1f} ms" if "p99_ms" in first else text
    if "early" in first and "p50_ms" in first:
        after = first.get("recorded_after_seconds")
        return (
            f"p50 {first['p50_ms']:.2f}, p99 {first['p99_ms']:.2f}, max {first['max_ms']:.2f} ms,"
            f" early {first['early']} of {first['n']:,}"
            + (f", recorded after {after:.2f} s" if after else "")
        )
    told = {name: value for name, value in first.items() if isinstance(value, int | float)}
    return ", ".join(f"{name} {value:,}" for name, value in told.items() if name != "others_busy")


def spread(rounds: Sequence[Line], field: str, form: str, middle: Callable[..., float] = median) -> str:
    values = [line[field] for line in rounds if field in line]
    told = form.format(middle(values))
    if len(values) == 1:
        return told
    return f"{told} ({form.format(min(values))} to {form.format(max(values))})"


def table(head: Row, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    rows = [head, *rows]
    wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
    text = [f"| {a:<{wide[0]}} | {b:<{wide[1]}} |" for a, b in rows]
    text.insert(1, f"| {'-' * wide[0]} | {'-' * wide[1]} |")
    return "\n".join(text)
