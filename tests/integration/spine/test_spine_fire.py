"""Firing: each instant of a schedule is decided once, in one transaction."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from detent.api.decide import pause
from detent.fire.decide import decide
from detent.model.ids import day_true, execution_id, filed_day, new_incarnation_id, schedule_key
from detent.runtime.clock import Clock
from detent.store import timers
from detent.store.jobs import Change, Revision, Standing, cancel_job, change_job
from detent.when.rule import NextFires, cron_rule, next_fire
from stage import HOUR, MINUTE, MOMENT, SECOND, TENANT, YEAR, Stage

NODE = new_incarnation_id()


def to_another_pool(standing: Standing) -> Change:
    job = standing.job
    spec = msgspec.structs.replace(job.spec, pool="elsewhere")
    revision = Revision(spec, job.payload, job.armed_at)
    return Change("scheduled", standing.due_at, standing.decided_through, standing.generation, revision)


async def test_a_due_job_gets_a_ledger_row_and_a_queued_execution(stage: Stage) -> None:
    job_id = await stage.once(priority="high", pool="reports")
    before = await stage.row("timers", job_id)
    assert await stage.fire() == 1

    timer = await stage.row("timers", job_id)
    assert (timer["status"], timer["due_at"]) == ("done", None)
    assert timer["version"] == before["version"] + 1
    assert timer["decided_through"] == before["due_at"]
    assert timer["fired"] == 1

    fire = await stage.row("fires", job_id)
    late = fire["decided_at"] - fire["nominal_at"] > SECOND
    assert fire["decision"] == ("fired_late" if late else "fired")
    assert (fire["nominal_at"], fire["revision"]) == (before["due_at"], 1)
    expected = execution_id(before["due_at"], job_id, "schedule", schedule_key(1, before["due_at"]))
    assert fire["execution_id"] == expected
    assert fire["day"] == filed_day(expected)

    live = await stage.row("live", job_id)
    assert live["execution_id"] == expected
    assert (live["state"], live["cause"], live["pool"], live["class"]) == ("queued", "schedule", "reports", 1)
    assert live["scheduled_for"] == live["not_before"] == before["due_at"]
    assert (live["attempt"], live["ends_job"], live["revision"]) == (0, True, 1)


async def test_a_recurring_job_is_armed_for_its_next_instant(stage: Stage) -> None:
    job_id = await stage.every(3600, first_ago=MOMENT)
    due_at = (await stage.row("timers", job_id))["due_at"]
    assert await stage.fire() == 1
    timer = await stage.row("timers", job_id)
    assert (timer["status"], timer["due_at"]) == ("scheduled", due_at + HOUR)
    assert (await stage.row("live", job_id))["ends_job"] is False


async def test_a_recurring_job_ends_with_the_execution_of_its_last_instant(stage: Stage) -> None:
    first = stage.now() - MOMENT
    job_id = await stage.every(3600, first_ago=MOMENT, end_at=first + timedelta(minutes=59))
    assert await stage.fire() == 1
    timer = await stage.row("timers", job_id)
    assert (timer["status"], timer["due_at"]) == ("done", None)
    assert (await stage.row("live", job_id))["ends_job"] is True


async def test_jobs_with_an_h_are_armed_each_for_an_instant_of_its_own(stage: Stage) -> None:
    jobs = await stage.jobs([stage.now() - MOMENT] * 20, cron="H H * * *")
    assert await stage.fire() == 20
    armed = set()
    for job_id in jobs:
        due_at = (await stage.row("timers", job_id))["due_at"]
        assert due_at == next_fire(cron_rule("H H * * *", seed=job_id.int), stage.now())
        armed.add(due_at)
    assert len(armed) > 10


async def test_what_is_not_due_yet_is_left_alone(stage: Stage) -> None:
    await stage.job(stage.now() + MINUTE, scheduled_at=stage.now() + MINUTE)
    before = await stage.everything()
    assert await stage.fire() == 0
    assert await stage.everything() == before


async def test_firing_again_finds_nothing_to_do(stage: Stage) -> None:
    await stage.jobs([stage.now() - MOMENT] * 20, scheduled_at=stage.now())
    assert await stage.fire() == 20
    after = await stage.everything()
    assert await stage.fire() == 0
    assert await stage.everything() == after


async def test_more_than_one_batch_is_fired_in_one_tick(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.fire.firer.BATCH", 7)
    await stage.jobs([stage.now() - MOMENT] * 50, scheduled_at=stage.now())
    assert await stage.fire() == 50
    assert len(await stage.rows("live")) == len(await stage.rows("fires")) == 50


async def test_a_scheduler_whose_clock_is_ahead_fires_nothing_early(stage: Stage) -> None:
    at = stage.now() + HOUR
    job_id = await stage.job(at, scheduled_at=at)

    class Ahead(Clock):
        def now_us(self) -> int:
            return stage.clock.now_us() + 2 * 3600 * 1_000_000

    firer = await stage.firer()
    firer._clock = Ahead()
    before = await stage.everything()
    await firer.run_once()
    assert firer.fired == 0
    assert await stage.everything() == before
    [timer] = await stage.due(job_id)
    assert timer.due_at == at


async def test_a_one_time_job_in_the_past_fires_at_once_and_says_late(stage: Stage) -> None:
    job_id = await stage.once(ago=timedelta(days=3))
    assert await stage.fire() == 1
    fire = await stage.row("fires", job_id)
    assert fire["decision"] == "fired_late"
    assert fire["day"] == fire["nominal_at"].date()
    assert (await stage.row("live", job_id))["state"] == "queued"
    assert (await stage.row("timers", job_id))["status"] == "done"


async def test_a_job_of_long_ago_is_filed_under_the_day_of_its_decision(stage: Stage) -> None:
    job_id = await stage.once(ago=YEAR)
    assert await stage.fire() == 1
    fire = await stage.row("fires", job_id)
    assert fire["decision"] == "fired_late"
    assert fire["day"] == filed_day(fire["execution_id"])
    assert abs(fire["day"] - fire["decided_at"].date()) <= timedelta(days=1)  # midnight may pass between
    assert (await stage.row("live", job_id))["scheduled_for"] == fire["nominal_at"]


async def test_a_year_without_a_scheduler_costs_a_minutely_job_one_execution_and_one_range(
    stage: Stage,
) -> None:
    job_id = await stage.every(60, first_ago=YEAR + 30 * SECOND)
    first = (await stage.row("timers", job_id))["due_at"]
    assert await stage.fire() == 1

    skipped, fired = await stage.rows("fires", job_id)
    minutes = YEAR // MINUTE
    assert fired["nominal_at"] == first + minutes * MINUTE
    assert fired["decision"] == "fired_late"
    assert (skipped["decision"], skipped["execution_id"]) == ("skipped_misfire", None)
    assert (skipped["nominal_at"], skipped["through_at"]) == (first, first + (minutes - 1) * MINUTE)
    assert skipped["instants"] == minutes
    assert skipped["reason"]

    live = await stage.row("live", job_id)
    assert (live["execution_id"], live["scheduled_for"]) == (fired["execution_id"], fired["nominal_at"])
    timer = await stage.row("timers", job_id)
    assert timer["due_at"] == fired["nominal_at"] + MINUTE
    assert timer["decided_through"] == fired["nominal_at"]


@pytest.mark.parametrize("meanwhile", ["paused", "cancelled", "edited", "fired by another"])
async def test_a_decision_about_a_timer_that_changed_meanwhile_fires_nothing(
    stage: Stage, meanwhile: str
) -> None:
    job_id = await stage.every(3600, first_ago=MOMENT)
    [timer] = await stage.due(job_id)
    firing = decide(timer, stage.now(), 1, NextFires())

    match meanwhile:
        case "paused":
            await change_job(stage.db, TENANT, job_id, pause, stage.now(), None)
        case "cancelled":
            await cancel_job(stage.db, TENANT, job_id, stage.now(), None)
        case "edited":
            await change_job(stage.db, TENANT, job_id, to_another_pool, stage.now(), None)
        case _:
            assert await stage.fire() == 1

    before = await stage.everything()
    assert await timers.fire(stage.hot, [firing], NODE, "test", stage.now()) == set()
    assert await stage.everything() == before


async def test_a_firer_with_an_old_copy_reads_the_timer_again(stage: Stage) -> None:
    job_id = await stage.once()
    firer = await stage.firer()
    [timer] = await stage.due(job_id)
    firer._reload = False
    firer._wheel.insert(timer)
    firer._horizon._ends = dict.fromkeys(range(256), (stage.now() + HOUR, job_id))
    firer._scan_at = stage.now() + HOUR
    await stage.db.execute("update detent.timers set version = version + 1 where job_id = $1", job_id)
    await firer.run_once()
    assert firer.fired == 0
    await firer.run_once()
    assert firer.fired == 1
    assert len(await stage.rows("fires", job_id)) == 1


async def test_the_instant_of_a_firing_that_is_not_the_timers_fires_nothing(stage: Stage) -> None:
    job_id = await stage.once()
    [timer] = await stage.due(job_id)
    moved = timer._replace(due_at=timer.due_at - SECOND)
    firing = decide(moved, stage.now(), 1, NextFires())
    assert await timers.fire(stage.hot, [firing], NODE, "test", stage.now()) == set()
    assert await stage.rows("live") == []


async def test_a_missing_partition_is_made_on_the_spot(stage: Stage) -> None:
    now = stage.now()
    await stage.jobs([now - MOMENT] * 3, scheduled_at=now)
    for day in (now - timedelta(days=1), now, now + timedelta(days=1)):
        await stage.drop_partitions_of(day)
    assert await stage.fire() == 3
    assert len(await stage.rows("fires")) == len(await stage.rows("live")) == 3


async def test_the_ledger_of_an_instant_just_before_midnight_is_filed_under_that_day(stage: Stage) -> None:
    today = stage.now().replace(hour=0, minute=0, second=0, microsecond=0)
    eve = today - timedelta(microseconds=1)
    job_id = await stage.job(eve, scheduled_at=eve)
    assert await stage.fire() == 1
    fire = await stage.row("fires", job_id)
    assert fire["day"] == eve.date() == filed_day(fire["execution_id"])
    assert day_true(eve, datetime.now(UTC)) == eve
