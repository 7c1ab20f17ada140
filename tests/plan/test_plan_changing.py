"""Plans that were made for other tables than they meet.

A plan is made once for a session and kept. One that was made when a table was nearly empty must still be
right when the table has grown, and rows that are dead but may not be removed must not be in its way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from asks import SHARDS, arguments, columns
from crowd import WORKER, crowd, leave_statistics_alone, vacuum
from explained import Prepared, reading_of
from test_plan_hot import READS, ROUNDED, check

from detent.dispatch.rank import Bounds, everything
from detent.store import work
from detent.store.database import Connection, Database
from detent.store.embedded import Embedded
from detent.store.sql import Queries
from detent.store.work import Closing
from stage import a_database, apart

queries = Queries.load()
BATCH = 100
STATEMENTS = [*READS, "due_timers", "further_timers"]

# Arguments with which each of them is about no row at all.
NOTHING: dict[str, list[object]] = {
    "fire_batch": [*([[]] * 15), WORKER, "test", "2026-01-01T00:00:00Z", timedelta(0)],
    "claim": [WORKER, "nothing here", 1, *columns(everything(1)), timedelta(0)],
    "close_batch": [[]] * 12,
    "close_succeeded": [[]] * 6,
    "return_batch": [[]] * 11,
    "append_logs": [[]] * 7,
    "recorded_attempts": [[], [], [], [], "2026-01-01"],
    "timers_of": [[]],
    "definitions": [[], []],
    "due_timers": [[], "2026-01-01T00:00:00Z", 1],
    "further_timers": [[], [], [], "2026-01-01T00:00:00Z", 1],
}


@pytest.fixture
def small_url(server: Embedded, template: str) -> str:
    """A database of which the server is asked to keep no statistics by itself."""
    url = a_database(server, template)
    apart(leave_statistics_alone(url))
    return url


@pytest.fixture
async def small(small_url: str) -> AsyncIterator[Database]:
    database = await Database.open(small_url, size=3, application_name="detent test", hot=True)
    yield database
    await database.close()


async def planned(connection: Connection) -> dict[str, Prepared]:
    """Every hot statement, prepared and used once, so that its plan is made."""
    prepared = {name: await Prepared(connection, name).prepare() for name in STATEMENTS}
    for name, one in prepared.items():
        await one.reading(*NOTHING[name])
    return prepared


@pytest.mark.parametrize("start", ["new", "a few rows", "nothing open", "some rows"])
async def test_plans_made_for_nearly_empty_tables_hold_when_the_tables_have_grown(
    small: Database, start: str
) -> None:
    if start != "new":
        await crowd(small.url, 60 if start == "some rows" else 3)
        if start == "nothing open":
            await small.execute("delete from detent.live")
        await vacuum(small.url)
    async with small.connection() as connection:
        prepared = await planned(connection)
        await crowd(small.url, 8_000)
        for name in READS:
            given = await arguments(small, name, BATCH)
            check(await prepared[name].reading(*given), name, BATCH)
        places_of_all = [["0001-01-01T00:00:00Z"] * len(SHARDS), [str(UUID(int=0))] * len(SHARDS)]
        for name, places in (("due_timers", []), ("further_timers", places_of_all)):
            due = await prepared[name].reading(SHARDS, *places, "infinity", 2)
            assert due.answered == 2 * len(SHARDS)
            assert due.rows <= 4 * due.answered + ROUNDED
            assert due.blocks <= 20 * due.answered


async def test_a_snapshot_held_open_is_not_in_the_way_of_claims_fires_and_endings(small: Database) -> None:
    await crowd(small.url, 10_000)
    await pass_by_what_is_dead(small)


async def pass_by_what_is_dead(database: Database) -> None:
    """Whoever looks at an old state keeps the rows of all that happened since. Fires and endings go to their
    rows by their keys and claims begin where the last one ended, past none of the dead ones.
    """
    bounds = Bounds()
    async with database.transaction(isolation="repeatable_read", readonly=True) as analyst:
        await analyst.fetchval("select count(*) from detent.workers")
        for _ in range(8):
            await fire_and_finish(database, bounds)
        for name in ("fire_batch", "close_batch", "close_succeeded", "return_batch", "append_logs"):
            check(await reading_of(database, name, *await arguments(database, name, BATCH)), name, BATCH)
        bounded = columns(bounds.ranges(now_us(), 10))
        claim = await reading_of(database, "claim", WORKER, "default", 10, *bounded, timedelta(0))
        check(claim, "claim", 10)
        unbounded = columns(everything(10))
        whole = await reading_of(database, "claim", WORKER, "default", 10, *unbounded, timedelta(0))
        assert whole.blocks > 4 * claim.blocks, "nothing was in the way: this shows nothing"


def now_us() -> int:
    return int(datetime.now(UTC).timestamp() * 1e6)


async def fire_and_finish(database: Database, bounds: Bounds) -> None:
    await database.fetch(queries.fire_batch, *await arguments(database, "fire_batch", BATCH))
    at = now_us()
    rows = await work.claim(database, WORKER, "default", 500, bounds.ranges(at, 500))
    bounds.took(((row["class"], row["rank"]) for row in rows), at, all_of_it=False)
    now = datetime.now(UTC)
    ends = [
        Closing(
            row["execution_id"], row["attempt"], row["token"], "succeeded", "succeeded", now, now,
            None, None, None, 0, None,
        )
        for row in sorted(rows, key=lambda row: row["execution_id"])
    ]  # fmt: skip
    assert len(await work.close(database, ends)) == 500
