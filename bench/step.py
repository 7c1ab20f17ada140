"""One figure: how it is measured, what it is held against, and how its line is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Figure = dict[str, Any]
Measure = Callable[[str], Awaitable[Figure | list[Figure]]]


class Skipped(Exception):
    """This cannot be measured here, and why. No failure."""


@dataclass(frozen=True)
class Step:
    """`measure` gets the URL of a fresh database with the schema; for a peer, without it. It answers one figure, or
    several that name themselves."""

    name: str
    measure: Measure
    raw: str | None = None
    peer: str | None = None
    migrated: bool = True
    limit: float = 300.0


def with_ratios(figure: Figure, raw: Mapping[str, Any] | None, peers: Iterable[Mapping[str, Any]]) -> Figure:
    """The figure behind its ratios: a share of the raw limit's pace, or a multiple of its lateness; a
    multiple of the best peer's pace, or of its 99th percentile."""
    ratios: Figure = {}
    if raw is not None:
        of = "per_second" if "per_second" in figure else "p50_ms"
        ratios |= {"ratio": round(figure[of] / raw[of], 3), "ratio_to": raw["figure"]}
    pace = "per_second" in figure
    of = "per_second" if pace else "p99_ms"
    able = [peer for peer in peers if peer.get(of) and not peer.get("early")]
    if able and of in figure:
        best = (max if pace else min)(able, key=lambda peer: float(peer[of]))
        ratios |= {"ratio_to_best_peer": round(figure[of] / best[of], 3), "best_peer": best["peer"]}
    return {**ratios, **figure}


def broken_promises(line: Mapping[str, Any]) -> list[str]:
    """What must be zero in a line of ours, whatever its pace, and is not."""
    if "peer" in line:
        return []
    return [name for name in ("early", "lost", "twice", "leases_lost") if line.get(name)]
