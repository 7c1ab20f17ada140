"""`detent fleet`: what it shows of three schedulers and two workers, and of one that is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from killing import Systems
from settling import shards_are_shared
from systems import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def shown(systems: Systems, what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = systems.up.json("fleet", what)
    return found


def owners(systems: Systems) -> dict[int, tuple[str, int]]:
    """Owner and epoch of each shard."""
    return {one["shard"]: (one["node_id"], one["epoch"]) for one in shown(systems, "shards")}


def test_the_fleet_is_shown_with_owners_epochs_lag_and_skew(tmp_path: Path) -> None:
    with Systems(tmp_path, schedulers=3, workers=2) as systems:
        systems.start().ready()
        until(lambda: shards_are_shared(systems), 20, "an owner for each shard")
        nodes = shown(systems, "nodes")
        assert {one["pid"] for one in nodes if one["live"]} == systems.roles()["scheduler"]
        assert sum(one["shards"] for one in nodes) == 256
        for one in nodes:
            assert one["shards"] > 40
            assert one["lag_ms"] >= 0
            assert abs(one["skew_ms"]) < 1000  # the same machine's clock
        before = owners(systems)
        assert {owner for owner, _ in before.values()} == {one["node_id"] for one in nodes}
        assert all(epoch >= 1 for _, epoch in before.values())
        assert all(one["lag_ms"] < 1000 for one in shown(systems, "shards"))

        victim = nodes[0]
        os.kill(victim["pid"], signal.SIGKILL)
        until(lambda: victim["node_id"] not in dict(owners(systems).values()), 10, "other owners")
        for shard, (owner, epoch) in owners(systems).items():
            if before[shard][0] == victim["node_id"]:
                assert owner != victim["node_id"]
                assert epoch > before[shard][1], "a new owner means a new epoch"
        until(lambda: not _live(systems, victim["node_id"]), 15, "its being shown as gone")
        lines = systems.up.detent("fleet", "nodes").stdout.splitlines()
        [line] = [line for line in lines if victim["node_id"] in line]
        assert " gone " in line

        table = systems.up.detent("fleet", "shards").stdout
        assert "nobody" not in table
        assert len(systems.up.detent("fleet", "shards", "--all").stdout.splitlines()) >= 256
        workers = [one for one in shown(systems, "workers") if one["live"]]
        assert {one["pid"] for one in workers} == systems.roles()["worker"]
        assert [one["stale_writes"] for one in workers] == [0, 0]
        systems.stop()


def _live(systems: Systems, node_id: str) -> bool:
    return any(one["live"] for one in shown(systems, "nodes") if one["node_id"] == node_id)
