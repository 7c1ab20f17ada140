"""Shard leases: they make firing fast, and pass on when their owner is gone."""

from __future__ import annotations

from detent.model.ids import SHARDS
from stage import SECOND, Stage

ALL = set(range(SHARDS))


async def test_one_node_owns_every_shard(stage: Stage) -> None:
    node = await stage.node()
    assert set(node.epochs) == ALL
    assert set(node.epochs.values()) == {1}


async def test_a_second_node_owns_nothing_while_the_first_lives(stage: Stage) -> None:
    first = await stage.node()
    second = await stage.node()
    await first.run_once()
    await second.run_once()
    assert set(first.epochs) == ALL
    assert second.epochs == {}


async def test_a_node_that_renews_keeps_its_epoch(stage: Stage) -> None:
    node = await stage.node()
    before = dict(node.epochs)
    for _ in range(3):
        await node.run_once()
    assert node.epochs == before


async def test_when_the_first_nodes_session_ends_the_second_takes_over_at_once(stage: Stage) -> None:
    first = await stage.node()
    second = await stage.node()
    assert first._lock is not None
    await first._lock.close()  # as the kernel does after kill -9; the lease itself has seconds to run
    await second.run_once()
    assert set(second.epochs) == ALL
    assert set(second.epochs.values()) == {2}


async def test_when_the_lease_is_over_the_second_takes_over_although_the_first_still_holds_its_lock(
    stage: Stage,
) -> None:
    first = await stage.node()
    second = await stage.node()
    await stage.db.execute(
        "update detent.shard_leases set expires_at = clock_timestamp() - interval '1 second'"
    )
    await second.run_once()
    assert set(second.epochs) == ALL
    await first.run_once()
    assert first.epochs == {}


async def test_a_planned_stop_hands_the_shards_over(stage: Stage) -> None:
    first = await stage.node()
    second = await stage.node()
    await first.closed()
    await second.run_once()
    assert set(second.epochs) == ALL
    ended = await stage.db.fetchval("select ended_at from detent.nodes where node_id = $1", first.node_id)
    assert ended is not None


async def test_a_node_whose_shards_changed_hands_looks_again(stage: Stage) -> None:
    heard: list[int] = []
    first = await stage.node()
    first._changed = lambda: heard.append(len(first.epochs))
    await first.run_once()
    assert heard == []
    await stage.db.execute("update detent.shard_leases set node_id = null where shard < 6")
    await stage.node()
    await first.run_once()
    assert heard == [250]


async def test_a_node_without_shards_fires_nothing(stage: Stage) -> None:
    await stage.node()
    second = await stage.node()
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
    await stage.db.execute("update detent.shard_leases set expires_at = '-infinity'")
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
