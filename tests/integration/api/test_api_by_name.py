"""PUT /jobs/by-name/{name}: the one job that a name stands for."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest
from api_client import Api

DAILY = {"cron": "0 2 * * *", "payload": {"a": 1}}
NIGHTLY = "/jobs/by-name/nightly"


async def test_the_first_time_it_is_created(api: Api) -> None:
    answer = await api.put(NIGHTLY, DAILY)
    assert (answer.status, answer.body["name"], answer.body["cron"]) == (201, "nightly", "0 2 * * *")
    assert answer.body["task"] == {"kind": "python", "name": "nightly"}


async def test_the_same_body_again_changes_nothing(api: Api) -> None:
    first = await api.put(NIGHTLY, DAILY)
    before = await api.timer(first.body)
    again = await api.put(NIGHTLY, {**DAILY, "name": "nightly"})
    assert (again.status, again.body) == (200, first.body)
    assert await api.timer(first.body) == before


async def test_another_body_replaces_the_whole_definition(api: Api) -> None:
    first = await api.put(NIGHTLY, {**DAILY, "priority": "high", "tags": ["a"]})
    other = await api.put(NIGHTLY, {"cron": "0 3 * * *"})
    assert (other.status, other.body["job_id"], other.body["revision"]) == (200, first.body["job_id"], 2)
    assert (other.body["cron"], other.body["priority"], other.body["tags"]) == ("0 3 * * *", "normal", [])
    assert other.body["payload"] is None
    assert await api.jobs_stored() == 1


async def test_an_interval_keeps_its_beat_when_something_else_is_replaced(api: Api) -> None:
    first = await api.put(NIGHTLY, {"every": 3600})
    other = await api.put(NIGHTLY, {"every": "PT1H", "priority": "low"})
    assert (other.body["revision"], other.body["next_run_at"]) == (2, first.body["next_run_at"])


async def test_the_only_job_of_the_name_is_taken_over(api: Api) -> None:
    made = await api.job(name="nightly", cron="0 1 * * *")
    answer = await api.put(NIGHTLY, DAILY)
    assert (answer.status, answer.body["job_id"]) == (200, made["job_id"])
    assert (await api.put(NIGHTLY, DAILY)).body == answer.body


async def test_several_jobs_of_the_name_are_ambiguous_until_one_is_left(api: Api) -> None:
    made = [await api.job(name="nightly") for _ in range(3)]
    answer = await api.put(NIGHTLY, DAILY)
    assert (answer.status, answer.code) == (409, "ambiguous_name")
    assert "nightly" in answer.body["detail"]
    for job in made[:2]:
        await api.delete(f"/jobs/{job['job_id']}")
    assert (await api.put(NIGHTLY, DAILY)).body["job_id"] == made[2]["job_id"]


async def test_a_job_made_later_under_the_name_does_not_disturb(api: Api) -> None:
    first = await api.put(NIGHTLY, DAILY)
    await api.job(name="nightly")
    await api.job(name="nightly")
    assert (await api.put(NIGHTLY, {"every": 60})).body["job_id"] == first.body["job_id"]


async def test_after_a_cancel_the_name_is_free_again(api: Api) -> None:
    first = await api.put(NIGHTLY, DAILY)
    await api.delete(f"/jobs/{first.body['job_id']}")
    second = await api.put(NIGHTLY, DAILY)
    assert second.status == 201
    assert second.body["job_id"] != first.body["job_id"]
    assert (await api.read(first.body))["status"] == "cancelled"


@pytest.mark.parametrize(
    "name",
    [
        "a/b/c",
        "a//b",
        "/a",
        "a/",
        "täglich 日報 🗓",
        "50% off?",
        "a#b&c=d",
        "../up",
        ".",
        "%2F",
        "x" * 255,
        "+ +",
    ],
)
async def test_any_name_works_in_the_path(api: Api, name: str) -> None:
    answer = await api.put(f"/jobs/by-name/{quote(name, safe='')}", DAILY)
    assert (answer.status, answer.body["name"]) == (201, name)
    assert (await api.put(f"/jobs/by-name/{quote(name, safe='')}", DAILY)).status == 200


async def test_slashes_in_the_path_need_no_escape(api: Api) -> None:
    assert (await api.put("/jobs/by-name/a/b//c/", DAILY)).body["name"] == "a/b//c/"


async def test_a_name_that_cannot_be_one_is_refused(api: Api) -> None:
    for path in ("%00", "a%0Ab", "x" * 256, "%ff"):
        (await api.put(f"/jobs/by-name/{path}", DAILY)).refuses("name")
    assert (await api.put("/jobs/by-name/", DAILY)).status == 404
    assert await api.jobs_stored() == 0


async def test_a_name_in_the_body_must_be_that_of_the_path(api: Api) -> None:
    (await api.put(NIGHTLY, {"name": "daily"})).refuses("name", "mismatch", "nightly")
    assert (await api.put(NIGHTLY, {"name": None})).status == 201


async def test_what_is_refused_elsewhere_is_refused_here(api: Api) -> None:
    (await api.put(NIGHTLY, {"cron": "nope"})).refuses("cron")
    (await api.put(NIGHTLY, {"hooks": {}})).refuses("hooks", "not_available")
    assert await api.jobs_stored() == 0


async def test_twenty_at_once_make_one_job(api: Api) -> None:
    answers = await asyncio.gather(*(api.put(NIGHTLY, DAILY) for _ in range(20)))
    assert sorted(answer.status for answer in answers) == [200] * 19 + [201]
    assert len({answer.body["job_id"] for answer in answers}) == 1
    assert await api.jobs_stored() == 1


async def test_twenty_different_ones_at_once_leave_one_job_with_twenty_revisions(api: Api) -> None:
    bodies = [{"every": 60 + i} for i in range(20)]
    answers = await asyncio.gather(*(api.put(NIGHTLY, body) for body in bodies))
    assert {answer.status for answer in answers} == {200, 201}
    assert sorted(answer.body["revision"] for answer in answers) == list(range(1, 21))


async def test_a_rename_onto_a_name_that_stands_for_another_job_is_a_conflict(api: Api) -> None:
    await api.put(NIGHTLY, DAILY)
    other = await api.put("/jobs/by-name/daily", DAILY)
    answer = await api.patch(f"/jobs/{other.body['job_id']}", {"name": "nightly"})
    assert (answer.status, answer.code) == (409, "name_taken")
    assert (await api.patch(f"/jobs/{other.body['job_id']}", {"name": "weekly"})).status == 200
    assert (await api.put("/jobs/by-name/weekly", DAILY)).body["job_id"] == other.body["job_id"]


async def test_renames_onto_a_name_that_is_being_taken_end_in_one_owner(api: Api) -> None:
    others = [(await api.put(f"/jobs/by-name/n{i}", DAILY)).body for i in range(6)]
    asked = [api.patch(f"/jobs/{job['job_id']}", {"name": "nightly"}) for job in others]
    answers = await asyncio.gather(api.put(NIGHTLY, DAILY), *asked, api.put(NIGHTLY, DAILY))
    assert {answer.status for answer in answers} <= {200, 201, 409}
    owners = await api.stage.db.fetchval(
        "select count(*) from detent.jobs where name = 'nightly' and by_name"
    )
    assert owners == 1


async def test_a_put_under_a_key_happens_once(api: Api) -> None:
    headers = {"idempotency-key": "k"}
    first = await api.put(NIGHTLY, DAILY, headers=headers)
    await api.put(NIGHTLY, {"every": 60})
    again = await api.put(NIGHTLY, DAILY, headers=headers)
    assert (again.status, again.body["every"]) == (200, 60)
    assert first.body["job_id"] == again.body["job_id"]
    assert (await api.put(NIGHTLY, {"every": 70}, headers=headers)).status == 409


async def test_a_job_that_ran_through_lives_again_when_its_schedule_is_replaced(api: Api) -> None:
    first = await api.put(NIGHTLY, {"delay": 0})
    await api.stage.fire()
    [claim] = await api.stage.claim(await api.stage.worker())
    await api.stage.record(api.stage.ended(claim, "succeeded"))
    assert (await api.read(first.body))["status"] == "completed"
    assert (await api.put(NIGHTLY, {"delay": 0})).body["status"] == "completed"
    again = await api.put(NIGHTLY, {"delay": 3600})
    assert (again.body["job_id"], again.body["status"]) == (first.body["job_id"], "scheduled")
