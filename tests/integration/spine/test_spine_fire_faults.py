"""Firing when something is wrong: a crash around the commit, a lost answer, rows that cannot fire."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from detent.fire.decide import decide
from detent.model.errors import StoreUnavailable
from detent.model.ids import new_incarnation_id
from detent.store import timers
from detent.store.sql import Queries
from detent.when.rule import NextFires
from stage import DAY, MOMENT, Stage, unreliable

queries = Queries.load()
NODE = new_incarnation_id()


async def respec(stage: Stage, job_id: UUID, **fields: Any) -> None:
    """Change a stored definition behind the back of every check."""
    await stage.db.execute(
        "update detent.job_revisions set spec = spec || $2::text::jsonb where job_id = $1",
        job_id,
        json.dumps(fields),
    )


async def note_as_fired(stage: Stage, job_id: UUID) -> UUID:
    """Poison a row: its ledger entry is there already, so that firing it meets a unique key."""
    [timer] = await stage.due(job_id)
    firing = decide(timer, stage.now(), 1, NextFires())
    await stage.db.execute(
        "insert into detent.fires (tenant, job_id, generation, nominal_at, day, decision, decided_at, "
        "execution_id, revision) values (1, $1, 1, $2, $3, 'fired', $2, $4, 1)",
        job_id,
        firing.fire_at,
        firing.day,
        firing.execution_id,
    )
    return firing.execution_id


async def test_a_crash_before_the_commit_loses_nothing(stage: Stage) -> None:
    jobs = await stage.jobs([stage.now() - MOMENT] * 5, scheduled_at=stage.now())
    before = await stage.everything()
    firings = [decide(timer, stage.now(), 1, NextFires()) for timer in await stage.due(*jobs)]
    with pytest.raises(ZeroDivisionError):
        async with stage.hot.transaction() as connection:
            assert await timers.fire(connection, firings, NODE, "test", stage.now()) == set(jobs)  # type: ignore[arg-type]
            raise ZeroDivisionError
    assert await stage.everything() == before
    assert await stage.fire() == 5
    assert len(await stage.rows("live")) == len(await stage.rows("fires")) == 5


async def test_a_crash_after_the_commit_repeats_nothing(stage: Stage) -> None:
    jobs = await stage.jobs([stage.now() - MOMENT] * 5, scheduled_at=stage.now())
    firings = [decide(timer, stage.now(), 1, NextFires()) for timer in await stage.due(*jobs)]
    assert await timers.fire(stage.hot, firings, NODE, "test", stage.now()) == set(jobs)
    after = await stage.everything()
    assert await timers.fire(stage.hot, firings, NODE, "test", stage.now()) == set()
    assert await stage.fire() == 0
    assert await stage.everything() == after


async def test_a_fire_whose_answer_is_lost_is_neither_lost_nor_repeated(stage: Stage) -> None:
    once = await stage.once()
    hourly = await stage.every(3600, first_ago=MOMENT)
    firer = await stage.firer(database=unreliable(stage.hot, queries.fire_batch))
    with pytest.raises(StoreUnavailable):
        await firer.run_once()
    after = await stage.everything()
    assert len(after["live"]) == len(after["fires"]) == 2
    await firer.run_once()
    assert await stage.everything() == after
    assert firer._wheel.next_due() is None  # neither job is due again within the horizon
    assert (await stage.row("timers", once))["status"] == "done"
    assert (await stage.row("timers", hourly))["status"] == "scheduled"


async def test_a_rule_that_raises_parks_its_own_timer_with_the_reason(stage: Stage) -> None:
    good = await stage.jobs([stage.now() - MOMENT] * 4, cron="* * * * *")
    bad = await stage.every(60, first_ago=MOMENT, cron=None)
    await respec(stage, bad, every=None, cron="this is no cron")
    assert await stage.fire() == 4
    assert {row["job_id"] for row in await stage.rows("live")} == set(good)

    timer = await stage.row("timers", bad)
    assert timer["status"] == "parked"
    assert "its rule cannot be evaluated" in timer["parked_reason"]
    fire = await stage.row("fires", bad)
    assert (fire["decision"], fire["execution_id"]) == ("parked", None)
    assert fire["nominal_at"] == timer["due_at"]
    assert fire["reason"] == timer["parked_reason"]


async def test_a_definition_that_cannot_be_read_parks_its_own_timer(stage: Stage) -> None:
    good = await stage.once()
    bad = await stage.once()
    await respec(stage, bad, timeout_seconds="soon")
    assert await stage.fire() == 1
    assert (await stage.row("live", good))["state"] == "queued"
    assert (await stage.row("timers", bad))["status"] == "parked"


async def test_a_poisoned_row_is_found_by_halving_and_harms_no_other(stage: Stage) -> None:
    jobs = await stage.jobs([stage.now() - MOMENT] * 37, scheduled_at=stage.now())
    bad = jobs[17]
    await stage.db.execute("update detent.timers set generation = 2 where job_id = $1", bad)
    await stage.db.execute(
        "alter table detent.fires add constraint poisoned check (decision = 'parked' or generation < 2)"
    )
    try:
        assert await stage.fire() == 36
    finally:
        await stage.db.execute("alter table detent.fires drop constraint poisoned")
    assert {row["job_id"] for row in await stage.rows("live")} == set(jobs) - {bad}
    timer = await stage.row("timers", bad)
    assert timer["status"] == "parked"
    assert "poisoned" in timer["parked_reason"]
    assert (await stage.row("fires", bad))["decision"] == "parked"


async def test_an_instant_that_the_ledger_has_already_is_parked_and_not_fired_again(stage: Stage) -> None:
    jobs = await stage.jobs([stage.now() - MOMENT] * 9, scheduled_at=stage.now())
    bad = jobs[4]
    before = await note_as_fired(stage, bad)
    assert await stage.fire() == 8
    assert {row["job_id"] for row in await stage.rows("live")} == set(jobs) - {bad}
    assert (await stage.row("timers", bad))["status"] == "parked"
    fire = await stage.row("fires", bad)
    assert (fire["decision"], fire["execution_id"]) == ("fired", before)


async def test_parking_makes_the_partition_that_it_needs(stage: Stage) -> None:
    job_id = await stage.every(60, first_ago=MOMENT)
    await respec(stage, job_id, every=None, cron="this is no cron")
    for day in (stage.now() - DAY, stage.now(), stage.now() + DAY):
        await stage.drop_partitions_of(day)
    assert await stage.fire() == 0
    assert (await stage.row("timers", job_id))["status"] == "parked"
    assert (await stage.row("fires", job_id))["decision"] == "parked"


async def test_a_late_instant_is_parked_under_its_own_day(stage: Stage) -> None:
    job_id = await stage.every(60, first_ago=3 * DAY)
    await respec(stage, job_id, every=None, cron="this is no cron")
    await stage.fire()
    fire = await stage.row("fires", job_id)
    assert fire["decision"] == "parked"
    assert fire["day"] == fire["nominal_at"].date()


async def test_a_timer_that_was_changed_meanwhile_is_not_parked(stage: Stage) -> None:
    job_id = await stage.once()
    [timer] = await stage.due(job_id)
    await stage.db.execute("update detent.timers set version = version + 1 where job_id = $1", job_id)
    before = await stage.everything()
    await timers.park(stage.hot, timer, "why", NODE, 1, stage.now())
    assert await stage.everything() == before
