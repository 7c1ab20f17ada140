"""What is forgotten, and when: days of history, nodes and workers. And what is kept: dead letters."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import date, datetime, timedelta
from uuid import UUID

import pytest

from detent.finish.timeouts import TimeoutKeeper
from detent.model.ids import execution_id, new_incarnation_id
from detent.model.work import Claim
from detent.observe.fleet import KEEP_SECONDS, FleetSweeper
from detent.observe.partitions import AHEAD, BEHIND, IN_DOUBT, PartitionKeeper
from detent.runtime.clock import Clock
from detent.store import dead_letters, timers, work
from detent.store.database import Database
from detent.store.embedded import Embedded
from detent.store.executions import read_detail
from detent.store.partitions import drop_partitions, make_partitions
from stage import DAY, HOUR, TENANT, Stage, a_database

TABLES = ("attempts", "executions", "fires", "inputs", "logs", "progress")


@pytest.fixture(scope="module")
def own_url(server: Embedded, template: str) -> str:
    """A database that nobody else plays on: these tests take the floor away."""
    return a_database(server, template)


@pytest.fixture
async def stage(own_url: str) -> AsyncIterator[Stage]:
    """An empty stage with the days of a new one."""
    db = await Database.open(own_url, size=4, application_name="detent test")
    clock = Clock()
    await clock.sample(lambda: timers.clock_us(db))
    made = Stage(db, db, clock)
    await made.clear()
    await drop_partitions(db, made.now().date() - BEHIND)
    try:
        yield made
    finally:
        await made.close()
        await db.close()


async def days(stage: Stage, table: str) -> list[date]:
    rows = await stage.db.fetch(
        "select to_date(right(c.relname, 8), 'YYYYMMDD') as day from pg_inherits i "
        "join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent "
        "join pg_namespace n on n.oid = p.relnamespace and n.nspname = 'detent' where p.relname = $1 order by 1",
        table,
    )
    return [row["day"] for row in rows]


async def oldest(stage: Stage) -> dict[str, date]:
    return {table: (await days(stage, table))[0] for table in TABLES}


async def with_days(stage: Stage, first_ago: int, last_ago: int = 0) -> date:
    """Partitions from so many days ago; answers today."""
    today = stage.now().date()
    await make_partitions(stage.db, today - first_ago * DAY, today - last_ago * DAY)
    return today


def all_at(day: date) -> dict[str, date]:
    return dict.fromkeys(TABLES, day)


# Days


async def test_only_the_days_before_the_given_one_are_dropped(stage: Stage) -> None:
    today = await with_days(stage, 14)
    kept = await days(stage, "logs")
    assert await drop_partitions(stage.db, today - 10 * DAY) == 4 * len(TABLES)
    assert await oldest(stage) == all_at(today - 10 * DAY)
    for table in TABLES:
        assert await days(stage, table) == kept[4:]
    assert await drop_partitions(stage.db, today - 10 * DAY) == 0


async def test_the_history_of_those_days_is_gone_and_the_rest_is_not(stage: Stage) -> None:
    today = await with_days(stage, 14)
    job_id = await stage.once()
    moments = [stage.now() - ago * DAY for ago in (12, 3)]
    ids = [execution_id(at, job_id, "manual", "x") for at in moments]
    for one, at in zip(ids, moments, strict=True):
        await past_execution(stage, job_id, one, at)
    await drop_partitions(stage.db, today - 10 * DAY)
    assert [row["execution_id"] for row in await stage.rows("executions")] == [ids[1]]
    assert len(await stage.rows("attempts")) == 1
    assert await read_detail(stage.db, TENANT, ids[0], stage.now()) is None
    assert await read_detail(stage.db, TENANT, ids[1], stage.now()) is not None


async def past_execution(stage: Stage, job_id: UUID, execution: UUID, at: datetime) -> None:
    await stage.db.execute(
        "insert into detent.executions (execution_id, job_id, scheduled_for, queued_at, finished_at, tenant, "
        "revision, attempt, failures, losses, class, status, cause, pool) "
        "values ($1, $2, $3, $3, $3, $4, 1, 1, 0, 0, 2, 'succeeded', 'manual', 'default')",
        execution, job_id, at, TENANT,
    )  # fmt: skip
    await stage.db.execute(
        "insert into detent.attempts (execution_id, attempt, day, tenant, token, worker_id, finished_at, outcome) "
        "values ($1, 1, $2, $3, 1, $4, $5, 'succeeded')",
        execution, at.date(), TENANT, new_incarnation_id(), at,
    )  # fmt: skip


async def test_a_day_with_open_work_and_those_before_it_stay_until_it_is_over(stage: Stage) -> None:
    today = await with_days(stage, 14)
    _, claim = await stage.running()
    queued = datetime.combine(today - 12 * DAY, datetime.min.time(), stage.now().tzinfo)
    await stage.db.execute("update detent.live set queued_at = $1", queued)
    await drop_partitions(stage.db, today - 10 * DAY)
    for table in TABLES:
        found = await days(stage, table)
        assert found[:4] == [today - ago * DAY for ago in (14, 13, 12, 10)], table
    await stage.record(stage.ended(claim, "succeeded"))
    assert await drop_partitions(stage.db, today - 10 * DAY) == 3 * len(TABLES)
    assert await oldest(stage) == all_at(today - 10 * DAY)


async def test_open_work_of_younger_days_keeps_nothing(stage: Stage) -> None:
    today = await with_days(stage, 12)
    await stage.running()
    await drop_partitions(stage.db, today - 10 * DAY)
    assert await oldest(stage) == all_at(today - 10 * DAY)


async def test_a_partition_that_somebody_reads_is_left_for_the_next_time(stage: Stage) -> None:
    today = await with_days(stage, 11)
    async with stage.db.transaction() as reader:
        await reader.fetchval(f"select count(*) from detent.attempts_{today - 11 * DAY:%Y%m%d}")
        assert await drop_partitions(stage.db, today - 10 * DAY) == len(TABLES) - 1
        assert await oldest(stage) == all_at(today - 10 * DAY) | {"attempts": today - 11 * DAY}
    assert await drop_partitions(stage.db, today - 10 * DAY) == 1
    assert await oldest(stage) == all_at(today - 10 * DAY)


async def test_a_table_that_somebody_reads_holds_nobody_up_for_long(stage: Stage) -> None:
    """Whoever comes after a drop that waits has to wait too, and what was dropped is locked meanwhile: so one
    refusal is enough for a table, however many of its days are old.
    """
    today = await with_days(stage, 28)
    async with stage.db.transaction() as reader:
        await reader.fetchval("select count(*) from detent.executions")
        began = time.monotonic()
        dropped = await drop_partitions(stage.db, today - 10 * DAY)
        took = time.monotonic() - began
    assert dropped == 18 * (len(TABLES) - 1)
    assert await oldest(stage) == all_at(today - 10 * DAY) | {"executions": today - 28 * DAY}
    assert took < 18 * 0.2, "as long as it would wait for each day"
    assert await drop_partitions(stage.db, today - 10 * DAY) == 18


# The keeper


async def test_the_keeper_drops_what_is_older_than_its_retention(stage: Stage) -> None:
    today = await with_days(stage, 14)
    await PartitionKeeper(stage.db, stage.clock, retention_days=12).run_once()
    assert await oldest(stage) == all_at(today - 12 * DAY)


async def test_a_retention_of_0_drops_nothing(stage: Stage) -> None:
    today = await with_days(stage, 14)
    keeper = PartitionKeeper(stage.db, stage.clock, retention_days=0)
    assert await keeper.run_once() is None
    assert await oldest(stage) == all_at(today - 14 * DAY)


async def test_a_short_retention_keeps_the_days_that_late_instants_are_filed_under(stage: Stage) -> None:
    today = await with_days(stage, 14)
    await PartitionKeeper(stage.db, stage.clock, retention_days=1).run_once()
    assert await oldest(stage) == all_at(today - BEHIND)


async def test_the_keeper_makes_the_coming_days(stage: Stage) -> None:
    today = stage.now().date()
    await drop_partitions(stage.db, today + 30 * DAY)
    await PartitionKeeper(stage.db, stage.clock, retention_days=30).run_once()
    for table in TABLES:
        found = await days(stage, table)
        assert (found[0], found[-1]) == (today - BEHIND, today + AHEAD)
        assert len(found) == (AHEAD + BEHIND).days + 1


async def test_nothing_is_made_or_dropped_while_the_clock_is_in_doubt(stage: Stage) -> None:
    """A clock that is a year ahead would make the whole history old."""
    await with_days(stage, 14)
    before = await oldest(stage), [await days(stage, table) for table in TABLES]
    await stage.clock.sample(lambda: ahead(stage, 365 * DAY))
    assert not stage.clock.steady
    keeper = PartitionKeeper(stage.db, stage.clock, retention_days=10)
    assert await keeper.run_once() == IN_DOUBT
    assert (await oldest(stage), [await days(stage, table) for table in TABLES]) == before
    await stage.clock.sample(lambda: timers.clock_us(stage.db))
    assert await keeper.run_once() is None
    assert await oldest(stage) == all_at(stage.now().date() - 10 * DAY)


async def ahead(stage: Stage, by: timedelta) -> int:
    return await timers.clock_us(stage.db) + by // timedelta(microseconds=1)


# Letters


async def replayed_and_dead(stage: Stage, payload: str | None) -> tuple[Claim, UUID]:
    """An execution that died, and its replay with this payload, which died too."""
    _, claim = await stage.running(max_retries=0)
    await stage.record(stage.ended(claim, "failed"))
    again = await replay(stage, claim.execution_id, payload)
    [second] = await stage.claim(await stage.worker())
    await stage.record(stage.ended(second, "failed"))
    return claim, again


async def replay(stage: Stage, source: UUID, payload: str | None) -> UUID:
    moment_ago = stage.now() - timedelta(milliseconds=20)
    run = await dead_letters.replay(stage.db, TENANT, source, payload, None, moment_ago, None)
    return run.execution.execution_id


async def payload_of(stage: Stage, letter: UUID) -> str:
    opened = await dead_letters.read_dead_letter(stage.db, TENANT, letter)
    assert opened is not None
    return opened.payload


async def drop_all_days(stage: Stage) -> None:
    assert await drop_partitions(stage.db, stage.now().date() + DAY) > 0
    assert await stage.rows("executions") == []
    assert await stage.db.fetchval("select count(*) from detent.inputs") == 0


async def test_a_letter_keeps_the_payload_that_was_its_own(stage: Stage) -> None:
    first, again = await replayed_and_dead(stage, '{"edited":true}')
    await drop_all_days(stage)
    assert await payload_of(stage, again) == '{"edited":true}'
    assert await payload_of(stage, first.execution_id) == "null"  # that of the revision, which stays
    third = await replay(stage, again, None)
    [claim] = await stage.claim(await stage.worker())
    assert (claim.execution_id, claim.payload) == (third, '{"edited":true}')


async def test_a_replay_with_the_letters_own_payload_keeps_it_through_edits_and_drops(stage: Stage) -> None:
    first, again = await replayed_and_dead(stage, None)
    await stage.db.execute("update detent.job_revisions set payload = '2' where job_id = $1", first.job_id)
    await drop_all_days(stage)
    assert await payload_of(stage, again) == "null"


async def test_a_letter_that_waited_past_its_deadline_keeps_its_payload_too(stage: Stage) -> None:
    _, claim = await stage.running(max_retries=0, deadline_seconds=3600.0)
    await stage.record(stage.ended(claim, "failed"))
    again = await replay(stage, claim.execution_id, "[7]")
    await stage.db.execute("update detent.live set deadline_at = clock_timestamp() - interval '1 second'")
    await TimeoutKeeper(stage.db, stage.clock, stage.notifier).run_once()
    letters = {row["execution_id"]: row for row in await stage.rows("dead_letters")}
    assert letters[again]["reason"] == "deadline"
    await drop_all_days(stage)
    assert await payload_of(stage, again) == "[7]"


async def test_only_letters_with_an_input_of_their_own_hold_a_copy(stage: Stage) -> None:
    first, again = await replayed_and_dead(stage, "[1]")
    held = {row["execution_id"]: row["payload"] for row in await stage.rows("dead_letters")}
    assert held == {first.execution_id: None, again: "[1]"}


# The fleet


async def ended_ago(stage: Stage, table: str, key: str, one: UUID, ago: timedelta) -> None:
    await stage.db.execute(
        f"update detent.{table} set beat_at = clock_timestamp() - $2::interval, "
        f"ended_at = case when ended_at is null then null else clock_timestamp() - $2::interval end "
        f"where {key} = $1",
        one,
        ago,
    )


async def remembered(stage: Stage, table: str, key: str) -> set[UUID]:
    return {row[0] for row in await stage.db.fetch(f"select {key} from detent.{table}")}


async def test_workers_are_forgotten_a_week_after_their_end_and_never_before(stage: Stage) -> None:
    week = timedelta(seconds=KEEP_SECONDS)
    stopped, lost, lately, live, draining = [await stage.worker() for _ in range(5)]
    for one in (stopped, lately):
        await work.stop(stage.db, one)
    await stage.db.execute(
        "update detent.workers set status = 'lost', ended_at = clock_timestamp() where worker_id = $1", lost
    )
    await stage.db.execute("update detent.workers set status = 'draining' where worker_id = $1", draining)
    for one in (stopped, lost, live, draining):
        await ended_ago(stage, "workers", "worker_id", one, week + HOUR)
    await ended_ago(stage, "workers", "worker_id", lately, week - HOUR)
    await FleetSweeper(stage.db).run_once()
    # One that fell silent without an end holds work, perhaps: it is for the rescuer first.
    assert await remembered(stage, "workers", "worker_id") == {lately, live, draining}


async def test_nodes_are_forgotten_a_week_after_their_end_or_their_last_beat(stage: Stage) -> None:
    week = timedelta(seconds=KEEP_SECONDS)
    ended, lately, silent = [await stage.node() for _ in range(3)]
    for one in (ended, lately):
        await one.closed()
    owner = await stage.node()
    await stage.db.execute("update detent.shard_leases set node_id = $1", owner.node_id)
    await ended_ago(stage, "nodes", "node_id", ended.node_id, week + HOUR)
    await ended_ago(stage, "nodes", "node_id", lately.node_id, week - HOUR)
    await ended_ago(stage, "nodes", "node_id", silent.node_id, week + HOUR)
    await ended_ago(stage, "nodes", "node_id", owner.node_id, week + HOUR)
    await FleetSweeper(stage.db).run_once()
    # The owner of a shard stays, however long it was silent: the shards name it.
    assert await remembered(stage, "nodes", "node_id") == {lately.node_id, owner.node_id}
