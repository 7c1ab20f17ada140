"""Races of firing. A lock that the test holds makes both sides meet, and decides who wins."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from detent.api.decide import pause
from detent.dispatch.rank import everything
from detent.fire.firer import Firer
from detent.model.errors import StoreUnavailable
from detent.runtime.clock import Clock
from detent.store import work
from detent.store.database import Database
from detent.store.job_change import lock_job, unstage
from detent.store.jobs import cancel_job, change_job
from detent.store.sql import Queries
from stage import BLOCKED, HOUR, MINUTE, MOMENT, SECOND, TENANT, Stage

queries = Queries.load()


async def test_two_firers_that_decided_the_same_timers_write_each_instant_once(stage: Stage) -> None:
    now = stage.now()
    jobs = await stage.jobs([now - MOMENT] * 60, scheduled_at=now)
    jobs += await stage.jobs([now - MOMENT] * 60, armed_at=now - MOMENT - HOUR, every=3600)
    firers = [await stage.firer(), await stage.firer()]
    async with stage.db.transaction() as lock:
        # Both have read every timer when both wait for this one: each holds a decision about all of them.
        await lock.fetchval(queries.lock_timer, TENANT, min(jobs, key=lambda job: job.bytes))
        running = [asyncio.create_task(firer.run_once()) for firer in firers]
        await stage.until_blocked(2)
    await asyncio.gather(*running)

    assert sum(firer.fired for firer in firers) == 120
    fires = await stage.rows("fires")
    live = await stage.rows("live")
    assert len(fires) == len(live) == 120
    assert {row["job_id"] for row in fires} == {row["job_id"] for row in live} == set(jobs)
    assert {row["execution_id"] for row in fires} == {row["execution_id"] for row in live}
    assert {row["version"] for row in await stage.rows("timers")} == {2}


class Off(Clock):
    """A scheduler's clock that is off the database's, and has not noticed yet."""

    def __init__(self, stage: Stage, by: timedelta) -> None:
        super().__init__()
        self._stage = stage
        self._by_us = by // timedelta(microseconds=1)

    def now_us(self) -> int:
        return self._stage.clock.now_us() + self._by_us


async def test_a_clock_that_is_ahead_by_less_than_makes_it_doubted_fires_nothing_early(stage: Stage) -> None:
    at = stage.now() + 4 * SECOND
    await stage.job(at, scheduled_at=at)
    firer = await stage.firer()
    firer._clock = Off(stage, 4.5 * SECOND)
    before = await stage.everything()
    await firer.run_once()
    assert firer.fired == 0
    assert await stage.everything() == before
    assert stage.now() < at, "this machine is too slow to show it"


async def test_what_was_decided_by_a_clock_that_the_database_left_behind_is_not_fired(stage: Stage) -> None:
    """The database's clock has leapt ahead, or was wrong before: it is for the scheduler to find out which."""
    await stage.once(ago=11 * MINUTE)
    firer = await stage.firer()
    firer._clock = Off(stage, -10 * MINUTE)
    before = await stage.everything()
    await firer.run_once()
    assert firer.fired == 0
    assert await stage.everything() == before


async def test_many_firers_on_many_timers_write_each_instant_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.fire.firer.BATCH", 16)
    now = stage.now()
    jobs = await stage.jobs([now - MINUTE] * 300, armed_at=now - 2 * MINUTE, every=60)
    firers = [await stage.firer() for _ in range(4)]
    await asyncio.gather(*(firer.run_once() for firer in firers))
    assert sum(firer.fired for firer in firers) == 300
    assert len(await stage.rows("live")) == 300
    fires = [row for row in await stage.rows("fires") if row["execution_id"] is not None]
    assert len(fires) == len({(row["job_id"], row["nominal_at"]) for row in fires}) == 300
    assert {row["job_id"] for row in fires} == set(jobs)


@pytest.mark.parametrize("change", ["pause", "cancel"])
async def test_a_change_that_comes_first_leaves_the_firer_nothing(stage: Stage, change: str) -> None:
    job_id = await stage.every(3600, first_ago=MOMENT)
    bystander = await stage.once()
    firer = await stage.firer()
    async with stage.db.transaction() as lock:
        await lock.fetchval(queries.lock_timer, TENANT, job_id)
        changing = asyncio.create_task(apply(stage, job_id, change))
        await stage.until_blocked(1)
        firing = asyncio.create_task(firer.run_once())  # queues behind the change
        await stage.until_blocked(2)
    await changing
    await firing
    assert await stage.rows("live", job_id) == await stage.rows("fires", job_id) == []
    assert firer.fired == 1
    assert len(await stage.rows("live", bystander)) == 1
    await firer.run_once()
    assert await stage.rows("live", job_id) == []


