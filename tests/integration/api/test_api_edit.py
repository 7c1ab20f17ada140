"""PATCH /jobs/{id}: what an edit changes, and what it leaves alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from api_client import Api

HOUR = timedelta(hours=1)


def path(job: dict[str, Any]) -> str:
    return f"/jobs/{job['job_id']}"


async def run_through(api: Api, outcome: str = "succeeded") -> None:
    """Fire what is due, and end it."""
    assert await api.stage.fire() == 1
    [claim] = await api.stage.claim(await api.stage.worker())
    await api.stage.record(api.stage.ended(claim, outcome))


async def armed_at(api: Api, job: dict[str, Any]) -> datetime:
    found: datetime = await api.stage.db.fetchval(
        "select armed_at from detent.job_revisions where job_id = $1 order by revision desc limit 1",
        UUID(job["job_id"]),
    )
    return found


async def test_a_new_schedule_is_armed_anew(api: Api) -> None:
    job = await api.job(every=3600)
    edited = (await api.patch(path(job), {"every": 7200})).body
    assert (edited["every"], edited["revision"]) == (7200, 2)
    assert edited["next_run_at"] > job["next_run_at"]
    assert await armed_at(api, job) > datetime.fromisoformat(job["created_at"])
    assert (await api.timer(job))["version"] == 2


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"priority": "high"},
        {"payload": {"new": True}},
        {"tags": ["x"]},
        {"timeout_seconds": 5},
        {"task": {"kind": "shell", "command": "true"}},
        {"max_retries": 0},
        {"pool": "other"},
        {"every": 3600, "callback_url": "https://example.org/"},
    ],
)
async def test_any_other_change_keeps_the_beat(api: Api, change: dict[str, Any]) -> None:
    job = await api.job(every=3600)
    edited = (await api.patch(path(job), change)).body
    assert edited["revision"] == 2
    assert edited["next_run_at"] == job["next_run_at"]
    assert await armed_at(api, job) == datetime.fromisoformat(job["created_at"])
    for field in set(job) - set(change) - {"revision", "updated_at"}:
        assert edited[field] == job[field], field
    assert (await api.timer(job))["version"] == 2, "schedulers must look at it anew"


async def test_an_edit_that_says_what_is_so_already_changes_nothing(api: Api) -> None:
    job = await api.job(every=3600, payload={"a": 1}, tags=["x"])
    before = await api.timer(job)
    for body in ({}, {"every": "PT1H"}, {"payload": {"a": 1}}, {"name": "job", "tags": ["x"]}):
        assert (await api.patch(path(job), body)).body == job
    assert await api.timer(job) == before


async def test_null_puts_a_field_back_to_its_default(api: Api) -> None:
    job = await api.job(
        priority="high", timeout_seconds=5, payload=[1], tags=["x"], max_retries=9, pool="p",
        cron="0 * * * *", timezone="Asia/Tokyo", task="t",
    )  # fmt: skip
    fields = (
        "priority",
        "timeout_seconds",
        "payload",
        "tags",
        "max_retries",
        "pool",
        "timezone",
        "task",
        "cron",
    )
    edited = (await api.patch(path(job), dict.fromkeys(fields))).body
    plain = await api.job()
    assert {field: edited[field] for field in fields} == {field: plain[field] for field in fields}
    assert edited["next_run_at"] is None
    (await api.patch(path(job), {"name": None})).refuses("name", "required")


@pytest.mark.parametrize(
    "schedule", [{"cron": "0 0 * * *"}, {"every": 60}, {"delay": 3600}, {"at": "0 0 1 1 *"}]
)
async def test_one_schedule_takes_the_place_of_another(api: Api, schedule: dict[str, Any]) -> None:
    job = await api.job(scheduled_at="2099-01-01T00:00:00Z")
    edited = (await api.patch(path(job), schedule)).body
    assert edited["scheduled_at"] is None
    assert edited["next_run_at"] not in (None, job["next_run_at"])
    assert len([n for n in ("scheduled_at", "delay", "cron", "every") if edited[n] is not None]) == 1


@pytest.mark.parametrize("name", ["at", "schedule", "cron"])
async def test_a_schedule_can_be_taken_away(api: Api, name: str) -> None:
    job = await api.job(cron="0 0 * * *")
    edited = (await api.patch(path(job), {name: None})).body
    assert (edited["cron"], edited["next_run_at"], edited["status"]) == (None, None, "scheduled")


async def test_a_zone_is_part_of_the_schedule(api: Api) -> None:
    job = await api.job(cron="0 9 * * *")
    edited = (await api.patch(path(job), {"timezone": "Asia/Tokyo"})).body
    assert datetime.fromisoformat(edited["next_run_at"]).hour == 0


async def test_status_pauses_and_resumes(api: Api) -> None:
    job = await api.job(cron="0 0 * * *")
    paused = (await api.patch(path(job), {"status": "paused"})).body
    assert (paused["status"], paused["next_run_at"], paused["revision"]) == ("paused", None, 1)
    resumed = (await api.patch(path(job), {"status": "scheduled"})).body
    assert (resumed["status"], resumed["next_run_at"]) == ("scheduled", job["next_run_at"])
    assert (await api.patch(path(job), {"status": None})).body == resumed


async def test_status_and_an_edit_go_together(api: Api) -> None:
    job = await api.job(cron="0 0 * * *")
    paused = (await api.patch(path(job), {"status": "paused", "cron": "0 1 * * *", "priority": "low"})).body
    assert (paused["status"], paused["cron"], paused["priority"], paused["revision"]) == (
        "paused", "0 1 * * *", "low", 2,
    )  # fmt: skip
    assert (await api.patch(path(job), {"every": 60})).body["status"] == "paused"
    assert (await api.patch(path(job), {"status": "scheduled", "priority": "high"})).body["next_run_at"]


@pytest.mark.parametrize("status", ["cancelled", "running", "completed", "", 5, [], {"a": 1}])
async def test_no_other_status_can_be_set(api: Api, status: Any) -> None:
    job = await api.job()
    (await api.patch(path(job), {"status": status})).refuses("status", "invalid", "paused, scheduled")


async def test_the_key_of_a_job_cannot_be_edited(api: Api) -> None:
    job = await api.job()
    (await api.patch(path(job), {"idempotency_key": "k"})).refuses("idempotency_key", "read_only")
    (await api.patch(path(job), {"revision": 7})).refuses("revision", "read_only")


async def test_a_cancelled_job_stays_as_it_is(api: Api) -> None:
    job = await api.job(cron="0 0 * * *")
    cancelled = (await api.delete(path(job))).body
    for body in ({"priority": "high"}, {"status": "scheduled"}, {"cron": "0 1 * * *"}, {"status": "paused"}):
        answer = await api.patch(path(job), body)
        assert (answer.status, answer.code) == (409, "wrong_state")
    assert await api.read(job) == cancelled


async def test_a_one_time_job_edited_back_to_its_instant_fires_again_as_a_new_generation(api: Api) -> None:
    at = (api.stage.now() - HOUR).isoformat()
    job = await api.job(scheduled_at=at)
    await run_through(api)
    assert (await api.read(job))["status"] == "completed"
    ahead = await api.patch(path(job), {"scheduled_at": "2099-01-01T00:00:00Z"})
    assert ahead.body["status"] == "scheduled"
    back = await api.patch(path(job), {"scheduled_at": at})
    assert back.body["next_run_at"] == job["next_run_at"]
    assert (await api.timer(job))["generation"] == 2
    await run_through(api)
    fires = (await api.get(f"{path(job)}/fires")).body["items"]
    assert [(fire["nominal_at"], fire["generation"]) for fire in fires] == [
        (job["scheduled_at"], 2),
        (job["scheduled_at"], 1),
    ]
    assert len({fire["execution_id"] for fire in fires}) == 2
    assert (await api.read(job))["status"] == "completed"


async def test_what_is_open_when_the_schedule_changes_does_not_end_the_job(api: Api) -> None:
    job = await api.job(delay=0)
    assert await api.stage.fire() == 1
    [claim] = await api.stage.claim(await api.stage.worker())
    assert (await api.read(job))["status"] == "running"
    assert (await api.patch(path(job), {"delay": 3600})).body["status"] == "scheduled"
    await api.stage.record(api.stage.ended(claim, "succeeded"))
    found = await api.read(job)
    assert (found["status"], found["next_run_at"] is None) == ("scheduled", False)


async def test_an_edit_of_an_ended_job_that_is_not_about_its_schedule_leaves_it_ended(api: Api) -> None:
    job = await api.job(delay=0)
    await run_through(api)
    assert (await api.patch(path(job), {"priority": "high"})).body["status"] == "completed"
    answer = await api.patch(path(job), {"status": "paused"})
    assert (answer.status, answer.code) == (409, "wrong_state")
    answer = await api.patch(path(job), {"status": "paused", "priority": "low"})
    assert (answer.status, answer.code) == (409, "wrong_state")


async def test_an_edit_changes_what_lists_find(api: Api) -> None:
    job = await api.job(name="old", tags=["a", "b"], pool="p")
    await api.patch(path(job), {"name": "new", "tags": ["b", "c"], "pool": "q"})
    for query, found in (
        ("name=old", 0), ("name=new", 1), ("tag=a", 0), ("tag=b", 1), ("tag=c", 1), ("pool=p", 0),
        ("pool=q", 1),
    ):  # fmt: skip
        assert len((await api.get(f"/jobs?{query}")).body["items"]) == found, query


async def test_a_schedule_that_never_fires_again_is_refused(api: Api) -> None:
    job = await api.job(every=60)
    (await api.patch(path(job), {"cron": "0 0 31 2 *"})).refuses("cron")
    assert await api.read(job) == job
