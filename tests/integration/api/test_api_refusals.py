"""What is wrong with a job is said by field, with what would be right, and nothing is stored."""

from __future__ import annotations

from typing import Any

import pytest
from api_client import Api

from detent.api.vocabulary import ANSWERS_ONLY, LATER

LONG = "x" * 256
SHELL = {"kind": "shell", "command": "true"}

# field, wrong value, the code, a word of what would be right
WRONG: list[tuple[str, Any, str, str]] = [
    ("name", "", "too_short", "empty"),
    ("name", 7, "wrong_type", "string"),
    ("name", LONG, "too_long", "255"),
    ("name", "two\nlines", "invalid", "line breaks"),
    ("name", "nul\0", "invalid", "control"),
    ("task", 7, "wrong_type", "kind"),
    ("task", [], "wrong_type", "kind"),
    ("task", "", "too_short", "empty"),
    ("scheduled_at", "tomorrow", "invalid", "2026-01-01T09:00:00Z"),
    ("scheduled_at", "2026-01-01T09:00:00", "invalid", "zone"),
    ("scheduled_at", 1700000000, "invalid", "2026-01-01T09:00:00Z"),
    ("scheduled_at", "2026-02-30T09:00:00Z", "invalid", "possible"),
    ("scheduled_at", "1969-12-31T23:59:59Z", "invalid", "1970"),
    ("scheduled_at", "9999-12-31T23:59:59.9999Z", "out_of_range", "future"),
    ("scheduled_at", True, "invalid", "2026-01-01T09:00:00Z"),
    ("delay", -1, "invalid", "negative"),
    ("delay", "soon", "invalid", "PT15M"),
    ("delay", "P1M", "invalid", "cron"),
    ("delay", 1e18, "invalid", "100 years"),
    ("delay", True, "invalid", "PT15M"),
    ("delay", [], "invalid", "PT15M"),
    ("cron", "61 * * * *", "invalid", "0–59"),
    ("cron", "* * * *", "invalid", "5 are needed"),
    ("cron", "0 0 30 2 *", "invalid", "never"),
    ("cron", "", "invalid", "5 are needed"),
    ("cron", 5, "invalid", "0 9 * * mon-fri"),
    ("cron", "H,H * * * *", "invalid", "more than one H"),
    ("cron", "0 0 H(29-31) 2 *", "invalid", "never comes"),
    ("end_at", "2020-01-01T00:00:00", "invalid", "zone"),
    ("start_at", 5, "invalid", "instant"),
    ("cron", "0 0 L-31 * *", "invalid", "'L-30'"),
    ("cron", "0 9 * * * /bin/backup", "invalid", "'task'"),
    ("cron", "@reboot", "invalid", "@daily"),
    ("every", 0, "invalid", "at least 1"),
    ("every", 0.5, "invalid", "at least 1"),
    ("every", "PT0S", "invalid", "at least 1"),
    ("every", "hourly", "invalid", "PT15M"),
    ("every", {}, "invalid", "PT15M"),
    ("at", 5, "wrong_type", "cron"),
    ("schedule", ["* * * * *"], "wrong_type", "cron"),
    ("schedule", "whenever", "invalid", "5 are needed"),
    ("at", "2026-01-01T09:00:00", "invalid", "zone"),
    ("timezone", "Mars/Phobos", "invalid", "Europe/"),
    ("timezone", "", "invalid", "Europe/"),
    ("timezone", 2, "invalid", "Europe/"),
    ("timezone", "../../etc/passwd", "invalid", "Europe/"),
    ("timezone", "Europe/Berlin\0", "invalid", "Europe/"),
    ("dst", "skip", "wrong_type", "gap"),
    ("priority", "urgent", "invalid", "critical, high, normal, low"),
    ("priority", 1, "invalid", "critical, high, normal, low"),
    ("timeout_seconds", 0, "out_of_range", "0.001"),
    ("timeout_seconds", -5, "invalid", "negative"),
    ("timeout_seconds", 2_592_001, "out_of_range", "2,592,000"),
    ("timeout_seconds", "fast", "invalid", "PT15M"),
    ("timeout_ms", 0, "out_of_range", "1"),
    ("timeout_ms", "100", "wrong_type", "milliseconds"),
    ("timeout_ms", True, "wrong_type", "milliseconds"),
    ("max_retries", -1, "out_of_range", "0 to 1,000"),
    ("max_retries", 1001, "out_of_range", "0 to 1,000"),
    ("max_retries", 1.5, "wrong_type", "whole number"),
    ("max_retries", "3", "wrong_type", "whole number"),
    ("max_retries", True, "wrong_type", "whole number"),
    ("retry_backoff", "random", "invalid", "exponential, linear, fixed"),
    ("retry_delay_seconds", -1, "invalid", "negative"),
    ("retry_delay_seconds", 1e9, "out_of_range", "2,592,000"),
    ("callback_url", "ftp://example.org", "invalid", "https://example.org"),
    ("callback_url", "https://", "invalid", "https://example.org"),
    ("callback_url", "https://user:secret@example.org/", "invalid", "password"),
    ("callback_url", "https://example.org/" + "x" * 2000, "too_long", "2,000"),
    ("callback_url", 5, "wrong_type", "string"),
    ("tags", "billing", "wrong_type", "list"),
    ("tags", [str(n) for n in range(51)], "too_many", "50"),
    ("pool", "Big Pool", "invalid", "a-z"),
    ("pool", "", "invalid", "a-z"),
    ("pool", 5, "invalid", "a-z"),
    ("pool", "x" * 64, "invalid", "63"),
    ("dead_letter", "yes", "wrong_type", "true or false"),
    ("dead_letter", 1, "wrong_type", "true or false"),
    ("idempotency_key", "", "too_short", "empty"),
    ("idempotency_key", 5, "wrong_type", "string"),
    ("idempotency_key", LONG, "too_long", "255"),
    ("type", "sometimes", "invalid", "one_time, recurring"),
    ("type", [], "invalid", "one_time, recurring"),
]

