"""Requests that are safe to repeat."""

from __future__ import annotations

import asyncio
from typing import Any

from api_client import Answer, Api

BODY = {"name": "billing", "delay": 3600, "payload": {"a": 1, "b": [2]}}


async def at_once(api: Api, times: int, method: str, path: str, body: Any = ..., **more: Any) -> list[Answer]:
    return await asyncio.gather(*(api.ask(method, path, body, **more) for _ in range(times)))


async def test_the_same_key_again_answers_the_same_job(api: Api) -> None:
    first = await api.post("/jobs", {**BODY, "idempotency_key": "k"})
    again = await api.post("/jobs", {**BODY, "idempotency_key": "k"})
    assert (first.status, again.status) == (201, 200)
    assert first.body == again.body
    assert again.headers["location"] == first.headers["location"]
    assert await api.jobs_stored() == 1


async def test_another_spelling_of_the_same_job_is_the_same_body(api: Api) -> None:
    first = await api.post("/jobs", {**BODY, "idempotency_key": "k"})
    other = {"idempotency_key": "k", "config": {"b": [2.0], "a": 1}, "name": "billing", "delay": "PT1H"}
    again = await api.post("/jobs", {**other, "config": {"b": [2], "a": 1}})
    assert (again.status, again.body["job_id"]) == (200, first.body["job_id"])


async def test_another_body_under_the_same_key_is_a_conflict(api: Api) -> None:
    await api.post("/jobs", {**BODY, "idempotency_key": "k"})
    for change in ({"delay": 3601}, {"payload": {"a": 2}}, {"name": "other"}, {"max_retries": 0}):
        answer = await api.post("/jobs", {**BODY, "idempotency_key": "k", **change})
        assert (answer.status, answer.code) == (409, "idempotency_conflict")
        assert list(answer.errors) == ["idempotency_key"]
    assert await api.jobs_stored() == 1


async def test_header_and_field_are_the_same_key(api: Api) -> None:
    first = await api.post("/jobs", BODY, headers={"idempotency-key": "k"})
    again = await api.post("/jobs", {**BODY, "idempotency_key": "k"})
    both = await api.post("/jobs", {**BODY, "idempotency_key": "k"}, headers={"idempotency-key": "k"})
    assert [first.status, again.status, both.status] == [201, 200, 200]
    assert first.body["idempotency_key"] == "k"
    (await api.post("/jobs", {**BODY, "idempotency_key": "k"}, headers={"idempotency-key": "l"})).refuses(
        "idempotency_key", "conflicting_fields"
    )


async def test_a_key_in_the_header_is_short_and_ascii(api: Api) -> None:
    for key in ("x" * 256, "ключ", ""):
        (await api.post("/jobs", BODY, headers={"idempotency-key": key})).refuses("Idempotency-Key")
    assert await api.jobs_stored() == 0


async def test_twenty_at_once_with_one_key_make_one_job(api: Api) -> None:
    answers = await at_once(api, 20, "POST", "/jobs", {**BODY, "idempotency_key": "k"})
    assert sorted(answer.status for answer in answers) == [200] * 19 + [201]
    assert len({answer.body["job_id"] for answer in answers}) == 1
    assert await api.jobs_stored() == 1


async def test_two_bodies_at_once_under_one_key_make_one_job_and_conflicts(api: Api) -> None:
    bodies = [{"name": f"n{i % 2}", "idempotency_key": "k"} for i in range(20)]
    answers = await asyncio.gather(*(api.post("/jobs", body) for body in bodies))
    assert sorted(answer.status for answer in answers) == [200] * 9 + [201] + [409] * 10
    assert await api.jobs_stored() == 1


async def test_a_refused_request_does_not_use_up_its_key(api: Api) -> None:
    await api.post("/jobs", {**BODY, "cron": "nope", "idempotency_key": "k"})
    assert (await api.post("/jobs", {**BODY, "idempotency_key": "k"})).status == 201


