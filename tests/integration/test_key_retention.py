"""Idempotency keys are kept for a week past the end of what they were about, and then forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import cast
from uuid import UUID, uuid4

import pytest

from detent.observe.keys import KeySweeper
from detent.runtime.clock import Clock
from detent.store import timers
from detent.store.database import Connection, Database, Record
from detent.store.embedded import Embedded
from detent.store.request_keys import START, RequestKey, claim_key, claim_keys, forget_keys
from stage import DAY, TENANT, Stage, a_database

KEEP = 7 * DAY


@pytest.fixture(scope="module")
def own_url(server: Embedded, template: str) -> str:
    return a_database(server, template)


@pytest.fixture
async def stage(own_url: str) -> AsyncIterator[Stage]:
    db = await Database.open(own_url, size=4, application_name="detent test")
    clock = Clock()
    await clock.sample(lambda: timers.clock_us(db))
    made = Stage(db, db, clock)
    await made.clear()
    await db.execute("delete from detent.request_keys")
    yield made
    await db.close()


async def keyed(stage: Stage, key: str, subject: UUID, age: timedelta) -> None:
    async with stage.db.transaction() as connection:
        assert await claim_key(connection, TENANT, RequestKey("job", key, b"body"), subject) is None
    await stage.db.execute(
        "update detent.request_keys set created_at = clock_timestamp() - $2::interval where key = $1",
        key,
        age,
    )


async def ended(stage: Stage, job_id: UUID, ago: timedelta) -> None:
    await stage.db.execute(
        "insert into detent.job_ends (tenant, job_id, status, ended_at) "
        "values ($1, $2, 'completed', clock_timestamp() - $3::interval)", TENANT, job_id, ago,
    )  # fmt: skip


async def keys(stage: Stage) -> set[str]:
    return {row["key"] for row in await stage.db.fetch("select key from detent.request_keys")}


async def test_a_key_goes_a_week_past_the_end_of_its_job_and_not_before(stage: Stage) -> None:
    jobs = await stage.jobs([stage.now() + DAY] * 3)
    for name, job in zip(("open", "ended lately", "ended long ago"), jobs, strict=True):
        await keyed(stage, name, job, 30 * DAY)
    await ended(stage, jobs[1], 6 * DAY)
    await ended(stage, jobs[2], 8 * DAY)
    assert await forget_keys(stage.db, START, 100, KEEP) == (1, None)
    assert await keys(stage) == {"open", "ended lately"}


async def test_the_key_of_an_execution_goes_when_both_are_old_enough_and_it_is_closed(stage: Stage) -> None:
    _, claim = await stage.running()
    await keyed(stage, "running", claim.execution_id, 30 * DAY)
    await keyed(stage, "closed and old", uuid4(), 8 * DAY)
    await keyed(stage, "closed and young", uuid4(), 6 * DAY)
    assert await forget_keys(stage.db, START, 100, KEEP) == (1, None)
    assert await keys(stage) == {"running", "closed and young"}


async def test_a_walk_looks_at_every_key_once_whatever_is_forgotten_on_the_way(stage: Stage) -> None:
    for n in range(25):
        await keyed(stage, f"k{n:02}", uuid4(), (8 if n % 2 else 1) * DAY)
    place, steps, forgotten = START, 0, 0
    while place is not None:
        gone, place = await forget_keys(stage.db, place, 10, KEEP)
        steps, forgotten = steps + 1, forgotten + gone
    assert (steps, forgotten) == (3, 12)
    assert await keys(stage) == {f"k{n:02}" for n in range(0, 25, 2)}


async def test_without_any_key_a_walk_ends_at_once(stage: Stage) -> None:
    assert await forget_keys(stage.db, START, 10, KEEP) == (0, None)


async def test_while_the_clock_is_in_doubt_nothing_is_forgotten(stage: Stage) -> None:
    await keyed(stage, "old", uuid4(), 8 * DAY)
    sweeper = KeySweeper(stage.db, stage.clock)
    real = await timers.clock_us(stage.db)

    async def leapt() -> int:
        return real + 3_600_000_000

    await stage.clock.sample(leapt)
    await sweeper.run_once()
    assert await keys(stage) == {"old"}
    await stage.clock.sample(lambda: timers.clock_us(stage.db))
    await sweeper.run_once()
    assert await keys(stage) == set()


class Forgetting:
    """A connection during whose first insert of keys an old one is forgotten by somebody else."""

    def __init__(self, stage: Stage, connection: Connection) -> None:
        self._stage = stage
        self._connection = connection

    async def fetch(self, query: str, *args: object) -> list[Record]:
        rows = await self._connection.fetch(query, *args)
        if "insert into detent.request_keys" in query:
            await self._stage.db.execute(
                "delete from detent.request_keys where created_at < now() - interval '7 days'"
            )
        return rows


async def test_a_key_that_is_forgotten_while_it_is_asked_for_makes_a_new_request(stage: Stage) -> None:
    old, new, other = uuid4(), uuid4(), uuid4()
    await keyed(stage, "old", old, 8 * DAY)
    async with stage.db.transaction() as connection:
        asking = Forgetting(stage, connection)
        wanted = [RequestKey("job", "old", b"another body"), RequestKey("job", "new", b"body")]
        assert await claim_keys(cast(Connection, asking), TENANT, wanted, [new, other]) == [None, None]
    rows = await stage.db.fetch("select key, subject from detent.request_keys order by key")
    assert [(row["key"], row["subject"]) for row in rows] == [("new", other), ("old", new)]