# part of a field, the value of the whole field, the code
WRONG_PARTS: list[tuple[str, str, Any, str]] = [
    ("tags[1]", "tags", ["a", ""], "too_short"),
    ("tags[0]", "tags", [5], "wrong_type"),
    ("tags[0]", "tags", ["x" * 101], "too_long"),
    ("tags[0]", "tags", ["a\tb"], "invalid"),
    ("dst.gap", "dst", {"gap": "jump"}, "invalid"),
    ("dst.gap", "dst", {"gap": ""}, "invalid"),
    ("dst.gap", "dst", {"gap": False}, "invalid"),
    ("dst.fold", "dst", {"fold": "third"}, "invalid"),
    ("dst.fold", "dst", {"fold": 0}, "invalid"),
    ("dst.hole", "dst", {"hole": "skip"}, "unknown_field"),
    ("task.kind", "task", {}, "required"),
    ("task.kind", "task", {"kind": "python3"}, "invalid"),
    ("task.kind", "task", {"kind": "http", "url": "https://example.org"}, "not_available"),
    ("task.kind", "task", {"kind": "container", "image": "busybox"}, "not_available"),
    ("task.name", "task", {"kind": "python"}, "required"),
    ("task.name", "task", {"kind": "python", "name": ""}, "too_short"),
    ("task.nme", "task", {"kind": "python", "name": "n", "nme": "n"}, "unknown_field"),
    ("task.command", "task", {"kind": "shell"}, "required"),
    ("task.command", "task", {"kind": "shell", "command": " \n"}, "too_short"),
    ("task.command", "task", {"kind": "shell", "command": 5}, "wrong_type"),
    ("task.command", "task", {"kind": "shell", "command": []}, "out_of_range"),
    ("task.command", "task", {"kind": "shell", "command": "nul\0"}, "invalid"),
    ("task.command", "task", {"kind": "shell", "command": "x" * 100_001}, "too_long"),
    ("task.command[0]", "task", {"kind": "shell", "command": [""]}, "too_short"),
    ("task.command[1]", "task", {"kind": "shell", "command": ["a", 5]}, "wrong_type"),
    ("task.env", "task", {**SHELL, "env": "A=1"}, "wrong_type"),
    ("task.env", "task", {**SHELL, "env": []}, "wrong_type"),
    ("task.env", "task", {**SHELL, "env": ""}, "wrong_type"),
    ("task.env", "task", {**SHELL, "env": {"A=": "1"}}, "invalid"),
    ("task.env.A", "task", {**SHELL, "env": {"A": 1}}, "wrong_type"),
    ("task.env", "task", {**SHELL, "env": {str(n): "" for n in range(101)}}, "too_many"),
    ("task.cwd", "task", {**SHELL, "cwd": 5}, "wrong_type"),
    ("task.cwd", "task", {**SHELL, "cwd": ""}, "too_short"),
    ("task.enviroment", "task", {**SHELL, "enviroment": {}}, "unknown_field"),
]


def label(case: Any) -> str:
    return repr(case)[:40] if not isinstance(case, str) else case[:40]


@pytest.mark.parametrize(("field", "value", "code", "word"), WRONG, ids=label)
async def test_a_wrong_value_is_named_with_what_would_be_right(
    door: Api, field: str, value: Any, code: str, word: str
) -> None:
    before = await door.jobs_stored()
    answer = await door.post("/jobs", {"name": "n", field: value})
    answer.refuses(field, code, word)
    assert field in answer.body["detail"]
    assert await door.jobs_stored() == before


