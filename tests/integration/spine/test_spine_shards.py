"""Shard leases: nodes share them by rendezvous, and they pass on when their owner is gone or leaves."""

from __future__ import annotations

import asyncio

import pytest

from detent.fire import node as node_module
from detent.fire.node import Node
from detent.model.ids import SHARDS
from stage import SECOND, Stage

ALL = set(range(SHARDS))


async def held(stage: Stage, node: Node) -> set[int]:
    rows = await stage.db.fetch("select shard from detent.shard_leases where node_id = $1", node.node_id)
    return {row["shard"] for row in rows}


async def silence(stage: Stage, node: Node) -> None:
    """Its last beat was long ago."""
    await stage.db.execute(
        "update detent.nodes set beat_at = clock_timestamp() - interval '1 hour' where node_id = $1",
        node.node_id,
    )


async def test_one_node_owns_every_shard(stage: Stage) -> None:
    node = await stage.node()
    assert set(node.epochs) == ALL
    assert set(node.epochs.values()) == {1}


async def test_a_node_that_renews_keeps_its_epoch(stage: Stage) -> None:
    node = await stage.node()
    before = dict(node.epochs)
    for _ in range(3):
        await node.run_once()
    assert node.epochs == before


async def test_two_nodes_share_the_shards_and_none_is_unowned(stage: Stage) -> None:
    first, second = await stage.node(), await stage.node()
    await first.run_once()
    ours, theirs = await held(stage, first), await held(stage, second)
    assert ours | theirs == ALL
    assert not ours & theirs
    assert min(len(ours), len(theirs)) > 80


async def test_a_third_node_moves_only_what_it_gains(stage: Stage) -> None:
    first, second = await stage.node(), await stage.node()
    await first.run_once()
    before = await held(stage, first), await held(stage, second)
    third = await stage.node()
    for node in (first, second, third):
        await node.run_once()
    gained = await held(stage, third)
    assert await held(stage, first) == before[0] - gained
    assert await held(stage, second) == before[1] - gained
    assert len(gained) > 50


async def test_a_new_owner_means_a_new_epoch(stage: Stage) -> None:
    await stage.node()
    second = await stage.node()
    assert set(second.epochs.values()) == {2}


async def test_who_had_a_shard_fires_on_in_it_for_a_moment(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await stage.node()
    second = await stage.node()
    await first.run_once()
    assert set(first.epochs) == ALL
    assert await held(stage, first) == ALL - await held(stage, second)
    monkeypatch.setattr(node_module, "AFTERGLOW", 0.0)
    first._fading = {shard: (epoch, 0.0) for shard, (epoch, _) in first._fading.items()}
    await first.run_once()
    assert set(first.epochs) == await held(stage, first)


async def test_when_a_nodes_session_ends_the_others_take_over_at_once(stage: Stage) -> None:
    first, second = await stage.node(), await stage.node()
    assert first._lock is not None
    await first._lock.close()  # as the kernel does after kill -9; its beat is fresh
    await second.run_once()
    assert await held(stage, second) == ALL


async def test_when_a_nodes_beat_is_old_the_others_take_over_although_it_holds_its_lock(stage: Stage) -> None:
    first, second = await stage.node(), await stage.node()
    await silence(stage, first)
    await second.run_once()
    assert await held(stage, second) == ALL


async def test_a_node_that_died_before_the_clock_was_set_back_owns_nothing(stage: Stage) -> None:
    """Its lock may be held for long, by a machine that stands still; its beat lies ahead and grows no older."""
    first, second = await stage.node(), await stage.node()
    await stage.db.execute(
        "update detent.nodes set beat_at = clock_timestamp() + interval '10 min' where node_id = $1",
        first.node_id,
    )
    await second.run_once()
    assert await held(stage, second) == ALL
    await first.run_once()
    await second.run_once()
    assert len(await held(stage, second)) < SHARDS  # it lives after all


async def test_a_node_that_was_forgotten_joins_anew(stage: Stage) -> None:
    first, second = await stage.node(), await stage.node()
    await stage.db.execute("update detent.shard_leases set node_id = $1", second.node_id)
    await stage.db.execute("delete from detent.nodes where node_id = $1", first.node_id)
    for node in (first, second, first, second):
        await node.run_once()
    assert len(await held(stage, first)) > 80
    assert await held(stage, first) | await held(stage, second) == ALL


async def test_a_node_that_wakes_up_late_gets_its_share_again(stage: Stage) -> None:
    first, second = await stage.node(), await stage.node()
    await silence(stage, first)
    await second.run_once()
    await first.run_once()
    await second.run_once()
    assert await held(stage, first) | await held(stage, second) == ALL
    assert len(await held(stage, first)) > 80


async def test_a_node_on_standby_owns_nothing_while_another_lives(stage: Stage) -> None:
    first = await stage.node()
    second = await stage.node(standby=True)
    assert second.epochs == {}
    await silence(stage, first)
    await second.run_once()
    assert await held(stage, second) == ALL


async def test_a_node_that_leaves_waits_until_another_has_its_shards(stage: Stage) -> None:
    first, second = await stage.node(), await stage.node()
    leaving = asyncio.create_task(first.hand_over())
    await asyncio.sleep(0)
    await first.run_once()
    assert not leaving.done()
    await second.run_once()
    assert await held(stage, second) == ALL
    await first.run_once()
    assert set(first.epochs) == ALL  # it fires on until it is gone
    async with asyncio.timeout(5):
        await leaving
    await first.closed()
    assert await held(stage, second) == ALL


async def test_a_node_that_leaves_alone_does_not_wait(stage: Stage) -> None:
    node = await stage.node()
    async with asyncio.timeout(1):
        await node.hand_over()
    await node.closed()
    ended = await stage.db.fetchval("select ended_at from detent.nodes where node_id = $1", node.node_id)
    assert ended is not None
    assert await held(stage, node) == set()


async def test_a_node_says_which_shards_are_new(stage: Stage) -> None:
    heard: list[set[int]] = []
    first = await stage.node()
    first._changed = heard.append
    await first.run_once()
    assert heard == []
    second = await stage.node()
    await first.run_once()
    assert heard == []
    lost = await held(stage, second)
    await second.closed()
    await first.run_once()
    assert heard == [lost]


async def test_a_node_without_shards_fires_nothing(stage: Stage) -> None:
    await stage.node()
    second = await stage.node(standby=True)
    await stage.jobs([stage.now() - SECOND] * 3, scheduled_at=stage.now())
    firer = await stage.firer(second)
    await firer.run_once()
    assert firer.fired == 0
    assert await stage.rows("live") == []


async def test_a_node_that_lost_its_shards_without_knowing_repeats_nothing(stage: Stage) -> None:
    """Leases make it fast, constraints make it correct."""
    first = await stage.node()
    jobs = await stage.jobs([stage.now() - SECOND] * 30, scheduled_at=stage.now())
    old = await stage.firer(first)
    for timer in await stage.due(*jobs):
        old._wheel.insert(timer)
    old._reload = False
    await silence(stage, first)
    second = await stage.node()
    new = await stage.firer(second)
    await new.run_once()
    assert new.fired == 30
    after = await stage.everything()
    await old.run_once()
    assert old.fired == 0
    assert await stage.everything() == after
    assert {row["node_id"] for row in after["fires"]} == {second.node_id}
    assert {row["epoch"] for row in after["fires"]} == {2}
