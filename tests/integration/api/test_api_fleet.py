"""Who is there, through HTTP: nodes, shards, workers; and what the overview says is wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from api_client import Api

from detent.cli.wiring import PostgresPulse
from detent.fire.node import Node
from detent.model.ids import new_incarnation_id, shard_of
from detent.model.work import Beat
from detent.store import work
from detent.store.alerts import raise_alert, resolve_alert
from detent.store.fleet import LEASE_SECONDS

OTHER = 2


async def items(api: Api, path: str) -> list[dict[str, Any]]:
    answer = await api.get(f"/fleet/{path}")
    assert answer.status == 200, answer.text
    assert answer.body["next_cursor"] is None
    found: list[dict[str, Any]] = answer.body["items"]
    return found


async def beat(api: Api, worker_id: UUID, **said: Any) -> None:
    pulse = PostgresPulse(await api.stage.hot.dedicated())
    try:
        await pulse.beat(worker_id, Beat(**said))
    finally:
        await pulse.close()


async def silent(api: Api, table: str, key: str, one: UUID, seconds: float) -> None:
    """This one was last heard of so long ago."""
    await api.stage.db.execute(
        f"update detent.{table} set beat_at = clock_timestamp() - $2::interval where {key} = $1",
        one,
        timedelta(seconds=seconds),
    )


async def strangers(api: Api, table: str, key: str, one: UUID) -> None:
    """This one is another tenant's."""
    await api.stage.db.execute(
        "insert into detent.tenants (tenant, name) values ($1, 'stranger') on conflict do nothing", OTHER
    )
    await api.stage.db.execute(f"update detent.{table} set tenant = $2 where {key} = $1", one, OTHER)


async def test_an_empty_fleet_is_empty_lists_and_ownerless_shards(api: Api) -> None:
    assert await items(api, "nodes") == await items(api, "workers") == []
    shards = await items(api, "shards")
    assert [one["shard"] for one in shards] == list(range(256))
    assert {(one["node_id"], one["expires_at"], one["next_due_at"], one["lag_ms"]) for one in shards} == {
        (None, None, None, 0)
    }


# Nodes


async def test_a_node_is_shown_with_its_shards_and_lag(api: Api) -> None:
    node = Node(api.stage.hot, api.stage.clock, changed=lambda gained: None, lag_ms=lambda: 12.3456)
    try:
        await node.run_once()
        [found] = await items(api, "nodes")
        assert (found["node_id"], found["shards"], found["lag_ms"]) == (str(node.node_id), 256, 12.346)
        assert (found["live"], found["standby"], found["leaving"]) == (True, False, False)
        assert abs(found["skew_ms"]) < 60_000
        assert found["ended_at"] is None
    finally:
        await node.closed()
    [found] = await items(api, "nodes")
    assert (found["live"], found["shards"], found["ended_at"] is None) == (False, 0, False)


async def test_those_that_live_come_first_and_a_silent_one_is_not_live(api: Api) -> None:
    gone, silenced, standby = (
        await api.stage.node(),
        await api.stage.node(),
        await api.stage.node(standby=True),
    )
    await gone.closed()
    await silent(api, "nodes", "node_id", silenced.node_id, LEASE_SECONDS + 1)
    found = await items(api, "nodes")
    assert [one["node_id"] for one in found] == [str(one.node_id) for one in (standby, silenced, gone)], (
        "newest first among those that have not ended"
    )
    assert [(one["live"], one["standby"]) for one in found] == [(True, True), (False, False), (False, False)]
    assert [one["node_id"] for one in await items(api, "nodes?limit=1")] == [str(standby.node_id)]


# Shards


async def test_shards_name_their_owner_and_epoch(api: Api) -> None:
    first = await api.stage.node()
    assert {(one["node_id"], one["epoch"]) for one in await items(api, "shards")} == {(str(first.node_id), 1)}
    second = await api.stage.node()
    await first.run_once()
    found = await items(api, "shards")
    by_owner = {(one["node_id"], one["epoch"]) for one in found}
    assert by_owner == {(str(first.node_id), 1), (str(second.node_id), 2)}
    assert all(one["expires_at"] is not None for one in found)
    counts = {one["node_id"]: one["shards"] for one in await items(api, "nodes")}
    for node_id, count in counts.items():
        assert sum(one["node_id"] == node_id for one in found) == count > 0


async def test_a_shard_says_how_far_behind_it_is(api: Api) -> None:
    late = await api.job(scheduled_at=(api.stage.now() - timedelta(minutes=5)).isoformat())
    early = await api.job(scheduled_at="2099-01-01T00:00:00Z")
    paused = await api.job(cron="* * * * *")
    await api.post(f"/jobs/{paused['job_id']}/pause")
    shards = {one["shard"]: one for one in await items(api, "shards")}
    behind = shards[shard_of(UUID(late["job_id"]))]
    assert 300_000 <= behind["lag_ms"] < 400_000
    assert behind["next_due_at"] == late["scheduled_at"]
    ahead = shards[shard_of(UUID(early["job_id"]))]
    if ahead is not behind:
        assert (ahead["lag_ms"], ahead["next_due_at"]) == (0, "2099-01-01T00:00:00.000Z")
    due = {shard_of(UUID(one["job_id"])) for one in (late, early)}
    assert {shard for shard, one in shards.items() if one["next_due_at"]} == due
    assert await api.stage.fire() == 1
    shards = {one["shard"]: one for one in await items(api, "shards")}
    assert {one["lag_ms"] for one in shards.values()} == {0}


