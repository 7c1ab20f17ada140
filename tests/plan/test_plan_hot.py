"""The hot statements read rows in proportion to their batch, whatever the tables hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from asks import SHARDS, arguments, close, columns
from crowd import WORKER
from explained import Prepared, Reading, reading_of

from detent.dispatch.rank import Bounds, everything
from detent.fire.horizon import HORIZON, PER_SHARD
from detent.store.database import Database

# How many rows of tables a statement may read for each row that it is about.
READS = {
    "fire_batch": 1,
    "claim": 5,  # each of the four classes offers a whole batch, of which one batch is taken
    "close_batch": 1,
    "close_succeeded": 1,
    "return_batch": 2,
    "append_logs": 1,
    "recorded_attempts": 1,
    "timers_of": 4,
    "definitions": 1,
}
EVERYTHING = [500, *columns(everything(500)), timedelta(0)]  # a claim of so many, wherever they are
DUE_SOON = """
insert into detent.live (execution_id, job_id, scheduled_for, not_before, queued_at, rank, tenant, revision, class,
                         ends_job, cause, state, pool)
select gen_random_uuid(), gen_random_uuid(), at, at, now(), detent.rank(at, 2::smallint), 1, 1, 2, false, 'schedule',
       'queued', 'soon'
from (select clock_timestamp() + interval '1 second' + n * interval '100 microseconds' as at
      from generate_series(1, 20000) n) x
"""
COUNTS = {"close_succeeded", "fire_batch"}  # statements that answer how many rows, not which
HANDLES = 12  # rows that pass between the steps of a plan, for each row that it is about
BLOCKS = 50
ROUNDED = len(SHARDS)  # rows are averages of loops, one for each shard, that the server rounds
ALWAYS = 300  # blocks that a statement may touch however small it is: one descent for each shard or partition


def check(reading: Reading, statement: str, batch: int) -> None:
    assert reading.answered == (1 if statement in COUNTS else batch), reading
    assert reading.rows <= READS[statement] * batch + 1, reading
    assert reading.handled <= HANDLES * batch + 10, reading
    assert reading.blocks <= BLOCKS * batch + ALWAYS, reading


@pytest.mark.parametrize("batch", [1, 30, 500])
@pytest.mark.parametrize("statement", READS)
async def test_a_hot_statement_reads_what_it_is_about(hot: Database, statement: str, batch: int) -> None:
    check(await reading_of(hot, statement, *await arguments(hot, statement, batch)), statement, batch)


async def test_loading_further_reads_what_is_behind_the_last_timer_held(hot: Database) -> None:
    now = datetime.now(UTC)
    places = [[now] * len(SHARDS), [UUID(int=0)] * len(SHARDS)]
    reading = await reading_of(hot, "further_timers", SHARDS, *places, now + HORIZON, PER_SHARD)
    assert 30 <= reading.answered <= 70  # one a second, and none of those before
    assert reading.rows <= 4 * reading.answered + ROUNDED
    assert reading.blocks <= 20 * reading.answered + 3 * ALWAYS


async def test_loading_the_horizon_reads_the_timers_within_it(hot: Database) -> None:
    horizon = datetime.now(UTC) + HORIZON
    reading = await reading_of(hot, "due_timers", SHARDS, horizon, PER_SHARD)
    assert 1000 <= reading.answered <= 2000  # a thousand overdue, and one a second
    assert reading.rows <= 4 * reading.answered + ROUNDED  # the timer, its job, its revision
    assert reading.blocks <= 15 * reading.answered + 3 * len(SHARDS)


async def test_a_scan_of_the_next_seconds_reads_no_more_of_a_shard_than_it_may(hot: Database) -> None:
    horizon = datetime.now(UTC) + timedelta(days=2)
    reading = await reading_of(hot, "due_timers", SHARDS, horizon, 3)
    assert reading.answered == 3 * len(SHARDS)
    assert reading.rows <= 4 * reading.answered + ROUNDED


async def test_a_scan_that_finds_nothing_costs_one_descent_for_each_shard(hot: Database) -> None:
    horizon = datetime.now(UTC) - timedelta(days=1)
    reading = await reading_of(hot, "due_timers", SHARDS, horizon, PER_SHARD)
    assert (reading.answered, reading.rows) == (0, 0)
    assert reading.blocks <= 5 * len(SHARDS)


async def test_a_claim_in_an_empty_pool_reads_no_executions(hot: Database) -> None:
    reading = await reading_of(hot, "claim", WORKER, "nothing here", *EVERYTHING)
    assert (reading.answered, reading.tables["live"]) == (0, 0)
    assert reading.blocks <= 20


async def test_a_claim_ahead_reads_what_it_takes_of_what_is_due_soon(hot: Database) -> None:
    now_us = int(datetime.now(UTC).timestamp() * 1e6)
    async with hot.connection() as connection:
        trial = connection.transaction()
        await trial.start()
        await connection.execute(DUE_SOON)
        ahead, upcoming = Prepared(connection, "claim"), Prepared(connection, "upcoming")
        for prepared in (ahead, upcoming):
            await prepared.prepare()
        ranges = Bounds().ahead(now_us, 100, 3_000_000)
        taken = await ahead.reading(WORKER, "soon", 100, *columns(ranges), timedelta(seconds=3))
        told = await upcoming.reading("soon", *columns(ranges)[:3])
        for name in ("claim", "upcoming"):
            await connection.execute(f"deallocate {name}")
        await trial.rollback()
        await connection.execute("vacuum detent.live")  # or the dead rows lie at the head of others' lists
    assert taken.answered == 100
    assert taken.tables["live"] <= READS["claim"] * 100
    assert told.answered == 1
    assert told.tables["live"] <= 4  # the first of each class


async def test_a_worker_that_is_not_live_reads_no_executions(hot: Database) -> None:
    stranger = "00000000-0000-4000-8000-00000000ffff"
    reading = await reading_of(hot, "claim", stranger, "default", *EVERYTHING)
    assert (reading.answered, reading.rows) == (0, 0)


async def test_a_heartbeat_reads_its_own_row_and_what_is_to_be_cancelled(hot: Database) -> None:
    beat = await reading_of(hot, "beat_worker", WORKER, 5, None, 0)
    assert (beat.answered, beat.rows) == (1, 1)
    held = await close(hot, 100)
    orders = await reading_of(hot, "orders_for_attempts", *held[:3])
    assert orders.answered == 0
    assert orders.rows <= 200
    assert orders.blocks <= 1000