@pytest.mark.parametrize("change", ["pause", "cancel"])
async def test_a_change_that_comes_second_finds_the_instant_fired(stage: Stage, change: str) -> None:
    job_id = await stage.every(3600, first_ago=MOMENT)
    firer = await stage.firer()
    async with stage.db.transaction() as lock:
        await lock.fetchval(queries.lock_timer, TENANT, job_id)
        firing = asyncio.create_task(firer.run_once())
        await stage.until_blocked(1)
        changing = asyncio.create_task(apply(stage, job_id, change))
        await stage.until_blocked(2)
    await firing
    await changing
    assert firer.fired == 1
    assert len(await stage.rows("fires", job_id)) == 1
    if change == "pause":
        assert (await stage.row("live", job_id))["state"] == "queued"
        assert (await stage.row("timers", job_id))["status"] == "paused"
    else:
        assert await stage.rows("live") == []
        assert (await stage.row("executions", job_id))["status"] == "cancelled"


async def apply(stage: Stage, job_id: object, change: str) -> None:
    if change == "pause":
        await change_job(stage.db, TENANT, job_id, pause, stage.now(), None)  # type: ignore[arg-type]
    else:
        await cancel_job(stage.db, TENANT, job_id, stage.now(), None)  # type: ignore[arg-type]


async def test_a_firer_whose_session_is_killed_in_the_middle_of_a_fire_fires_afterwards(stage: Stage) -> None:
    jobs = await stage.jobs([stage.now() - SECOND] * 20, scheduled_at=stage.now())
    firer = await stage.firer()
    async with stage.db.transaction() as lock:
        await lock.fetchval(queries.lock_timer, TENANT, max(jobs, key=lambda job: job.bytes))
        firing = asyncio.create_task(firer.run_once())
        await stage.until_blocked(1)
        await kill_blocked(stage.db)
        with pytest.raises(StoreUnavailable):
            await firing
    assert await stage.rows("fires") == await stage.rows("live") == []
    await again(firer)
    assert len(await stage.rows("fires")) == len(await stage.rows("live")) == 20


async def kill_blocked(database: Database) -> None:
    await database.execute(BLOCKED.replace("count(*)", "pg_terminate_backend(pid)"))


async def again(firer: Firer) -> None:
    """Tick on, as its service does, until the pool has replaced the dead connection."""
    async with asyncio.timeout(10):
        while firer.fired == 0:
            try:
                await firer.run_once()
            except StoreUnavailable:
                await asyncio.sleep(0)


# Staged fires


@pytest.mark.parametrize("change", ["pause", "cancel"])
async def test_a_change_that_waited_for_a_staging_takes_it_back(stage: Stage, change: str) -> None:
    job_id = await stage.every(3600, first_ago=-MINUTE)
    async with stage.db.transaction() as lock:
        await lock.fetchval(queries.lock_timer, TENANT, job_id)
        staging = asyncio.create_task(stage.fire_ahead())
        await stage.until_blocked(1)
        changing = asyncio.create_task(apply(stage, job_id, change))
        await stage.until_blocked(2)
    assert await staging == 1
    await changing
    assert await stage.rows("live") == await stage.rows("fires") == await stage.rows("executions") == []
    assert (await stage.row("timers", job_id))["status"] == ("paused" if change == "pause" else "done")


@pytest.mark.parametrize("change", ["pause", "cancel"])
async def test_a_staging_that_waited_for_a_change_stages_nothing(stage: Stage, change: str) -> None:
    job_id = await stage.every(3600, first_ago=-MINUTE)
    async with stage.db.transaction() as lock:
        await lock.fetchval(queries.lock_timer, TENANT, job_id)
        changing = asyncio.create_task(apply(stage, job_id, change))
        await stage.until_blocked(1)
        staging = asyncio.create_task(stage.fire_ahead())
        await stage.until_blocked(2)
    await changing
    assert await staging == 0
    assert await stage.rows("live") == await stage.rows("fires") == []


async def test_a_claim_that_comes_first_keeps_what_is_staged(stage: Stage) -> None:
    job_id = await stage.every(3600, first_ago=-MINUTE)
    await stage.fire_ahead()
    worker_id = await stage.worker()
    async with stage.hot.transaction() as claiming:
        [row] = await work.claim(claiming, worker_id, "default", 10, everything(10), HOUR)
        pausing = asyncio.create_task(apply(stage, job_id, "pause"))
        await stage.until_blocked(1)
    await pausing
    live = await stage.row("live", job_id)
    assert (live["state"], live["token"]) == ("running", row["token"])
    assert len(await stage.rows("fires", job_id)) == 1
    timer = await stage.row("timers", job_id)
    assert (timer["status"], timer["decided_through"]) == ("paused", live["scheduled_for"])


async def test_a_claim_that_comes_second_passes_over_what_is_taken_back(stage: Stage) -> None:
    job_id = await stage.every(3600, first_ago=-MINUTE)
    await stage.fire_ahead()
    worker_id = await stage.worker()
    async with stage.db.transaction() as changing:
        standing = await lock_job(changing, TENANT, job_id)
        assert await work.claim(stage.hot, worker_id, "default", 10, everything(10), HOUR) == []
        await unstage(changing, TENANT, standing)
    assert await work.claim(stage.hot, worker_id, "default", 10, everything(10), HOUR) == []
    assert await stage.rows("live") == await stage.rows("fires") == []
