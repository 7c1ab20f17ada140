"""Lists and look-ups read rows in proportion to what they may look at, whatever the tables hold."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from asks import jobs
from explained import Reading, reading_of

from detent.store.database import Database
from detent.store.executions import ExecutionFilter
from detent.store.jobs import JobFilter
from detent.store.listing import LAST, SCAN

LIMIT = 50
PARTITIONS = 20


def check(reading: Reading, looked: int, reads: int) -> None:
    assert reading.rows <= reads * looked + PARTITIONS, reading
    assert reading.handled <= 4 * reads * looked + PARTITIONS, reading
    assert reading.blocks <= 15 * reads * looked + 20 * PARTITIONS, reading


@pytest.mark.parametrize(
    "wanted",
    [
        JobFilter(),
        JobFilter(name="job 7"),
        JobFilter(tag="tag 7"),
        JobFilter(status="completed"),
        JobFilter(status="failed"),
        JobFilter(pool="reports"),
    ],
)
async def test_a_page_of_jobs_reads_about_a_page(plain: Database, wanted: JobFilter) -> None:
    assert wanted.exact
    reading = await reading_of(
        plain, "list_jobs", 1, wanted.source, wanted.name, wanted.tag, wanted.status, wanted.pool,
        LAST, LIMIT + 1, LIMIT + 1, 0,
    )  # fmt: skip
    assert reading.answered == LIMIT + 1
    check(reading, LIMIT + 1, reads=9)


@pytest.mark.parametrize(
    "wanted",
    [
        JobFilter(status="paused"),
        JobFilter(status="running"),
        JobFilter(status="scheduled"),
        JobFilter(pool="default"),
        JobFilter(name="job 7", status="failed"),
        JobFilter(tag="tag 7", pool="reports"),
        JobFilter(tag="tag 100", name="nobody"),
    ],
)
async def test_a_look_for_jobs_with_odd_filters_reads_no_more_than_it_may(
    plain: Database, wanted: JobFilter
) -> None:
    assert not wanted.exact
    reading = await reading_of(
        plain, "list_jobs", 1, wanted.source, wanted.name, wanted.tag, wanted.status, wanted.pool,
        LAST, SCAN, LIMIT + 1, 0,
    )  # fmt: skip
    check(reading, SCAN, reads=5)


@pytest.mark.parametrize("source", ["all", "job", "unsuccessful"])
async def test_a_page_of_executions_reads_about_a_page(plain: Database, source: str) -> None:
    job_id = await plain.fetchval("select job_id from detent.executions limit 1") if source == "job" else None
    status = "dead_lettered" if source == "unsuccessful" else None
    wanted = ExecutionFilter(job_id=job_id, status=status)
    assert (wanted.source, wanted.exact) == (source, True)
    reading = await reading_of(
        plain, "list_executions", 1, source, status is None, True, job_id, status,
        LAST, LIMIT + 1, LIMIT + 1, 0,
    )  # fmt: skip
    assert reading.answered == (2 if source == "job" else LIMIT + 1)
    check(reading, LIMIT + 1, reads=4)


@pytest.mark.parametrize("status", ["queued", "running", "succeeded"])
async def test_a_look_for_executions_by_a_common_status_reads_no_more_than_it_may(
    plain: Database, status: str
) -> None:
    is_open = status != "succeeded"
    reading = await reading_of(
        plain, "list_executions", 1, "all", is_open, not is_open, None, status, LAST, SCAN, LIMIT + 1, 0
    )
    check(reading, SCAN, reads=2)


async def test_the_next_page_reads_no_more_than_the_first(plain: Database) -> None:
    middle = await plain.fetchval("select job_id from detent.jobs order by job_id offset 50000 limit 1")
    reading = await reading_of(
        plain, "list_jobs", 1, "all", None, None, None, None, middle, LIMIT + 1, LIMIT + 1, 0
    )
    assert reading.answered == LIMIT + 1
    check(reading, LIMIT + 1, reads=9)


async def test_a_page_of_a_long_ledger_reads_about_a_page(plain: Database) -> None:
    job_id = await plain.fetchval("select job_id from detent.jobs order by job_id limit 1")
    reading = await reading_of(plain, "list_fires", 1, job_id, datetime.now(UTC), 1000, LIMIT)
    assert reading.answered == LIMIT
    check(reading, LIMIT, reads=1)


async def test_one_job_is_read_by_its_keys(plain: Database) -> None:
    reading = await reading_of(plain, "read_jobs", 1, await jobs(plain, 1))
    assert reading.answered == 1
    assert reading.rows <= 5
    assert reading.blocks <= 40


@pytest.mark.parametrize("table", ["live", "executions"])
async def test_one_execution_is_read_by_its_id_from_the_partition_that_it_names(
    plain: Database, table: str
) -> None:
    execution_id = await plain.fetchval(f"select execution_id from detent.{table} offset 500 limit 1")
    reading = await reading_of(plain, "read_execution", 1, execution_id)
    assert (reading.answered, reading.rows) == (1, 1)
    assert reading.blocks <= 10


async def test_what_fires_next_reads_a_few_of_each_shard(plain: Database) -> None:
    reading = await reading_of(plain, "upcoming_jobs", 1, 10)
    assert reading.answered == 10
    assert reading.rows <= 2 * 256 * 10


async def test_executions_asked_for_together_are_read_by_their_ids(plain: Database) -> None:
    rows = await plain.fetch("select execution_id from detent.executions order by execution_id desc limit 50")
    ids = [row["execution_id"] for row in rows]
    reading = await reading_of(plain, "read_details", 1, ids, min(ids), max(ids))
    assert reading.answered == len(ids)
    assert reading.rows <= 2 * len(ids) + PARTITIONS
    assert reading.blocks <= 20 * len(ids)


async def test_attempts_and_output_of_executions_are_read_by_their_ids(plain: Database) -> None:
    rows = await plain.fetch("select execution_id from detent.attempts order by execution_id desc limit 50")
    ids = [row["execution_id"] for row in rows]
    today = datetime.now(UTC).date()
    reading = await reading_of(plain, "read_attempts", 1, ids, today, today)
    assert reading.answered == len(ids)
    assert reading.rows <= 2 * len(ids)
    assert (await reading_of(plain, "read_output_tails", 1, ids, [1] * 50, today, today, 10, 10)).rows == 0


async def test_jobs_run_together_are_found_by_their_ids(plain: Database) -> None:
    wanted = await jobs(plain, 50)
    nothing = [None] * 50
    at = [datetime.now(UTC)] * 50
    reading = await reading_of(plain, "run_each", 1, wanted, wanted, at, nothing, nothing, nothing)
    assert reading.answered == 50
    assert reading.rows <= 20 * 50
    assert reading.handled <= 120 * 50  # of which 50 * 50 compare what was asked with what was locked
