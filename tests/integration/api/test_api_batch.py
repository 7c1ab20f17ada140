"""POST /jobs/batch: all of them or none."""

from __future__ import annotations

import asyncio
from typing import Any

from api_client import Api


async def test_the_jobs_are_answered_in_the_order_they_came(api: Api) -> None:
    jobs = [{"name": f"n{i}", "every": i + 1, "tags": [f"t{i}"]} for i in range(7)]
    answer = await api.post("/jobs/batch", {"jobs": jobs})
    assert answer.status == 201
    assert [item["name"] for item in answer.body["items"]] == [f"n{i}" for i in range(7)]
    for item in answer.body["items"]:
        assert await api.read(item) == item


async def test_one_wrong_job_keeps_all_of_them_out_and_is_named_by_its_place(api: Api) -> None:
    jobs: list[Any] = [{"name": f"n{i}", "cron": "* * * * *"} for i in range(6)]
    jobs[3]["cron"] = "nope"
    jobs[5] = {"name": "", "timezone": "Nowhere", "tags": [""]}
    answer = await api.post("/jobs/batch", {"jobs": jobs})
    assert answer.status == 422
    assert list(answer.errors) == ["jobs[3].cron", "jobs[5].name", "jobs[5].timezone", "jobs[5].tags[0]"]
    assert await api.jobs_stored() == 0


async def test_what_is_no_job_at_all_is_named_too(api: Api) -> None:
    answer = await api.post("/jobs/batch", {"jobs": [{"name": "n"}, 5, None, []]})
    assert {field: code for field, (code, _) in answer.errors.items()} == {
        f"jobs[{i}]": "wrong_type" for i in (1, 2, 3)
    }


async def test_ten_thousand_jobs_are_one_batch_and_one_more_is_too_many(api: Api) -> None:
    jobs = [{"name": "many", "delay": 3600}] * 10_000
    answer = await api.post("/jobs/batch", {"jobs": jobs})
    assert (answer.status, len(answer.body["items"])) == (201, 10_000)
    assert len({item["job_id"] for item in answer.body["items"]}) == 10_000
    (await api.post("/jobs/batch", {"jobs": [*jobs, jobs[0]]})).refuses("jobs", "too_many", "10,000")
    assert await api.jobs_stored() == 10_000


async def test_no_jobs_are_no_batch(api: Api) -> None:
    (await api.post("/jobs/batch", {})).refuses("jobs", "required", "list")
    (await api.post("/jobs/batch", {"jobs": {}})).refuses("jobs", "wrong_type", "list")
    (await api.post("/jobs/batch", {"jobs": None})).refuses("jobs", "wrong_type", "list")
    (await api.post("/jobs/batch", {"jobs": [], "job": 1})).refuses("job", "unknown_field", "jobs")
    assert (await api.post("/jobs/batch", {"jobs": []})).body == {"items": []}


async def test_many_wrong_jobs_are_answered_shortly(api: Api) -> None:
    answer = await api.post("/jobs/batch", {"jobs": [{"name": "n", "cron": "no"}] * 5_000})
    assert len(answer.errors) == 100


async def test_a_key_repeated_within_a_batch_is_refused_at_its_place(api: Api) -> None:
    jobs = [{"name": "n", "idempotency_key": key} for key in ("a", "b", "a", "c", "b")]
    answer = await api.post("/jobs/batch", {"jobs": jobs})
    assert answer.status == 422
    assert list(answer.errors) == ["jobs[2].idempotency_key", "jobs[4].idempotency_key"]
    assert "jobs[0]" in answer.errors["jobs[2].idempotency_key"][1]
    assert await api.jobs_stored() == 0


async def test_a_repeated_key_is_not_blamed_on_another_place(api: Api) -> None:
    jobs = [{"name": ""}, {"name": "n", "idempotency_key": "a"}, {"name": "n", "idempotency_key": "a"}]
    answer = await api.post("/jobs/batch", {"jobs": jobs})
    assert list(answer.errors) == ["jobs[0].name"]


async def test_jobs_with_keys_that_were_made_before_are_answered_as_they_stand(api: Api) -> None:
    jobs = [{"name": f"n{i}", "idempotency_key": f"k{i}"} for i in range(4)]
    first = await api.post("/jobs/batch", {"jobs": jobs[:2]})
    more = await api.post("/jobs/batch", {"jobs": jobs})
    again = await api.post("/jobs/batch", {"jobs": jobs})
    assert [first.status, more.status, again.status] == [201, 201, 200]
    assert more.body["items"][:2] == first.body["items"]
    assert again.body == more.body
    single = await api.post("/jobs", jobs[3])
    assert (single.status, single.body) == (200, more.body["items"][3])
    assert await api.jobs_stored() == 4


async def test_another_body_under_one_of_the_keys_keeps_all_out_and_is_named(api: Api) -> None:
    await api.post("/jobs", {"name": "n", "idempotency_key": "k"})
    jobs = [{"name": "new"}, {"name": "other", "idempotency_key": "k"}]
    for headers in ({}, {"idempotency-key": "whole"}):
        answer = await api.post("/jobs/batch", {"jobs": jobs}, headers=headers)
        assert (answer.status, answer.code) == (409, "idempotency_conflict")
        assert list(answer.errors) == ["jobs[1].idempotency_key"]
    assert await api.jobs_stored() == 1


async def test_a_batch_under_a_key_is_made_once(api: Api) -> None:
    jobs = [{"name": f"n{i}"} for i in range(20)]
    headers = {"idempotency-key": "batch"}
    answers = await asyncio.gather(
        *(api.post("/jobs/batch", {"jobs": jobs}, headers=headers) for _ in range(20))
    )
    assert sorted(answer.status for answer in answers) == [200] * 19 + [201]
    assert all(answer.body == answers[0].body for answer in answers)
    assert await api.jobs_stored() == 20
    for other in (jobs[:19], [*jobs, {"name": "more"}], [{"name": "x"}, *jobs[1:]]):
        answer = await api.post("/jobs/batch", {"jobs": other}, headers=headers)
        assert (answer.status, list(answer.errors)) == (409, ["Idempotency-Key"])
    assert await api.jobs_stored() == 20


async def test_overlapping_batches_at_once_make_each_job_once(api: Api) -> None:
    jobs = [{"name": f"n{i}", "idempotency_key": f"k{i}"} for i in range(30)]
    await asyncio.gather(
        *(api.post("/jobs/batch", {"jobs": jobs[i : i + 15][:: -1 if i % 2 else 1]}) for i in range(15))
    )
    assert await api.jobs_stored() == 29
