"""Pausing and resuming, and what the ledger says about the time in between."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from api_client import Api

from detent.model.ids import new_incarnation_id
from detent.store import timers
from detent.when.instant import format_instant

MINUTE = timedelta(minutes=1)


async def every_minute(api: Api, ago: timedelta) -> tuple[str, datetime]:
    """A job with instants each minute, the first of them so long ago."""
    first = api.stage.now().replace(microsecond=0) - ago
    job_id = await api.stage.job(first, armed_at=first - MINUTE, every=60)
    return str(job_id), first


async def fires(api: Api, job_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.get(f"/jobs/{job_id}/fires")).body["items"]
    return found


async def test_a_paused_job_is_not_fired(api: Api) -> None:
    job_id, _ = await every_minute(api, 5 * MINUTE)
    assert (await api.post(f"/jobs/{job_id}/pause")).body["status"] == "paused"
    assert await api.stage.fire() == 0
    assert (await api.get(f"/jobs/{job_id}/next")).body["fires"] == []


async def test_what_passed_while_paused_is_one_range_in_the_ledger(api: Api) -> None:
    job_id, first = await every_minute(api, 5 * MINUTE + timedelta(seconds=10))
    await api.post(f"/jobs/{job_id}/pause")
    resumed = (await api.post(f"/jobs/{job_id}/resume")).body
    assert resumed["next_run_at"] == format_instant(first + 6 * MINUTE)
    [fire] = await fires(api, job_id)
    assert (fire["decision"], fire["instants"], fire["reason"]) == ("skipped_paused", 6, "the job was paused")
    assert (fire["nominal_at"], fire["through_at"]) == (
        format_instant(first),
        format_instant(first + 5 * MINUTE),
    )
    assert (fire["execution_id"], fire["node_id"], fire["revision"]) == (None, None, 1)
    assert await api.stage.fire() == 0


async def test_a_pause_in_which_nothing_passed_adds_nothing(api: Api) -> None:
    job_id, _ = await every_minute(api, 5 * MINUTE)
    await api.post(f"/jobs/{job_id}/pause")
    await api.post(f"/jobs/{job_id}/resume")
    [before] = await fires(api, job_id)
    await api.post(f"/jobs/{job_id}/pause")
    await api.post(f"/jobs/{job_id}/resume")
    assert await fires(api, job_id) == [before], "nothing passed meanwhile"


async def test_nothing_passed_means_nothing_in_the_ledger(api: Api) -> None:
    job = await api.job(cron="0 0 1 1 *")
    await api.post(f"/jobs/{job['job_id']}/pause")
    resumed = (await api.post(f"/jobs/{job['job_id']}/resume")).body
    assert resumed["next_run_at"] == job["next_run_at"]
    assert await fires(api, job["job_id"]) == []


async def test_pausing_and_resuming_twice_is_as_good_as_once(api: Api) -> None:
    job = await api.job(cron="0 0 * * *")
    for verb, status in (("pause", "paused"), ("resume", "scheduled")):
        once = (await api.post(f"/jobs/{job['job_id']}/{verb}")).body
        version = (await api.timer(job))["version"]
        assert once["status"] == status
        assert (await api.post(f"/jobs/{job['job_id']}/{verb}")).body == once
        assert (await api.timer(job))["version"] == version


async def test_a_one_time_job_resumed_after_its_instant_fires_late(api: Api) -> None:
    job = await api.job(scheduled_at=(api.stage.now() - 5 * MINUTE).isoformat())
    await api.post(f"/jobs/{job['job_id']}/pause")
    assert await api.stage.fire() == 0
    assert (await api.post(f"/jobs/{job['job_id']}/resume")).body["next_run_at"] == job["next_run_at"]
    assert await api.stage.fire() == 1
    assert [fire["decision"] for fire in await fires(api, job["job_id"])] == ["fired_late"]


async def test_a_running_one_time_job_can_be_paused_and_ends_all_the_same(api: Api) -> None:
    job = await api.job(delay=0)
    await api.stage.fire()
    [claim] = await api.stage.claim(await api.stage.worker())
    assert (await api.post(f"/jobs/{job['job_id']}/pause")).body["status"] == "paused"
    assert (await api.post(f"/jobs/{job['job_id']}/resume")).body["status"] == "running"
    await api.stage.record(api.stage.ended(claim, "succeeded"))
    assert (await api.read(job))["status"] == "completed"


async def test_a_manual_job_can_be_paused_and_run(api: Api) -> None:
    job = await api.job()
    assert (await api.post(f"/jobs/{job['job_id']}/pause")).body["status"] == "paused"
    assert (await api.post(f"/jobs/{job['job_id']}/run")).status == 202
    assert (await api.post(f"/jobs/{job['job_id']}/resume")).body["status"] == "scheduled"
    assert (await api.timer(job))["status"] == "idle"


async def test_an_ended_job_can_be_neither_paused_nor_resumed(api: Api) -> None:
    job = await api.job(cron="0 0 * * *")
    await api.delete(f"/jobs/{job['job_id']}")
    for verb in ("pause", "resume"):
        answer = await api.post(f"/jobs/{job['job_id']}/{verb}")
        assert (answer.status, answer.code) == (409, "wrong_state")
        assert "cancelled" in answer.body["detail"]


async def test_a_new_schedule_for_a_paused_job_leaves_no_hole_in_the_ledger(api: Api) -> None:
    job_id, first = await every_minute(api, 5 * MINUTE)
    await api.post(f"/jobs/{job_id}/pause")
    assert (await api.patch(f"/jobs/{job_id}", {"every": 3600})).body["status"] == "paused"
    [fire] = await fires(api, job_id)
    assert (fire["decision"], fire["nominal_at"], fire["instants"]) == (
        "skipped_paused",
        format_instant(first),
        6,
    )
    assert fire["revision"] == 1, "these were instants of the schedule before"
    resumed = (await api.post(f"/jobs/{job_id}/resume")).body
    assert resumed["next_run_at"] > format_instant(api.stage.now() + 58 * MINUTE)
    assert len(await fires(api, job_id)) == 1


async def test_a_paused_one_time_job_moved_after_its_instant_leaves_no_hole(api: Api) -> None:
    job = await api.job(scheduled_at=(api.stage.now() - 5 * MINUTE).isoformat())
    await api.post(f"/jobs/{job['job_id']}/pause")
    moved = await api.patch(f"/jobs/{job['job_id']}", {"delay": 60, "status": "scheduled"})
    assert moved.body["status"] == "scheduled"
    [fire] = await fires(api, job["job_id"])
    assert (fire["decision"], fire["nominal_at"], fire["instants"]) == (
        "skipped_paused",
        job["next_run_at"],
        1,
    )


async def parked(api: Api, job_id: str) -> None:
    [timer] = await api.stage.due(UUID(job_id))
    await timers.park(api.stage.db, timer, "its rule raised", new_incarnation_id(), 1, api.stage.now())


async def test_a_parked_job_says_why_and_fires_again_when_resumed(api: Api) -> None:
    job_id, first = await every_minute(api, 5 * MINUTE)
    await parked(api, job_id)
    shown = (await api.get(f"/jobs/{job_id}")).body
    assert (shown["parked_reason"], shown["next_run_at"]) == ("its rule raised", None)
    resumed = (await api.post(f"/jobs/{job_id}/resume")).body
    assert (resumed["parked_reason"], resumed["next_run_at"]) == (None, format_instant(first + 6 * MINUTE))
    skipped, park = await fires(api, job_id)
    assert (park["decision"], park["nominal_at"]) == ("parked", format_instant(first))
    assert (skipped["nominal_at"], skipped["instants"]) == (format_instant(first + MINUTE), 5)
    assert skipped["reason"] == "the job was parked"


async def test_a_parked_job_can_be_paused_before_it_is_resumed(api: Api) -> None:
    job_id, first = await every_minute(api, 5 * MINUTE)
    await parked(api, job_id)
    assert (await api.post(f"/jobs/{job_id}/pause")).body["status"] == "paused"
    assert (await api.post(f"/jobs/{job_id}/resume")).body["next_run_at"] == format_instant(
        first + 6 * MINUTE
    )
    assert [fire["decision"] for fire in await fires(api, job_id)] == ["skipped_paused", "parked"]


async def test_a_parked_one_time_job_fires_when_resumed(api: Api) -> None:
    job = await api.job(delay=0)
    await parked(api, job["job_id"])
    await api.post(f"/jobs/{job['job_id']}/resume")
    assert await api.stage.fire() == 1
    assert [(fire["decision"], fire["generation"]) for fire in await fires(api, job["job_id"])] == [
        ("fired", 2),
        ("parked", 1),
    ]
    assert (await api.read(job))["status"] == "running"


async def test_a_parked_job_gets_going_with_a_new_schedule(api: Api) -> None:
    job = await api.job(delay=0)
    await parked(api, job["job_id"])
    await api.patch(f"/jobs/{job['job_id']}", {"priority": "high"})
    assert (await api.read(job))["parked_reason"] == "its rule raised"
    edited = (await api.patch(f"/jobs/{job['job_id']}", {"every": 60})).body
    assert (edited["parked_reason"], edited["next_run_at"] is None) == (None, False)
