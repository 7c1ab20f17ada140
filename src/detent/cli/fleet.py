"""`detent fleet ...`: who is there."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any

import click

from detent.cli.output import as_json as print_json
from detent.cli.output import table
from detent.cli.remote import connect, talks_to_server
from detent.cli.times import local, milliseconds


@click.group()
def fleet() -> None:
    """Show scheduler nodes, shards and workers."""


@fleet.command()
@talks_to_server
def nodes(url: str | None, as_json: bool) -> None:
    """Scheduler nodes: how many shards each owns, how late it fires, how far its clock is off."""
    found = connect(url).fleet("nodes")
    if as_json:
        print_json(found)
        return
    rows = (
        (
            one["node_id"],
            f"{one['host']}:{one['pid']}",
            _node_state(one),
            str(one["shards"]),
            milliseconds(one["lag_ms"]),
            _skew(one["skew_ms"]),
            local(_at(one["started_at"])),
        )
        for one in found
    )
    table(("id", "process", "state", "shards", "lag", "skew", "since"), rows, empty="no scheduler yet")


def _skew(found: float | None) -> str:
    if found is None:
        return "–"
    return f"{found:+.1f} ms" if abs(found) >= 0.05 else "0 ms"


def _node_state(one: dict[str, Any]) -> str:
    if not one["live"]:
        return "ended" if one["ended_at"] else "gone"
    return "leaving" if one["leaving"] else "standby" if one["standby"] else "live"


@fleet.command()
@click.option("--all", "everything", is_flag=True, help="One line for each of the 256 shards.")
@talks_to_server
def shards(everything: bool, url: str | None, as_json: bool) -> None:
    """Shards: who owns them, under which epoch, and how far behind they are."""
    found = connect(url).fleet("shards")
    if as_json:
        print_json(found)
        return
    if everything:
        every = (
            (str(s["shard"]), s["node_id"] or "nobody", str(s["epoch"]), milliseconds(s["lag_ms"]))
            for s in found
        )
        table(("shard", "owner", "epoch", "lag"), every, empty="")
        return
    by_owner: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in found:
        by_owner[one["node_id"] or "nobody"].append(one)
    rows = (
        (
            owner,
            str(len(theirs)),
            f"{min(s['epoch'] for s in theirs)}–{max(s['epoch'] for s in theirs)}",
            milliseconds(max(s["lag_ms"] for s in theirs)),
        )
        for owner, theirs in sorted(by_owner.items())
    )
    table(("owner", "shards", "epochs", "worst lag"), rows, empty="")


@fleet.command()
@talks_to_server
def workers(url: str | None, as_json: bool) -> None:
    """Workers: their pools, how much they run now, how much they reported too late."""
    found = connect(url).fleet("workers")
    if as_json:
        print_json(found)
        return
    rows = (
        (
            one["worker_id"],
            one["name"],
            one["status"] if one["live"] or one["ended_at"] else f"{one['status']}, silent",
            ", ".join(one["pools"]),
            f"{one['in_flight']}/{one['slots']}",
            str(len(one["tasks"])),
            str(one["stale_writes"]),
            local(_at(one["beat_at"])),
        )
        for one in found
    )
    columns = ("id", "name", "state", "pools", "running", "tasks", "stale writes", "last beat")
    table(columns, rows, empty="no worker yet")


def _at(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
