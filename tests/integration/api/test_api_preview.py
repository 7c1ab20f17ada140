"""POST /schedules/preview and /jobs/{id}/next: when a rule fires, said by the same function that fires."""

from __future__ import annotations

from datetime import datetime
from time import perf_counter
from typing import Any

import pytest
from api_client import Api

from conformance import vectors

PREVIEW = "/schedules/preview"


def instants(texts: list[str]) -> list[datetime]:
    return [datetime.fromisoformat(text) for text in texts]


async def test_the_vectors_fire_through_http_when_they_should(door: Api) -> None:
    cases = vectors("cron_valid.jsonl")
    for case in cases:
        body = {
            "cron": case["expr"],
            "timezone": case["tz"],
            "from": case["start"],
            "count": len(case["expected"]),
        }
        answer = await door.post(PREVIEW, body)
        assert answer.status == 200, (case, answer.text)
        assert instants(answer.body["fires"]) == instants(case["expected"]), case
        assert len(answer.body["description"]) > 8, case
    assert len(cases) >= 168


async def test_daylight_saving_policies_hold_through_http(door: Api) -> None:
    for case in vectors("cron_dst.jsonl"):
        for policy, expected in case["expected_by_policy"].items():
            gap, fold = policy.split("+")
            body = {"cron": case["expr"], "timezone": case["tz"], "dst": {"gap": gap, "fold": fold}}
            answer = await door.post(PREVIEW, {**body, "from": case["start"], "count": len(expected)})
            assert instants(answer.body["fires"]) == instants(expected), (case, policy)


async def test_invalid_expressions_are_refused_by_the_preview_and_by_creation(door: Api) -> None:
    before = await door.jobs_stored()
    for case in vectors("cron_invalid.jsonl"):
        began = perf_counter()
        answer = await door.post(PREVIEW, {"cron": case["expr"]})
        taken = perf_counter() - began
        answer.refuses("cron")
        assert taken < 1, "a stranger's text must not cost us time"
        (await door.post("/jobs", {"name": "n", "cron": case["expr"]})).refuses("cron")
        (await door.post("/jobs", {"name": "n", "schedule": case["expr"]})).refuses("schedule")
    assert await door.jobs_stored() == before


async def test_a_preview_begins_strictly_after_from_and_is_told_in_words(door: Api) -> None:
    body = {
        "cron": "0 9 * * mon-fri",
        "timezone": "Europe/Berlin",
        "from": "2026-01-05T08:00:00Z",
        "count": 2,
    }
    answer = await door.post(PREVIEW, body)
    assert answer.body == {
        "fires": ["2026-01-06T08:00:00.000Z", "2026-01-07T08:00:00.000Z"],
        "description": "every weekday at 09:00 Europe/Berlin",
        "hints": [],
    }


async def test_a_number_that_quartz_reads_as_another_day_is_accepted_with_a_hint(door: Api) -> None:
    body = {"cron": "0 0 9 ? * 6#3", "from": "2026-01-01T00:00:00Z", "count": 1}
    answer = (await door.post(PREVIEW, body)).body
    assert answer["fires"] == ["2026-01-17T09:00:00.000Z"]
    (hint,) = answer["hints"]
    assert "6 is Saturday" in hint
    assert "Quartz" in hint


async def test_a_preview_without_from_begins_now_and_shows_ten(door: Api) -> None:
    answer = await door.post(PREVIEW, {"cron": "* * * * *"})
    assert len(answer.body["fires"]) == 10
    assert instants(answer.body["fires"])[0] > door.stage.now()