async def test_a_repeat_is_answered_as_the_job_stands_now(api: Api) -> None:
    first = await api.post("/jobs", {**BODY, "idempotency_key": "k"})
    await api.delete(f"/jobs/{first.body['job_id']}")
    again = await api.post("/jobs", {**BODY, "idempotency_key": "k"})
    assert (again.status, again.body["status"]) == (200, "cancelled")


async def test_a_run_under_a_key_happens_once(api: Api) -> None:
    job = await api.job()
    path = f"/jobs/{job['job_id']}/run"
    answers = await at_once(api, 10, "POST", path, headers={"idempotency-key": "now"})
    answers += await at_once(api, 10, "POST", path, {"idempotency_key": "now"})
    assert {answer.status for answer in answers} == {202}
    assert len({answer.body["execution_id"] for answer in answers}) == 1
    assert (await api.post(path, headers={"idempotency-key": "again"})).body["execution_id"] not in {
        answer.body["execution_id"] for answer in answers
    }
    other = await api.job()
    assert (await api.post(f"/jobs/{other['job_id']}/run", {"idempotency_key": "now"})).body[
        "job_id"
    ] == other["job_id"]
    assert len(await api.stage.rows("live")) == 3


async def test_a_run_without_a_key_happens_each_time(api: Api) -> None:
    job = await api.job()
    answers = await at_once(api, 5, "POST", f"/jobs/{job['job_id']}/run")
    assert len({answer.body["execution_id"] for answer in answers}) == 5


async def test_an_edit_under_a_key_happens_once(api: Api) -> None:
    job = await api.job()
    path, headers = f"/jobs/{job['job_id']}", {"idempotency-key": "e"}
    first = await api.patch(path, raw=b'{"priority": "high", "payload": {"a": 1, "b": 2}}', headers=headers)
    await api.patch(path, {"priority": "low"})
    again = await api.patch(path, raw=b'{"payload":{"b":2,"a":1},"priority":"high"}', headers=headers)
    assert (first.body["priority"], again.status, again.body["priority"]) == ("high", 200, "low")
    other = await api.patch(path, {"priority": "critical"}, headers=headers)
    assert (other.status, other.code) == (409, "idempotency_conflict")


async def test_pause_resume_and_cancel_under_keys_happen_once(api: Api) -> None:
    job = await api.job(cron="* * * * *")
    path = f"/jobs/{job['job_id']}"
    assert (await api.post(f"{path}/pause", {"idempotency_key": "p"})).body["status"] == "paused"
    assert (await api.post(f"{path}/resume", {"idempotency_key": "p"})).body["status"] == "scheduled"
    assert (await api.post(f"{path}/pause", {"idempotency_key": "p"})).body["status"] == "scheduled"
    run = await api.post(f"{path}/run")
    cancel = f"/executions/{run.body['execution_id']}/cancel"
    assert (await api.post(cancel, {"idempotency_key": "c"})).body["status"] == "cancelled"
    assert (await api.post(cancel, {"idempotency_key": "c"})).body["status"] == "cancelled"
    assert (await api.post(cancel)).status == 409
    assert (await api.delete(path, headers={"idempotency-key": "d"})).status == 200
    assert (await api.delete(path, headers={"idempotency-key": "d"})).status == 200


async def test_an_action_takes_no_other_field_and_no_wrong_key(api: Api) -> None:
    job = await api.job()
    path = f"/jobs/{job['job_id']}/run"
    (await api.post(path, {"idempotency_key": 5})).refuses("idempotency_key", "wrong_type")
    (await api.post(path, {"idempotency_key": ""})).refuses("idempotency_key", "too_short")
    (await api.post(path, raw=b'{"idempotency_key": 1e999}')).refuses("idempotency_key", "out_of_range")
    (await api.post(path, {"idempotency_keys": "a"})).refuses("idempotency_keys", "unknown_field")
    assert (await api.post(path, {"idempotency_key": None})).status == 202
    assert len(await api.stage.rows("live")) == 1