@pytest.mark.parametrize(("part", "field", "value", "code"), WRONG_PARTS, ids=label)
async def test_a_wrong_part_of_a_value_is_named(
    door: Api, part: str, field: str, value: Any, code: str
) -> None:
    before = await door.jobs_stored()
    (await door.post("/jobs", {"name": "n", field: value})).refuses(part, code)
    assert await door.jobs_stored() == before


async def test_the_same_is_refused_by_an_edit_and_changes_nothing(api: Api) -> None:
    job = await api.job(name="n", cron="0 0 * * *")
    for field, value, code, word in WRONG:
        if field != "idempotency_key":
            (await api.patch(f"/jobs/{job['job_id']}", {field: value})).refuses(field, code, word)
    for part, field, value, code in WRONG_PARTS:
        (await api.patch(f"/jobs/{job['job_id']}", {field: value})).refuses(part, code)
    assert await api.read(job) == job


async def test_a_name_is_needed(api: Api) -> None:
    (await api.post("/jobs", {})).refuses("name", "required", "name for people")
    (await api.post("/jobs", {"name": None})).refuses("name", "required")


@pytest.mark.parametrize("field", sorted(LATER))
async def test_a_feature_of_a_later_version_is_not_available_and_not_ignored(door: Api, field: str) -> None:
    before = await door.jobs_stored()
    answer = await door.post("/jobs", {"name": "n", field: None})
    answer.refuses(field, "not_available", "not available yet")
    assert answer.code == "not_available"
    assert await door.jobs_stored() == before


@pytest.mark.parametrize("field", sorted(ANSWERS_ONLY))
async def test_what_the_server_sets_cannot_be_given(api: Api, field: str) -> None:
    (await api.post("/jobs", {"name": "n", field: "x"})).refuses(field, "read_only", "server")


@pytest.mark.parametrize(
    ("field", "near"),
    [
        ("crom", "cron"),
        ("time_zone", "timezone"),
        ("Cron", "cron"),
        ("tag", "tags"),
        ("retries", "max_retries"),
    ],
)
async def test_an_unknown_field_is_refused_with_the_nearest_known_one(
    api: Api, field: str, near: str
) -> None:
    answer = await api.post("/jobs", {"name": "n", field: "x"})
    answer.refuses(field, "unknown_field", f"did you mean '{near}'?")
    assert answer.code == "unknown_field"


async def test_an_unknown_field_without_a_near_one_is_refused_with_those_there_are(api: Api) -> None:
    (await api.post("/jobs", {"name": "n", "zzzzzz": 1})).refuses("zzzzzz", "unknown_field", "cron", "every")


async def test_two_schedules_are_one_too_many(api: Api) -> None:
    (await api.post("/jobs", {"name": "n", "cron": "* * * * *", "every": 5})).refuses(
        "every", "conflicting_fields", "one schedule"
    )
    (await api.post("/jobs", {"name": "n", "at": "* * * * *", "cron": "* * * * *"})).refuses(
        "cron", "conflicting_fields", "only one"
    )
    (await api.post("/jobs", {"name": "n", "at": "2030-01-01T00:00:00Z", "cron": "* * * * *"})).refuses(
        "cron", "conflicting_fields", "one schedule"
    )


async def test_two_spellings_of_one_field_are_one_too_many(api: Api) -> None:
    (await api.post("/jobs", {"name": "n", "config": 1, "payload": 1})).refuses(
        "payload", "conflicting_fields"
    )
    (await api.post("/jobs", {"name": "n", "timeout_ms": 1, "timeout_seconds": 1})).refuses(
        "timeout_seconds", "conflicting_fields"
    )


async def test_everything_that_is_wrong_is_said_at_once(api: Api) -> None:
    body = {
        "name": "",
        "cron": "nope",
        "timezone": "Nowhere",
        "hooks": 1,
        "crom": 1,
        "task": {"kind": "shell"},
    }
    answer = await api.post("/jobs", body)
    assert answer.status == 422
    assert set(answer.errors) == {"name", "cron", "timezone", "hooks", "crom", "task.command"}
    assert answer.code == "invalid"


@pytest.mark.parametrize(
    "field", ["timeout_seconds", "cron", "task", "max_retries", "tags", "idempotency_key"]
)
async def test_a_number_beyond_every_range_is_refused(api: Api, field: str) -> None:
    answer = await api.post("/jobs", raw=b'{"name": "n", "%s": 1e999}' % field.encode())
    answer.refuses(field, "out_of_range")


async def test_a_huge_whole_number_is_refused_where_a_small_one_is_meant(api: Api) -> None:
    for field in ("max_retries", "delay", "every", "timeout_seconds", "timeout_ms", "retry_delay_seconds"):
        (await api.post("/jobs", raw=b'{"name": "n", "%s": 1%s}' % (field.encode(), b"0" * 400))).refuses(
            field
        )
