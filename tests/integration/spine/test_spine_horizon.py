"""The horizon: what of ten million timers is held in memory, and that none is missed for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from detent.fire import horizon as loading
from detent.fire.horizon import Horizon
from detent.runtime.notify import EVERYTHING
from detent.store import timers
from detent.store.timers import DueTimer
from stage import MINUTE, MOMENT, SECOND, Stage

SHARDS = range(256)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Every timer that a load gives, as often as it does."""
    found: list[UUID] = []
    further: Callable[..., Awaitable[list[DueTimer]]] = timers.further

    async def noting(*args: Any) -> list[DueTimer]:
        rows = await further(*args)
        found.extend(timer.job_id for timer in rows)
        return rows

    monkeypatch.setattr(timers, "further", noting)
    return found


def small(monkeypatch: pytest.MonkeyPatch, held: int, load: int) -> None:
    monkeypatch.setattr(loading, "MOST_HELD", held)
    monkeypatch.setattr(loading, "LOAD", load)
    monkeypatch.setattr(loading, "URGENT_LOAD", 1)


async def filled(horizon: Horizon, stage: Stage) -> None:
    while horizon.wants(SHARDS, stage.now()):
        await horizon.extend(SHARDS, stage.now())


async def crowd(stage: Stage, spread: bool) -> list[UUID]:
    at = stage.now() + MINUTE / 4
    due = [at + MOMENT * (i % 20 if spread else 0) for i in range(600)]
    jobs = await stage.jobs(due, scheduled_at=at)
    await stage.db.execute("update detent.timers set shard = shard % 3")
    return jobs


@pytest.mark.parametrize("spread", [True, False])
async def test_what_is_due_within_the_minute_is_loaded_in_parts_and_each_timer_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, read: list[UUID], spread: bool
) -> None:
    small(monkeypatch, 10_000, 100)
    jobs = await crowd(stage, spread)
    later = await stage.job(stage.now() + 3 * MINUTE, scheduled_at=stage.now() + 3 * MINUTE)
    horizon = Horizon(stage.hot)
    await filled(horizon, stage)
    assert len(horizon.wheel) == len(read) == len(jobs)
    assert set(read) == set(jobs)
    assert later not in read


@pytest.mark.parametrize("spread", [True, False])
async def test_no_more_is_held_than_there_is_room_for_and_the_rest_follows(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, read: list[UUID], spread: bool
) -> None:
    small(monkeypatch, 200, 60)
    jobs = await crowd(stage, spread)
    horizon = Horizon(stage.hot)
    popped: list[UUID] = []
    while len(popped) < len(jobs):
        await filled(horizon, stage)
        assert len(horizon.wheel) <= 200
        taken = horizon.wheel.pop_due(stage.now() + MINUTE, 90)
        assert taken
        popped += [timer.job_id for timer in taken]
    assert sorted(popped, key=str) == sorted(read, key=str) == sorted(jobs, key=str)


async def test_what_is_due_is_loaded_although_there_is_no_room(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch, 0, 50)
    await stage.jobs([stage.now() - SECOND] * 100, scheduled_at=stage.now())
    await stage.jobs([stage.now() + MINUTE] * 100, scheduled_at=stage.now() + MINUTE)
    firer = await stage.firer()
    while firer.fired < 100:
        await firer.run_once()
    assert len(await stage.rows("live")) == 100


async def test_a_shard_that_is_gained_is_loaded_from_its_beginning(stage: Stage, read: list[UUID]) -> None:
    [job_id] = await stage.jobs([stage.now() + MINUTE / 2], scheduled_at=stage.now())
    horizon = Horizon(stage.hot)
    shard = job_id.bytes[15]
    others = [one for one in SHARDS if one != shard]
    await horizon.extend(others, stage.now())
    assert (read, horizon.wants(others, stage.now())) == ([], [])
    assert horizon.wants(SHARDS, stage.now()) == [shard]
    await horizon.extend(SHARDS, stage.now())
    assert read == [job_id]
    horizon.forget([shard])
    assert horizon.wants(SHARDS, stage.now()) == [shard]


async def test_a_wake_up_that_names_no_jobs_makes_everything_looked_at(stage: Stage) -> None:
    firer = await stage.firer()
    await firer.run_once()
    soon, later = stage.now() + 1.5 * SECOND, stage.now() + MINUTE / 4
    await stage.jobs([soon] * 40, scheduled_at=soon)
    await stage.jobs([later] * 40, scheduled_at=later)
    await stage.db.execute("update detent.timers set shard = 7")
    firer.hear(EVERYTHING)
    await firer._refresh()
    assert len(firer._wheel) == 40  # more of one shard than a common scan looks at
    then = stage.now() + 2 * SECOND
    await firer._horizon.extend(SHARDS, then)
    while firer._horizon.wants(SHARDS, then):
        await firer._horizon.extend(SHARDS, then)
    assert len(firer._wheel) == 80
    firer.hear(EVERYTHING)
    assert firer._horizon._look_again_at is not None
    assert firer._horizon._look_again_at > stage.now() + 5 * SECOND  # not again at once


async def test_the_scan_finds_what_no_wake_up_named(stage: Stage) -> None:
    firer = await stage.firer()
    await firer.run_once()
    jobs = await stage.jobs([stage.now() - MOMENT] * 40, scheduled_at=stage.now())
    await stage.db.execute("update detent.timers set shard = 7")
    for _ in range(3):
        firer._scan_at = stage.now()
        await firer.run_once()
    assert firer.fired == len(jobs)


async def test_batches_on_their_way_together_fire_each_timer_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.fire.firer.BATCH", 20)
    jobs = await stage.jobs([stage.now() - MOMENT] * 300, armed_at=stage.now() - MINUTE, every=3600.0)
    firer = await stage.firer()
    await firer.run_once()
    assert firer.fired == 300
    assert len(await stage.rows("live")) == len(await stage.rows("fires")) == len(jobs)
