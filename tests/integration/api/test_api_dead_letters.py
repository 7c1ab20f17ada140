"""Dead letters through HTTP: listed, read with their context, replayed once, discarded with a reason."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from api_client import Answer, Api

from detent.model.ids import new_job_id
from detent.model.job import PAYLOAD_LIMIT
from detent.model.work import Claim, LogChunk
from detent.store import work

OTHER = 2
NOBODY = "01998c2e-5c7a-8b3e-9f00-0123456789ab"


async def claim(api: Api) -> Claim:
    [claimed] = await api.stage.claim(await api.stage.worker())
    return claimed


async def die(api: Api, **fields: Any) -> str:
    """A one-time job whose only attempt failed; its letter."""
    job = await api.job(**{"delay": 0, "max_retries": 0} | fields)
    assert await api.stage.fire() == 1, job
    claimed = await claim(api)
    await api.stage.record(api.stage.ended(claimed, "failed"))
    return str(claimed.execution_id)


async def deaths(api: Api, count: int) -> tuple[dict[str, Any], list[str]]:
    """A job whose runs by hand all died; their letters, newest first."""
    job = await api.job(max_retries=0, payload={"n": 1})
    for _ in range(count):
        assert (await api.post(f"/jobs/{job['job_id']}/run")).status == 202
    claims = await api.stage.claim(await api.stage.worker())
    await api.stage.record(*(api.stage.ended(one, "failed") for one in claims))
    return job, sorted((str(one.execution_id) for one in claims), reverse=True)


async def listed(api: Api, query: str = "") -> list[str]:
    answer = await api.get(f"/dead-letters{query}")
    assert answer.status == 200, answer.text
    return [one["execution_id"] for one in answer.body["items"]]


async def letter(api: Api, execution_id: str) -> dict[str, Any]:
    answer = await api.get(f"/dead-letters/{execution_id}")
    assert answer.status == 200, answer.text
    found: dict[str, Any] = answer.body
    return found


async def replay(api: Api, execution_id: str, body: Any = ..., **more: Any) -> Answer:
    return await api.post(f"/dead-letters/{execution_id}/replay", body, **more)


async def discard(api: Api, execution_id: str, body: Any = ..., **more: Any) -> Answer:
    return await api.post(f"/dead-letters/{execution_id}/discard", body, **more)


# Lists


async def test_letters_are_listed_newest_first_by_status_and_by_job(api: Api) -> None:
    first, second, third = [await die(api, name=f"n{i}") for i in range(3)]
    newest = sorted((first, second, third), reverse=True)
    assert await listed(api) == await listed(api, "?status=waiting") == newest
    await replay(api, second)
    await discard(api, third)
    assert await listed(api) == [first]
    assert await listed(api, "?status=replayed") == [second]
    assert await listed(api, "?status=discarded") == [third]
    [item] = (await api.get("/dead-letters")).body["items"]
    assert (item["name"], item["status"], item["reason"]) == ("n0", "waiting", "out_of_attempts")
    assert item["error"]["message"] == "it failed"
    assert (item["settled_at"], item["replayed_as"], item["note"]) == (None, None, None)
    job_id = item["job_id"]
    assert await listed(api, f"?job_id={job_id}") == [first]
    assert await listed(api, f"?job_id={job_id}&status=replayed") == []
    assert await listed(api, f"?job_id={new_job_id(api.stage.now())}") == []
    assert await listed(api, "?job_id=no-id-at-all") == []


async def test_a_long_list_is_read_page_by_page(api: Api) -> None:
    job, ids = await deaths(api, 5)
    await die(api)
    assert len(await api.pages("/dead-letters?limit=2")) == 6
    of_job = await api.pages(f"/dead-letters?limit=2&job_id={job['job_id']}")
    assert [one["execution_id"] for one in of_job] == ids
    first = (await api.get(f"/dead-letters?limit=2&job_id={job['job_id']}")).body
    await discard(api, ids[0])
    rest = await api.get(f"/dead-letters?limit=50&job_id={job['job_id']}&cursor={first['next_cursor']}")
    assert [one["execution_id"] for one in rest.body["items"]] == ids[2:], "what is settled shifts nothing"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=open", "status"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=many", "limit"),
        ("cursor=nonsense", "cursor"),
        ("page=2", "page"),
        ("job=x", "job"),
        ("status=waiting&status=replayed", "status"),
    ],
)
async def test_a_wrong_parameter_is_refused_by_name(api: Api, query: str, field: str) -> None:
    (await api.get(f"/dead-letters?{query}")).refuses(field)


# Reading


async def test_a_letter_is_read_with_its_payload_attempts_and_output(api: Api) -> None:
    job = await api.job(
        name="invoice", delay=0, max_retries=1, retry_delay_seconds=0, payload={"to": "a@b"},
        task={"kind": "shell", "command": "send"},
    )  # fmt: skip
    await api.stage.fire()
    worker = await api.stage.worker()
    [first] = await api.stage.claim(worker)
    await api.stage.record(api.stage.ended(first, "timed_out"))
    await api.stage.retry_now()
    [last] = await api.stage.claim(worker)
    key = (last.execution_id, last.attempt, last.token)
    await work.append_logs(api.stage.db, [LogChunk(*key, 0, "stderr", api.stage.now(), "no such customer\n")])
    await api.stage.record(api.stage.ended(last, "failed"))

    found = await letter(api, str(last.execution_id))
    assert (found["name"], found["job_id"], found["revision"]) == ("invoice", job["job_id"], 1)
    assert (found["task"]["kind"], found["task"]["command"]) == ("shell", "send")
    assert found["payload"] == {"to": "a@b"}
    execution = found["execution"]
    assert execution == (await api.get(f"/executions/{last.execution_id}")).body
    assert (execution["status"], execution["stderr"]) == ("dead_lettered", "no such customer\n")
    assert [one["outcome"] for one in execution["attempts"]] == ["timed_out", "failed"]


async def test_a_letter_shows_the_definition_that_it_died_with(api: Api) -> None:
    job, [execution_id] = await deaths(api, 1)
    edit = {"payload": {"n": 2}, "task": "other"}
    assert (await api.patch(f"/jobs/{job['job_id']}", edit)).status == 200
    found = await letter(api, execution_id)
    assert (found["revision"], found["payload"], found["task"]["name"]) == (1, {"n": 1}, "job")


async def test_what_is_no_letter_is_not_found(api: Api) -> None:
    job = await api.job()
    running = (await api.post(f"/jobs/{job['job_id']}/run")).body["execution_id"]
    for one in (NOBODY, "not-an-id", job["job_id"], running):
        for answer in (
            await api.get(f"/dead-letters/{one}"),
            await replay(api, one),
            await discard(api, one),
        ):
            assert (answer.status, answer.code) == (404, "not_found"), one


async def test_another_tenants_letters_are_not_there(api: Api) -> None:
    execution_id = await die(api)
    db = api.stage.db
    await db.execute(
        "insert into detent.tenants (tenant, name) values ($1, 'stranger') on conflict do nothing", OTHER
    )
    for table in ("dead_letters", "jobs", "job_revisions", "timers", "alerts", "executions"):
        await db.execute(f"update detent.{table} set tenant = $1", OTHER)
    before = await api.stage.everything()
    assert await listed(api) == []
    job_id = str((await api.stage.rows("dead_letters"))[0]["job_id"])
    assert await listed(api, f"?job_id={job_id}") == []
    assert (await api.get(f"/dead-letters/{execution_id}")).status == 404
    assert (await replay(api, execution_id, {"payload": 1})).status == 404
    assert (await discard(api, execution_id)).status == 404
    overview = (await api.get("/stats/overview")).body
    assert (overview["dead_letters_waiting"], overview["alerts"]) == (0, [])
    assert await api.stage.everything() == before


# Replaying


async def test_a_replay_runs_with_the_letters_own_payload(api: Api) -> None:
    job, [execution_id] = await deaths(api, 1)
    assert (await api.patch(f"/jobs/{job['job_id']}", {"payload": {"n": 2}})).status == 200
    answer = await replay(api, execution_id)
    assert answer.status == 202, answer.text
    started = answer.body
    assert answer.headers["location"] == f"/api/v1/executions/{started['execution_id']}"
    assert (started["cause"], started["status"]) == ("replay", "queued")
    assert (started["source_id"], started["revision"]) == (execution_id, 2)
    found = await letter(api, execution_id)
    assert (found["status"], found["replayed_as"]) == ("replayed", started["execution_id"])
    assert (found["note"], found["settled_at"] is None) == (None, False)
    await be_due(api)
    assert (await claim(api)).payload == '{"n":1}'


async def be_due(api: Api) -> None:
    """What was queued by the server's clock is due by the database's."""
    await api.stage.retry_now()


@pytest.mark.parametrize(
    ("raw", "given"),
    [
        (
            b'{"payload": {"to": "right@example.org"}, "reason": "wrong address"}',
            '{"to":"right@example.org"}',
        ),
        (b'{"payload": null, "reason": "wrong address"}', "null"),
        (b'{"payload": 12345678901234567890.50, "reason": "wrong address"}', "12345678901234567890.50"),
    ],
)
async def test_a_replay_runs_with_an_edited_payload_and_keeps_the_reason(
    api: Api, raw: bytes, given: str
) -> None:
    execution_id = await die(api, payload={"to": "wrong@example.org"})
    answer = await replay(api, execution_id, raw=raw)
    assert answer.status == 202, answer.text
    await be_due(api)
    assert (await claim(api)).payload == given
    found = await letter(api, execution_id)
    assert (found["note"], found["payload"]) == ("wrong address", {"to": "wrong@example.org"})


async def test_a_replay_revives_its_one_time_job(api: Api) -> None:
    execution_id = await die(api)
    job = {"job_id": (await letter(api, execution_id))["job_id"]}
    assert (await api.read(job))["status"] == "failed"
    assert (await replay(api, execution_id)).status == 202
    assert (await api.read(job))["status"] == "running"
    await be_due(api)
    await api.stage.record(api.stage.ended(await claim(api), "succeeded"))
    assert (await api.read(job))["status"] == "completed"


async def test_a_replay_that_dies_is_a_letter_with_the_edited_payload(api: Api) -> None:
    execution_id = await die(api, payload=1)
    again = (await replay(api, execution_id, {"payload": [2]})).body["execution_id"]
    await be_due(api)
    await api.stage.record(api.stage.ended(await claim(api), "failed"))
    assert await listed(api) == [again]
    found = await letter(api, again)
    assert (found["payload"], found["execution"]["source_id"]) == ([2], execution_id)


@pytest.mark.parametrize(
    ("raw", "field", "code"),
    [
        (b'{"payload": "%s"}' % (b"x" * PAYLOAD_LIMIT), "payload", "too_large"),
        (b'{"payload": [1e999]}', "payload", "out_of_range"),
        (b'{"payload": %s}' % (b"[" * 201 + b"]" * 201), "payload", "invalid"),
        (b'{"payloads": 1}', "payloads", "unknown_field"),
        (b'{"reason": 5}', "reason", "wrong_type"),
        (b'{"reason": ""}', "reason", "too_short"),
        (b'{"reason": "%s"}' % (b"x" * 1_001), "reason", "too_long"),
        (b'{"reason": "a\\u0000b"}', "reason", "invalid"),
        (b'{"reason": 1e999}', "reason", "out_of_range"),
        (b'{"reason": %s}' % (b"[" * 201 + b"]" * 201), "reason", "invalid"),
        (b"[]", "body", "wrong_type"),
    ],
)
async def test_a_wrong_field_is_refused_and_settles_nothing(
    api: Api, raw: bytes, field: str, code: str
) -> None:
    execution_id = await die(api)
    before = await api.stage.everything()
    (await replay(api, execution_id, raw=raw)).refuses(field, code)
    if b"payload" not in raw:
        (await discard(api, execution_id, raw=raw)).refuses(field, code)
    assert await api.stage.everything() == before
    assert (await replay(api, execution_id, raw=b"")).status == 202


async def test_all_that_is_wrong_is_told_at_once_and_broken_json_is_400(api: Api) -> None:
    execution_id = await die(api)
    answer = await replay(api, execution_id, {"reason": 5, "why": 1})
    assert (answer.status, set(answer.errors)) == (422, {"reason", "why"})
    (await discard(api, execution_id, {"payload": 1})).refuses("payload", "unknown_field")
    broken = await replay(api, execution_id, raw=b'{"payload": ')
    assert (broken.status, broken.code) == (400, "malformed_json")
    assert await listed(api) == [execution_id]


async def test_a_letter_is_replayed_once(api: Api) -> None:
    execution_id = await die(api)
    started = (await replay(api, execution_id)).body["execution_id"]
    again = await replay(api, execution_id, {"payload": 2})
    assert (again.status, again.code) == (409, "wrong_state")
    assert started in again.body["detail"]
    refused = await discard(api, execution_id)
    assert (refused.status, refused.code) == (409, "wrong_state")
    assert len(await api.stage.rows("live")) == 1


async def test_of_many_replays_at_once_one_happens(api: Api) -> None:
    execution_id = await die(api)
    answers = await asyncio.gather(*(replay(api, execution_id) for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [202] + [409] * 7
    assert len(await api.stage.rows("live")) == 1


async def test_a_cancelled_job_replays_nothing(api: Api) -> None:
    job, [execution_id] = await deaths(api, 1)
    assert (await api.delete(f"/jobs/{job['job_id']}")).status == 200
    answer = await replay(api, execution_id)
    assert (answer.status, answer.code) == (409, "wrong_state")
    assert "cancelled" in answer.body["detail"]
    assert (await discard(api, execution_id)).status == 200


# Keys


async def test_the_same_replay_under_a_key_is_the_same_execution(api: Api) -> None:
    execution_id = await die(api)
    headers = {"idempotency-key": "k"}
    raw = (b'{"payload": {"a": 1, "b": 2}, "reason": "r"}', b'{"reason":"r","payload":{"b":2,"a":1}}')
    answers = [await replay(api, execution_id, raw=raw[i % 2], headers=headers) for i in range(4)]
    assert {answer.status for answer in answers} == {202}
    assert len({answer.body["execution_id"] for answer in answers}) == 1
    other = await replay(api, execution_id, {"payload": 3}, headers=headers)
    assert (other.status, other.code) == (409, "idempotency_conflict")
    without = await replay(api, execution_id, headers=headers)
    assert (without.status, without.code) == (409, "idempotency_conflict")
    assert (await replay(api, execution_id)).code == "wrong_state"
    assert len(await api.stage.rows("live")) == 1


async def test_a_payload_of_null_is_not_the_same_as_none(api: Api) -> None:
    execution_id = await die(api)
    headers = {"idempotency-key": "k"}
    assert (await replay(api, execution_id, {"payload": None}, headers=headers)).status == 202
    assert (await replay(api, execution_id, {}, headers=headers)).code == "idempotency_conflict"


async def test_a_key_belongs_to_its_letter(api: Api) -> None:
    _, ids = await deaths(api, 2)
    headers = {"idempotency-key": "k"}
    answers = [await replay(api, one, headers=headers) for one in ids]
    assert [answer.body["source_id"] for answer in answers] == ids


async def test_a_repeat_is_answered_as_the_replay_stands_now(api: Api) -> None:
    execution_id = await die(api)
    headers = {"idempotency-key": "k"}
    first = await replay(api, execution_id, headers=headers)
    await be_due(api)
    await api.stage.record(api.stage.ended(await claim(api), "succeeded"))
    again = await replay(api, execution_id, headers=headers)
    assert (again.status, again.body["status"]) == (202, "succeeded")
    assert again.body["execution_id"] == first.body["execution_id"]


async def test_a_discard_under_a_key_is_repeated_safely(api: Api) -> None:
    execution_id = await die(api)
    headers = {"idempotency-key": "k"}
    first = await discard(api, execution_id, {"reason": "gone"}, headers=headers)
    again = await discard(api, execution_id, raw=b'{ "reason" : "gone" }', headers=headers)
    assert (first.status, again.status, again.body) == (200, 200, first.body)
    other = await discard(api, execution_id, {"reason": "other"}, headers=headers)
    assert (other.status, other.code) == (409, "idempotency_conflict")


# Discarding


async def test_a_discarded_letter_keeps_the_first_reason_and_stays_readable(api: Api) -> None:
    execution_id = await die(api, payload={"n": 1})
    answer = await discard(api, execution_id, {"reason": "the customer\nis gone"})
    assert answer.status == 200, answer.text
    assert (answer.body["status"], answer.body["note"]) == ("discarded", "the customer\nis gone")
    assert answer.body["payload"] == {"n": 1}
    settled = answer.body["settled_at"]
    assert settled is not None
    again = await discard(api, execution_id, {"reason": "another"})
    assert (again.status, again.body["note"], again.body["settled_at"]) == (
        200,
        "the customer\nis gone",
        settled,
    )
    refused = await replay(api, execution_id)
    assert (refused.status, refused.code) == (409, "wrong_state")
    assert await api.stage.rows("live") == []
    assert await letter(api, execution_id) == answer.body


async def test_a_discard_needs_no_reason(api: Api) -> None:
    _, ids = await deaths(api, 2)
    assert (await discard(api, ids[0])).body["note"] is None
    assert (await discard(api, ids[1], {"reason": None})).body["note"] is None


# The overview


async def test_the_overview_tells_of_letters_until_the_last_is_settled(api: Api) -> None:
    job, ids = await deaths(api, 3)
    other = await die(api, name="other")
    found = (await api.get("/stats/overview")).body
    assert found["dead_letters_waiting"] == 4
    alerts = {one["subject"]: one for one in found["alerts"]}
    assert {one["kind"] for one in alerts.values()} == {"dead_letter"}
    assert alerts[job["job_id"]]["times"] == 3
    assert len(alerts) == 2
    await discard(api, other)
    await replay(api, ids[0])
    await discard(api, ids[1])
    found = (await api.get("/stats/overview")).body
    assert found["dead_letters_waiting"] == 1
    assert [one["subject"] for one in found["alerts"]] == [job["job_id"]]
    await discard(api, ids[2])
    found = (await api.get("/stats/overview")).body
    assert (found["dead_letters_waiting"], found["alerts"]) == (0, [])


async def test_a_letter_whose_history_was_dropped_is_read_and_replayed(api: Api) -> None:
    execution_id = await die(api, payload=1)
    edited = (await replay(api, execution_id, {"payload": {"edited": True}})).body["execution_id"]
    await be_due(api)
    await api.stage.record(api.stage.ended(await claim(api), "failed"))
    tomorrow = api.stage.now().date() + timedelta(days=1)
    await api.stage.db.fetchval("select detent.drop_partitions($1)", tomorrow)
    for one, payload in ((execution_id, 1), (edited, {"edited": True})):
        found = await letter(api, one)
        assert (found["execution"], found["payload"]) == (None, payload)
    assert (await api.get(f"/executions/{edited}")).status == 404
    assert (await replay(api, edited)).status == 202
    await be_due(api)
    claimed = await claim(api)
    assert (claimed.payload, claimed.job_id) == ('{"edited":true}', UUID(found["job_id"]))