# Workers


async def test_a_worker_is_shown_with_what_it_said_in_its_last_beat(api: Api) -> None:
    worker_id = await api.stage.worker(pools=("fast", "default"))
    claimed = (new_incarnation_id(), 1, 5)
    await beat(api, worker_id, holding=(claimed,), stale_writes=7)
    [found] = await items(api, "workers")
    assert (found["worker_id"], found["name"], found["host"]) == (str(worker_id), "worker", "here")
    assert (found["pools"], found["slots"], found["tasks"]) == (["fast", "default"], 10, ["noop"])
    assert (found["status"], found["live"], found["in_flight"]) == ("live", True, 1)
    assert (found["stale_writes"], found["ended_at"]) == (7, None)


async def test_workers_that_left_or_were_lost_come_last(api: Api) -> None:
    stopped, lost, silenced, live = [await api.stage.worker(lease_seconds=30) for _ in range(4)]
    await work.stop(api.stage.db, stopped)
    await api.stage.db.execute(
        "update detent.workers set status = 'lost', ended_at = clock_timestamp() where worker_id = $1", lost
    )
    await silent(api, "workers", "worker_id", silenced, 31)
    found = await items(api, "workers")
    assert [one["worker_id"] for one in found] == [str(one) for one in (live, silenced, lost, stopped)]
    assert [(one["status"], one["live"]) for one in found] == [
        ("live", True),
        ("live", False),
        ("lost", False),
        ("stopped", False),
    ]
    assert len(await items(api, "workers?limit=2")) == 2


# All three


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("nodes?limit=0", "limit"),
        ("nodes?limit=501", "limit"),
        ("workers?limit=x", "limit"),
        ("workers?cursor=AA", "cursor"),
        ("shards?limit=5", "limit"),
    ],
)
async def test_a_wrong_parameter_is_refused_by_name(api: Api, path: str, field: str) -> None:
    (await api.get(f"/fleet/{path}")).refuses(field)


async def test_another_tenants_nodes_and_workers_are_not_shown(api: Api) -> None:
    node, worker_id = await api.stage.node(), await api.stage.worker()
    await beat(api, worker_id, stale_writes=3)
    await strangers(api, "nodes", "node_id", node.node_id)
    await strangers(api, "workers", "worker_id", worker_id)
    assert await items(api, "nodes") == await items(api, "workers") == []
    assert (await api.get("/stats/overview")).body["stale_writes"] == 0


# What is wrong


async def test_the_overview_adds_up_the_stale_writes_of_all_workers(api: Api) -> None:
    assert (await api.get("/stats/overview")).body["stale_writes"] == 0
    for count in (2, 5):
        worker_id = await api.stage.worker()
        await beat(api, worker_id, stale_writes=count)
    await work.stop(api.stage.db, worker_id)
    assert (await api.get("/stats/overview")).body["stale_writes"] == 7


async def test_the_overview_shows_open_alerts_newest_first_and_counts_repeats(api: Api) -> None:
    db = api.stage.db
    for host in ("a", "b", "a"):
        await raise_alert(db, "clock_skew", host, f"the clock of {host} is off")
    await raise_alert(db, "clock_jump", "database", "it jumped")
    found = (await api.get("/stats/overview")).body["alerts"]
    assert [(one["kind"], one["subject"], one["times"]) for one in found] == [
        ("clock_jump", "database", 1),
        ("clock_skew", "b", 1),
        ("clock_skew", "a", 2),
    ]
    assert found[2]["message"] == "the clock of a is off"
    assert found[2]["raised_at"] <= found[2]["last_at"]
    await resolve_alert(db, "clock_skew", "a")
    await resolve_alert(db, "clock_jump", "database")
    found = (await api.get("/stats/overview")).body["alerts"]
    assert [one["subject"] for one in found] == ["b"]


async def test_a_parked_job_is_an_alert_until_it_is_mended(api: Api) -> None:
    job = await api.job(every=3600)
    job_id = UUID(job["job_id"])
    await api.stage.db.execute(
        "update detent.timers set due_at = clock_timestamp() - interval '1 second' where job_id = $1", job_id
    )
    await api.stage.db.execute(
        "update detent.job_revisions set spec = jsonb_set(spec, '{timezone}', '\"Mars/Base\"') "
        '|| \'{"cron": "0 9 * * *", "every": null}\' where job_id = $1',
        job_id,
    )
    await api.stage.fire()
    [alert] = (await api.get("/stats/overview")).body["alerts"]
    assert (alert["kind"], alert["subject"]) == ("parked", job["job_id"])
    assert (await api.patch(f"/jobs/{job_id}", {"cron": None, "every": 60, "timezone": "UTC"})).status == 200
    assert (await api.get("/stats/overview")).body["alerts"] == []


async def test_only_the_newest_twenty_alerts_are_shown(api: Api) -> None:
    for number in range(25):
        await raise_alert(api.stage.db, "clock_skew", f"host {number}", "off")
    found = (await api.get("/stats/overview")).body["alerts"]
    assert [one["subject"] for one in found] == [f"host {number}" for number in range(24, 4, -1)]
