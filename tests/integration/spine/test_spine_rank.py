"""The order of work within a pool, and claims that begin where the last one ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from detent.dispatch.claimer import Claimer
from detent.dispatch.rank import HEAD_START, rank_floor
from detent.dispatch.sweeper import Sweeper
from stage import SECOND, Stage

POOLS = ("default",)


async def queue(stage: Stage, count: int = 1, **fields: Any) -> None:
    await stage.jobs([stage.now() - SECOND] * count, scheduled_at=stage.now(), **fields)
    assert await stage.fire() == count


async def test_the_database_and_the_program_rank_alike(stage: Stage) -> None:
    at = datetime(2026, 11, 18, 12, 0, 0, 123_456, tzinfo=UTC)
    at_us = int(at.timestamp() * 1_000_000)
    for klass in range(len(HEAD_START)):
        rank = await stage.db.fetchval("select detent.rank($1::timestamptz, $2::smallint)", at, klass)
        assert rank >> 20 == rank_floor(klass, at_us) >> 20


async def test_a_low_one_that_waits_longer_than_the_head_start_goes_first(stage: Stage) -> None:
    await queue(stage, priority="low", name="patient")
    await stage.db.execute(
        "update detent.live set rank = detent.rank($1::timestamptz, class)",
        stage.now() - timedelta(seconds=HEAD_START[0] + 1),
    )
    await queue(stage, priority="critical", name="urgent")
    claims = await stage.claim(await stage.worker(), 2)
    assert [claim.spec.name for claim in claims] == ["patient", "urgent"]


async def test_claims_of_one_claimer_get_everything_that_is_queued_between_them(stage: Stage) -> None:
    claimer, worker_id = Claimer(stage.hot, stage.clock), await stage.worker()
    for count in (3, 1, 0, 5):
        if count:
            await queue(stage, count)
        assert len(await claimer.claim(worker_id, POOLS, 100)) == count


async def test_a_retry_that_is_far_away_is_not_in_the_way_of_claims(stage: Stage) -> None:
    worker_id, claim = await stage.running(retry_delay_seconds=3600)
    await stage.record(stage.ended(claim, "failed"))
    [row] = await stage.rows("live")
    assert row["state"] == "retrying"
    in_an_hour = int((stage.now() + timedelta(minutes=59)).timestamp() * 1_000_000)
    assert row["rank"] >= rank_floor(row["class"], in_an_hour)
    assert await stage.claim(worker_id) == []


async def test_what_fell_behind_is_found_by_the_sweep_and_claimed_next(stage: Stage) -> None:
    claimer, worker_id = Claimer(stage.hot, stage.clock), await stage.worker()
    assert await claimer.claim(worker_id, POOLS, 10) == []
    await queue(stage)
    await stage.db.execute(
        "update detent.live set not_before = $1, rank = detent.rank($1::timestamptz, class)",
        stage.now() - timedelta(minutes=5),
    )
    assert await claimer.claim(worker_id, POOLS, 10) == []
    woken: list[bool] = []
    await Sweeper(claimer, POOLS, lambda: woken.append(True)).run_once()
    assert woken == [True]
    assert len(await claimer.claim(worker_id, POOLS, 10)) == 1
    await Sweeper(claimer, POOLS, lambda: woken.append(True)).run_once()
    assert woken == [True]


async def test_what_a_clock_that_was_set_back_had_ranked_ahead_is_found_by_the_sweep(stage: Stage) -> None:
    claimer, worker_id = Claimer(stage.hot, stage.clock), await stage.worker()
    assert await claimer.claim(worker_id, POOLS, 10) == []
    await queue(stage)
    await stage.db.execute(
        "update detent.live set not_before = $1, rank = detent.rank($2::timestamptz, class)",
        stage.now() - timedelta(minutes=5),
        stage.now() + timedelta(minutes=10),
    )
    assert await claimer.claim(worker_id, POOLS, 10) == []
    assert await claimer.look_behind(POOLS)
    assert len(await claimer.claim(worker_id, POOLS, 10)) == 1