@pytest.mark.parametrize(
    ("schedule", "fires"),
    [
        ({"every": 90}, ["2026-01-01T00:01:30.000Z", "2026-01-01T00:03:00.000Z"]),
        ({"every": "PT1H"}, ["2026-01-01T01:00:00.000Z", "2026-01-01T02:00:00.000Z"]),
        ({"delay": 60}, ["2026-01-01T00:01:00.000Z"]),
        ({"scheduled_at": "2026-02-01T00:00:00Z"}, ["2026-02-01T00:00:00.000Z"]),
        ({"scheduled_at": "2025-02-01T00:00:00Z"}, []),
        ({"at": "30 * * * *"}, ["2026-01-01T00:30:00.000Z", "2026-01-01T01:30:00.000Z"]),
        ({"schedule": "2026-02-01T00:00:00+01:00"}, ["2026-01-31T23:00:00.000Z"]),
        (
            {"every": "PT1H", "start_at": "2025-12-31T23:20:00Z"},
            ["2026-01-01T00:20:00.000Z", "2026-01-01T01:20:00.000Z"],
        ),
        (
            {"cron": "@daily", "start_at": "2026-05-01T00:00:00Z"},
            ["2026-05-01T00:00:00.000Z", "2026-05-02T00:00:00.000Z"],
        ),
        ({"cron": "@daily", "end_at": "2026-01-02T00:00:00Z"}, ["2026-01-02T00:00:00.000Z"]),
        ({"type": "recurring", "cron": "@daily"}, ["2026-01-02T00:00:00.000Z", "2026-01-03T00:00:00.000Z"]),
    ],
)
async def test_every_schedule_can_be_looked_at(door: Api, schedule: dict[str, Any], fires: list[str]) -> None:
    answer = await door.post(PREVIEW, {**schedule, "from": "2026-01-01T00:00:00Z", "count": 2})
    assert answer.body["fires"] == fires


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({}, "cron", "required"),
        ({"cron": None}, "cron", "required"),
        ({"cron": "* * * * *", "count": 0}, "count", "out_of_range"),
        ({"cron": "* * * * *", "count": 1001}, "count", "out_of_range"),
        ({"cron": "* * * * *", "count": "5"}, "count", "wrong_type"),
        ({"cron": "* * * * *", "from": "2026-01-01"}, "from", "invalid"),
        ({"cron": "* * * * *", "from": 5}, "from", "invalid"),
        ({"cron": "* * * * *", "every": 5}, "every", "conflicting_fields"),
        ({"cron": "* * * * *", "timezone": "Nowhere"}, "timezone", "invalid"),
        ({"cron": "* * * * *", "calendar": "de"}, "calendar", "not_available"),
        ({"cron": "* * * * *", "max_runs": 3}, "max_runs", "not_available"),
        ({"scheduled_at": "2026-01-01T00:00:00Z", "end_at": "2026-01-02T00:00:00Z"}, "end_at", "mismatch"),
        (
            {"every": 5, "start_at": "2026-01-02T00:00:00Z", "end_at": "2026-01-01T00:00:00Z"},
            "end_at",
            "out_of_range",
        ),
        ({"every": 5, "end_at": "2026-01-01T00:00:00"}, "end_at", "invalid"),
        ({"event": "x", "cron": "* * * * *"}, "event", "not_available"),
        ({"cron": "* * * * *", "name": "n"}, "name", "unknown_field"),
        ({"cron": "* * * * *", "form": "2026-01-01T00:00:00Z"}, "form", "unknown_field"),
        ({"cron": "* * * * *", "dst": {"gap": "x"}}, "dst.gap", "invalid"),
        ({"delay": 3_000_000_000, "from": "9950-01-01T00:00:00Z"}, "from", "out_of_range"),
        ({"every": 5, "from": "9999-12-31T23:59:59.9999Z"}, "from", "out_of_range"),
    ],
)
async def test_a_wrong_preview_is_refused_by_field(
    door: Api, body: dict[str, Any], field: str, code: str
) -> None:
    (await door.post(PREVIEW, body)).refuses(field, code)


async def test_numbers_beyond_every_range_are_refused(door: Api) -> None:
    for field in ("count", "from", "every"):
        raw = b'{"scheduled_at": "2099-01-01T00:00:00Z", "%s": 1e999}' % field.encode()
        (await door.post(PREVIEW, raw=raw)).refuses(field, "out_of_range")


@pytest.mark.parametrize(
    "schedule",
    [
        {"cron": "0 0 29 2 */7"},
        {"cron": "59 23 31 12 *"},
        {"every": 1},
        {"cron": "* * * * *"},
        {"every": "P36500D"},
    ],
)
async def test_a_thousand_fires_come_quickly_up_to_the_end_of_time(
    door: Api, schedule: dict[str, Any]
) -> None:
    for start in ("2026-01-01T00:00:00Z", "9998-12-31T00:00:00Z", "9999-12-31T23:59:59Z"):
        began = perf_counter()
        answer = await door.post(PREVIEW, {**schedule, "from": start, "count": 1000})
        assert answer.status == 200, answer.text
        assert perf_counter() - began < 5


async def test_next_shows_what_the_job_will_do(api: Api) -> None:
    job = await api.job(cron="0 9 * * mon-fri", timezone="Europe/Berlin")
    path = f"/jobs/{job['job_id']}/next"
    answer = (await api.get(path)).body
    assert (len(answer["fires"]), answer["fires"][0]) == (5, job["next_run_at"])
    assert answer["description"] == "every weekday at 09:00 Europe/Berlin"
    body = {"cron": "0 9 * * mon-fri", "timezone": "Europe/Berlin", "from": job["created_at"], "count": 1000}
    preview = (await api.post(PREVIEW, body)).body["fires"]
    assert (await api.get(f"{path}?count=1000")).body["fires"] == preview
    for count in ("0", "1001", "x"):
        (await api.get(f"{path}?count={count}")).refuses("count", "out_of_range", "1,000")


async def test_next_is_empty_for_what_will_not_fire(api: Api) -> None:
    once = await api.job(scheduled_at="2099-01-01T00:00:00Z")
    assert (await api.get(f"/jobs/{once['job_id']}/next")).body["fires"] == ["2099-01-01T00:00:00.000Z"]
    manual = await api.job()
    assert (await api.get(f"/jobs/{manual['job_id']}/next")).body == {
        "fires": [],
        "description": "only when run by hand",
        "hints": [],
    }
    await api.delete(f"/jobs/{once['job_id']}")
    assert (await api.get(f"/jobs/{once['job_id']}/next")).body["fires"] == []
