"""Work that is claimed ahead of its instant: on the real store, by the database's clock."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta

import pytest
from spine_workers import at_work, until

from detent.dispatch.claimer import LEAD, Claimer
from detent.dispatch.rank import LOOK_AGAIN_US, everything
from detent.execute.registry import Registry
from detent.model.work import Staged
from stage import SECOND, Stage

POOLS = ("default",)
SOON = timedelta(seconds=1.5)
UNSURE = 0.02  # seconds, by which one sample of the clock may be off on a busy machine
LATER = LEAD + 10 * SECOND
CLOSED = "select count(*) from detent.executions"


async def staged(stage: Stage, due_in: timedelta, count: int = 1) -> datetime:
    """Executions that are queued for one instant ahead, as a scheduler commits them."""
    await stage.jobs([stage.now() - SECOND] * count, scheduled_at=stage.now())
    assert await stage.fire() == count
    at = stage.now() + due_in
    await stage.db.execute(
        "update detent.live set not_before = $1, scheduled_for = $1, rank = detent.rank($1::timestamptz, class)"
        " where state = 'queued' and not_before < clock_timestamp()",
        at,
    )
    return at


def wait_of(one: Staged) -> float:
    return (one.start_ns - time.monotonic_ns()) / 1e9


async def test_only_a_claim_ahead_takes_what_is_due_within_the_lead_and_nobody_what_is_later(
    stage: Stage,
) -> None:
    at = await staged(stage, SOON)
    await staged(stage, LATER)
    claimer, worker_id = Claimer(stage.hot, stage.clock), await stage.worker()
    assert await claimer.claim(worker_id, POOLS, 10) == []
    ahead = await claimer.claim_ahead(worker_id, POOLS, 10)
    [one] = ahead.staged
    assert one.claim.scheduled_for == at
    assert one.claim.spec.name == "job"  # its definition is there before it is needed
    assert ahead.next_in is None
    # Not before the database reads that instant, and not by more than what its answers leave open.
    left = (at - stage.now()).total_seconds()
    assert left - UNSURE <= wait_of(one) < left + 0.1
    [running] = [row for row in await stage.rows("live") if row["state"] == "running"]
    assert running["claimed_at"] == at  # its timeout counts from here


async def test_what_finds_no_room_ahead_is_announced(stage: Stage) -> None:
    at = await staged(stage, SOON, 3)
    claimer, worker_id = Claimer(stage.hot, stage.clock), await stage.worker()
    for room, left in ((0, 3), (1, 2)):
        ahead = await claimer.claim_ahead(worker_id, POOLS, room)
        assert len(ahead.staged) == room
        assert ahead.next_in is not None
        assert abs(ahead.next_in - (at - stage.now()).total_seconds()) < 0.2
        queued = [row for row in await stage.rows("live") if row["state"] == "queued"]
        assert len(queued) == left
    ahead = await claimer.claim_ahead(worker_id, POOLS, 2)
    assert (len(ahead.staged), ahead.next_in) == (2, None)


async def test_what_is_due_earlier_and_committed_later_is_found_by_the_next_full_look(stage: Stage) -> None:
    claimer, worker_id = Claimer(stage.hot, stage.clock), await stage.worker()
    await staged(stage, 2 * SOON - SECOND)
    assert len((await claimer.claim_ahead(worker_id, POOLS, 10)).staged) == 1
    await staged(stage, SOON)
    claimer._bounds["default"]._looked_us -= LOOK_AGAIN_US
    assert len((await claimer.claim_ahead(worker_id, POOLS, 10)).staged) == 1


async def test_a_staged_execution_that_is_handed_back_waits_for_its_instant_again(stage: Stage) -> None:
    at = await staged(stage, SOON)
    registry = Registry()
    registry.register("noop", lambda: None)
    async with at_work(stage, registry) as worker:
        async with asyncio.timeout(10):
            while worker.in_flight < 1:
                await asyncio.sleep(0.005)
    [row] = await stage.rows("live")
    assert (row["state"], row["not_before"], row["failures"]) == ("queued", at, 0)
    claimer, worker_id = Claimer(stage.hot, stage.clock), await stage.worker()
    assert await claimer.claim(worker_id, POOLS, 10) == []
    assert len((await claimer.claim_ahead(worker_id, POOLS, 10)).staged) == 1


async def test_a_worker_starts_what_it_staged_at_its_instant(stage: Stage) -> None:
    registry = Registry()

    async def noop(): ...

    registry.register("noop", noop)
    at = await staged(stage, SOON, 20)
    async with at_work(stage, registry, slots=100):
        await until(stage, CLOSED, 20)
    for row in await stage.rows("executions"):
        assert row["scheduled_for"] == at
        assert timedelta(0) <= row["started_at"] - at < SECOND / 2


async def test_a_worker_without_room_for_staging_is_on_time_all_the_same(stage: Stage) -> None:
    registry = Registry()

    async def noop(): ...

    registry.register("noop", noop)
    async with at_work(stage, registry, slots=1) as worker:
        worker.every = 60.0
        at = await staged(stage, SOON, 3)
        worker.wake()
        await until(stage, CLOSED, 3)
    for row in await stage.rows("executions"):
        assert timedelta(0) <= row["started_at"] - at < SECOND / 2


async def test_while_the_clock_is_in_doubt_nothing_is_claimed_ahead(stage: Stage) -> None:
    await staged(stage, SOON)
    claimer, worker_id = Claimer(stage.hot, stage.clock), await stage.worker()

    async def far_off() -> int:
        return stage.clock.now_us() + 600_000_000

    await stage.clock.sample(far_off)
    assert not stage.clock.steady
    assert (await claimer.claim_ahead(worker_id, POOLS, 10)).staged == []


@pytest.mark.parametrize("step", [600, -600])
async def test_a_database_clock_that_was_set_unnoticed_makes_nothing_wait_longer_or_start_earlier(
    stage: Stage, step: int
) -> None:
    """The statement says how long there is to wait by the clock that it read; our copy may be of another time."""
    claimer, worker_id = Claimer(stage.hot, stage.clock), await stage.worker()
    bounds = claimer._bounds["default"]
    bounds.ahead = lambda now_us, limit, lead_us: everything(limit)  # type: ignore[method-assign]
    at = await staged(stage, SOON)
    true_offset = stage.clock.offset_ns
    # Seen from here the database's clock has leapt by so much since its last sample.
    stage.clock.offset_ns = true_offset - step * 1_000_000_000
    [one] = (await claimer.claim_ahead(worker_id, POOLS, 10)).staged
    wait = wait_of(one)
    stage.clock.offset_ns = true_offset
    left = (at - stage.now()).total_seconds()
    assert left - UNSURE <= wait < left + 0.2
