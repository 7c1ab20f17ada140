"""A million timers and a hundred thousand open executions: what is hot reads as little as among a few, also while
somebody looks at an old state and keeps the rows of all that happened since.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from asks import SHARDS, arguments
from crowd import crowd, leave_statistics_alone, vacuum
from explained import reading_of
from test_plan_changing import pass_by_what_is_dead
from test_plan_hot import READS, ROUNDED, check

from detent.fire.horizon import HORIZON, PER_SHARD, SCAN_AHEAD
from detent.store.database import Database
from detent.store.embedded import Embedded
from detent.store.executions import ExecutionFilter
from detent.store.jobs import JobFilter
from detent.store.listing import LAST
from stage import a_database, apart

TIMERS, OPEN = 1_000_000, 100_000
LIMIT = 50

# Making them takes minutes on a busy machine. The same with a hundred thousand is in `test_plan_hot.py`.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def million_url(server: Embedded, template: str) -> str:
    url = a_database(server, template)
    apart(leave_statistics_alone(url))
    apart(crowd(url, TIMERS, OPEN))
    apart(vacuum(url))
    return url


@pytest.fixture
async def million(million_url: str) -> AsyncIterator[Database]:
    database = await Database.open(million_url, size=3, application_name="detent test", hot=True)
    yield database
    await database.close()


@pytest.fixture
async def door(million_url: str) -> AsyncIterator[Database]:
    """As the HTTP door connects."""
    database = await Database.open(million_url, size=2, application_name="detent test")
    yield database
    await database.close()


async def test_there_are_so_many(million: Database) -> None:
    assert await million.fetchval("select count(*) from detent.timers") == TIMERS
    assert await million.fetchval("select count(*) from detent.live") == OPEN


@pytest.mark.parametrize("statement", READS)
async def test_a_hot_statement_reads_what_it_is_about_among_a_million(
    million: Database, statement: str
) -> None:
    for batch in (1, 500):
        asked = await arguments(million, statement, batch)
        check(await reading_of(million, statement, *asked), statement, batch)


@pytest.mark.parametrize("ahead", [HORIZON, SCAN_AHEAD])
async def test_topping_up_reads_the_timers_of_that_time_among_a_million(
    million: Database, ahead: timedelta
) -> None:
    reading = await reading_of(million, "due_timers", SHARDS, datetime.now(UTC) + ahead, PER_SHARD)
    assert 1000 <= reading.answered <= 3000
    assert reading.rows <= 4 * reading.answered + ROUNDED
    assert reading.blocks <= 15 * reading.answered + 4 * len(SHARDS)


async def test_a_page_of_a_list_reads_about_a_page_among_a_million(door: Database) -> None:
    for wanted in (JobFilter(), JobFilter(name="job 7"), JobFilter(tag="tag 7"), JobFilter(status="failed")):
        reading = await reading_of(
            door, "list_jobs", 1, wanted.source, wanted.name, wanted.tag, wanted.status, wanted.pool,
            LAST, LIMIT + 1, LIMIT + 1, 0,
        )  # fmt: skip
        assert reading.answered == LIMIT + 1
        assert reading.rows <= 9 * (LIMIT + 1) + 20, (wanted, reading)
    everybody = ExecutionFilter()
    assert everybody.exact
    reading = await reading_of(
        door, "list_executions", 1, "all", True, True, None, None, LAST, LIMIT + 1, LIMIT + 1, 0
    )
    assert reading.answered == LIMIT + 1
    assert reading.rows <= 4 * (LIMIT + 1) + 20, reading


async def test_a_snapshot_held_open_is_in_nobodys_way_among_a_million(million: Database) -> None:
    await pass_by_what_is_dead(million)
    async with million.transaction(isolation="repeatable_read", readonly=True) as analyst:
        await analyst.fetchval("select count(*) from detent.workers")
        for ahead in (HORIZON, SCAN_AHEAD):
            reading = await reading_of(million, "due_timers", SHARDS, datetime.now(UTC) + ahead, PER_SHARD)
            assert reading.rows <= 4 * reading.answered + ROUNDED
