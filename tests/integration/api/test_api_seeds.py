"""The example requests of the requirements, as they are written there, below the base path."""

from __future__ import annotations

from typing import Any

import pytest
from api_client import Api

ONE_TIME = {
    "name": "monthly_billing_report",
    "type": "one_time",
    "scheduled_at": "2024-02-22T18:00:00Z",
    "payload": {"report_type": "billing", "month": "2024-01"},
    "callback_url": "https://billing.internal/webhook",
    "priority": "critical",
    "timeout_seconds": 300,
    "max_retries": 3,
    "retry_backoff": "exponential",
    "idempotency_key": "billing-2024-01",
    "tags": ["billing", "monthly"],
}
RECURRING = {
    "name": "hourly_etl_pipeline",
    "type": "recurring",
    "cron": "0 * * * *",
    "payload": {"pipeline": "user_events"},
    "priority": "high",
    "timeout_seconds": 3600,
    "max_retries": 2,
}
BACKUP = {
    "name": "daily-backup",
    "schedule": "0 2 * * *",
    "timeout_ms": 3600000,
    "max_retries": 3,
    "config": {"bucket": "s3://my-backup"},
}
BY_TIMESTAMP = {"name": "once", "schedule": "2030-05-01T08:00:00Z", "task": "report", "params": {"a": 1}}

CREATED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (ONE_TIME, {key: value for key, value in ONE_TIME.items() if key not in ("type", "scheduled_at")}),
    (ONE_TIME, {"scheduled_at": "2024-02-22T18:00:00.000Z", "status": "scheduled"}),
    (RECURRING, {key: value for key, value in RECURRING.items() if key != "type"}),
    (BACKUP, {"cron": "0 2 * * *", "timeout_seconds": 3600, "payload": {"bucket": "s3://my-backup"}}),
    (BY_TIMESTAMP, {"scheduled_at": "2030-05-01T08:00:00.000Z", "payload": {"a": 1}}),
]


@pytest.mark.parametrize(("body", "shown"), CREATED)
async def test_an_example_job_is_created_as_written(
    api: Api, body: dict[str, Any], shown: dict[str, Any]
) -> None:
    answer = await api.post("/jobs", body)
    assert answer.status == 201, answer.text
    assert answer.body["status"] == "scheduled"
    assert {name: answer.body[name] for name in shown} == shown
    assert not {"type", "at", "schedule", "timeout_ms", "config", "params"} & set(answer.body)


async def test_the_example_created_twice_is_one_job(api: Api) -> None:
    first, second = await api.post("/jobs", ONE_TIME), await api.post("/jobs", ONE_TIME)
    assert (first.status, second.status) == (201, 200)
    assert first.body["job_id"] == second.body["job_id"]


async def test_the_example_life_of_a_job(api: Api) -> None:
    job = (await api.post("/jobs", RECURRING)).body
    path = f"/jobs/{job['job_id']}"
    assert (await api.patch(path, {"status": "paused"})).body["status"] == "paused"
    assert (await api.get(path)).body["status"] == "paused"
    assert (await api.get(f"{path}/executions?limit=50")).body == {"items": [], "next_cursor": None}
    assert (await api.get(f"{path}/executions")).status == 200
    assert (await api.delete(path)).body["status"] == "cancelled"


async def test_the_example_query_finds_the_failed_billing_jobs(api: Api) -> None:
    job = (await api.post("/jobs", {**ONE_TIME, "max_retries": 0, "callback_url": None})).body
    await api.post("/jobs", RECURRING)
    query = "/jobs?tag=billing&status=failed&page=1"
    assert (await api.get(query)).body["items"] == []
    await api.stage.fire()
    [claim] = await api.stage.claim(await api.stage.worker())
    await api.stage.record(api.stage.ended(claim, "failed"))
    assert [item["job_id"] for item in (await api.get(query)).body["items"]] == [job["job_id"]]


async def test_the_example_execution_shows_its_output_and_how_long_it_took(api: Api) -> None:
    job = (await api.post("/jobs", BACKUP)).body
    await api.post(f"/jobs/{job['job_id']}/run")
    [claim] = await api.stage.claim(await api.stage.worker())
    await api.stage.record(api.stage.ended(claim, "succeeded"))
    found = (await api.get(f"/executions/{claim.execution_id}")).body
    assert {"execution_id", "job_id", "status", "stdout", "stderr", "duration_ms", "attempt"} <= set(found)
    assert found["status"] == "succeeded"
