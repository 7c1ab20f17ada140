"""POST /jobs: what a job becomes when it is created."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from api_client import Api

from detent.when.instant import format_instant

IN_AN_HOUR = "in an hour"


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_a_job_without_a_schedule_waits_for_somebody_to_run_it(api: Api) -> None:
    made = await api.job(name="by hand")
    assert (made["status"], made["next_run_at"], made["revision"]) == ("scheduled", None, 1)
    assert (await api.timer(made))["status"] == "idle"


async def test_what_is_not_said_has_the_documented_defaults(api: Api) -> None:
    made = await api.job(name="plain")
    assert made["task"] == {"kind": "python", "name": "plain"}
    assert {
        name: made[name]
        for name in (
            "payload",
            "timezone",
            "dst",
            "priority",
            "timeout_seconds",
            "max_retries",
            "tags",
            "pool",
        )
    } == {
        "payload": None,
        "timezone": "UTC",
        "dst": {"gap": "next_valid", "fold": "first"},
        "priority": "normal",
        "timeout_seconds": 3600,
        "max_retries": 3,
        "tags": [],
        "pool": "default",
    }
    assert (made["retry_backoff"], made["retry_delay_seconds"], made["dead_letter"]) == (
        "exponential",
        30,
        True,
    )


async def test_a_job_is_answered_as_it_is_read_later(api: Api) -> None:
    made = await api.post(
        "/jobs", {"name": "n", "cron": "*/5 * * * *", "payload": {"a": [1, 2.5, None, "ü"]}}
    )
    assert made.headers["location"] == f"/api/v1/jobs/{made.body['job_id']}"
    assert (await api.get(made.headers["location"])).body == made.body


async def test_an_instant_ahead_is_when_the_job_is_due(api: Api) -> None:
    at = api.stage.now().replace(microsecond=0) + timedelta(hours=1)
    made = await api.job(scheduled_at=at.isoformat())
    assert made["scheduled_at"] == made["next_run_at"] == format_instant(at)
    assert (await api.timer(made))["due_at"] == at


async def test_an_offset_is_turned_into_utc_and_a_fraction_never_makes_it_early(api: Api) -> None:
    made = await api.job(scheduled_at="2099-06-01T12:00:00.0001+02:00")
    assert made["scheduled_at"] == "2099-06-01T10:00:00.001Z"
    assert (await api.timer(made))["due_at"] == instant("2099-06-01T10:00:00.001Z")


async def test_an_instant_in_the_past_is_accepted_and_fires_at_once_as_late(api: Api) -> None:
    made = await api.job(scheduled_at="2024-02-22T18:00:00Z")
    assert made["next_run_at"] == "2024-02-22T18:00:00.000Z"
    assert await api.stage.fire() == 1
    [fire] = (await api.get(f"/jobs/{made['job_id']}/fires")).body["items"]
    assert (fire["decision"], fire["nominal_at"]) == ("fired_late", "2024-02-22T18:00:00.000Z")
    assert (await api.read(made))["status"] == "running"


@pytest.mark.parametrize("delay", [90, 90.0, "PT90S", "PT1M30S", "pt1.5m"])
async def test_a_delay_counts_from_creation(api: Api, delay: Any) -> None:
    made = await api.job(delay=delay)
    assert made["delay"] == 90
    assert instant(made["next_run_at"]) - instant(made["created_at"]) == timedelta(seconds=90)


async def test_no_delay_at_all_is_due_at_once(api: Api) -> None:
    made = await api.job(delay=0)
    assert made["next_run_at"] == made["created_at"]
    assert await api.stage.fire() == 1


@pytest.mark.parametrize("every", [300, "PT5M", "PT300S"])
async def test_an_interval_is_first_due_one_interval_after_creation(api: Api, every: Any) -> None:
    made = await api.job(every=every)
    assert made["every"] == 300
    assert instant(made["next_run_at"]) - instant(made["created_at"]) == timedelta(minutes=5)


async def test_cron_is_due_at_its_next_instant_in_its_zone(api: Api) -> None:
    made = await api.job(cron="30 9 * * *", timezone="Asia/Kolkata")
    due = instant(made["next_run_at"])
    assert (due.hour, due.minute) == (4, 0)
    assert timedelta() < due - instant(made["created_at"]) <= timedelta(days=1)
    assert made["timezone"] == "Asia/Kolkata"


@pytest.mark.parametrize("name", ["at", "schedule"])
async def test_other_spellings_of_a_schedule_mean_cron_or_an_instant(api: Api, name: str) -> None:
    assert (await api.job(**{name: "0 2 * * *"}))["cron"] == "0 2 * * *"
    assert (await api.job(**{name: "2099-01-01T00:00:00Z"}))["scheduled_at"] == "2099-01-01T00:00:00.000Z"


@pytest.mark.parametrize("name", ["config", "params", "payload"])
async def test_other_spellings_of_the_payload_are_the_payload(api: Api, name: str) -> None:
    assert (await api.job(**{name: {"bucket": "b"}}))["payload"] == {"bucket": "b"}


async def test_milliseconds_of_a_timeout_become_seconds(api: Api) -> None:
    assert (await api.job(timeout_ms=1500))["timeout_seconds"] == 1.5
    assert (await api.job(timeout_ms=3_600_000))["timeout_seconds"] == 3600
    assert (await api.job(timeout_seconds="PT2M"))["timeout_seconds"] == 120


async def test_a_shell_task_keeps_its_command_its_variables_and_its_folder(api: Api) -> None:
    task = {"kind": "shell", "command": "echo hi\necho ho", "env": {"A": "", "B": "ü\n"}, "cwd": "/tmp"}
    made = await api.job(task=task)
    assert made["task"] == (await api.read(made))["task"] == task
    parts = await api.job(task={"kind": "shell", "command": ["printf", "%s", ""]})
    assert parts["task"] == {"kind": "shell", "command": ["printf", "%s", ""], "env": {}, "cwd": None}


async def test_a_python_task_is_its_name_or_an_object(api: Api) -> None:
    assert (await api.job(task="report"))["task"] == {"kind": "python", "name": "report"}
    told = await api.job(task={"kind": "python", "name": "report"})
    assert told["task"] == {"kind": "python", "name": "report"}


async def test_null_means_the_default_everywhere(api: Api) -> None:
    names = (
        "task", "payload", "scheduled_at", "delay", "cron", "every", "at", "schedule", "type", "timezone",
        "dst", "priority", "timeout_seconds", "timeout_ms", "max_retries", "retry_backoff",
        "retry_delay_seconds", "callback_url", "tags", "pool", "dead_letter", "idempotency_key",
    )  # fmt: skip
    plain = await api.job(name="n")
    for name in names:
        made = await api.job(name="n", **{name: None})
        for shown in set(made) - {"job_id", "created_at", "updated_at"}:
            assert made[shown] == plain[shown], name


async def test_every_field_comes_back_as_it_was_given(api: Api) -> None:
    given = {
        "name": "Größter Bericht 🗓 日報",
        "task": {"kind": "python", "name": "reports.daily"},
        "payload": {"k": "v", "n": 12345678901234567890, "deep": [[[[]]]]},
        "cron": "15 6 * * 1-5",
        "timezone": "America/New_York",
        "dst": {"gap": "skip", "fold": "both"},
        "priority": "critical",
        "timeout_seconds": 0.25,
        "max_retries": 0,
        "retry_backoff": "linear",
        "retry_delay_seconds": 0,
        "dead_letter": False,
        "callback_url": "https://example.org/done?x=1",
        "tags": ["billing", "monthly"],
        "pool": "reports-2_x",
        "idempotency_key": "ключ",
    }
    made = await api.job(**given)
    assert {name: made[name] for name in given} == given
    read = await api.read(made)
    assert {name: read[name] for name in given} == given


async def test_a_tag_given_twice_counts_once(api: Api) -> None:
    assert (await api.job(tags=["b", "a", "b"]))["tags"] == ["b", "a"]


async def test_jobs_of_one_name_may_be_many(api: Api) -> None:
    assert (await api.job(name="same"))["job_id"] != (await api.job(name="same"))["job_id"]


async def test_type_is_checked_against_the_schedule_and_forgotten(api: Api) -> None:
    made = await api.job(type="one_time", delay=60)
    assert "type" not in made
    await api.job(type="recurring", every=60)
    for body, word in (
        ({"type": "one_time", "cron": "* * * * *"}, "scheduled_at"),
        ({"type": "recurring", "delay": 1}, "cron"),
        ({"type": "recurring"}, "cron"),
    ):
        (await api.post("/jobs", {"name": "n", **body})).refuses("type", "mismatch", word)
