"""Running by hand, cancelling, and reading what became of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from api_client import Api

from detent.model.work import Claim, LogChunk
from detent.store import work


async def run(api: Api, job: dict[str, Any]) -> dict[str, Any]:
    answer = await api.post(f"/jobs/{job['job_id']}/run")
    assert answer.status == 202, answer.text
    assert answer.headers["location"] == f"/api/v1/executions/{answer.body['execution_id']}"
    started: dict[str, Any] = answer.body
    return started


async def claim(api: Api) -> Claim:
    [claimed] = await api.stage.claim(await api.stage.worker())
    return claimed


async def execution(api: Api, execution_id: str) -> dict[str, Any]:
    answer = await api.get(f"/executions/{execution_id}")
    assert answer.status == 200, answer.text
    found: dict[str, Any] = answer.body
    return found


async def test_a_run_is_queued_and_readable_at_once(api: Api) -> None:
    job = await api.job(priority="high", pool="reports")
    started = await run(api, job)
    assert (started["status"], started["cause"], started["attempt"]) == ("queued", "manual", 0)
    assert (started["job_id"], started["revision"]) == (job["job_id"], 1)
    found = await execution(api, started["execution_id"])
    assert {name: found[name] for name in started} == started
    assert (found["attempts"], found["stdout"], found["stderr"]) == ([], "", "")
    row = await api.stage.row("live", UUID(job["job_id"]))
    assert (row["pool"], row["class"], row["ends_job"]) == ("reports", 1, False)


async def test_a_run_neither_moves_the_schedule_nor_ends_the_job(api: Api) -> None:
    job = await api.job(scheduled_at="2099-01-01T00:00:00Z")
    await run(api, job)
    await api.stage.record(api.stage.ended(await claim(api), "succeeded"))
    assert await api.read(job) == job


async def test_a_run_goes_from_queued_to_running_to_succeeded(api: Api) -> None:
    started = await run(api, await api.job())
    claimed = await claim(api)
    running = await execution(api, started["execution_id"])
    assert (running["status"], running["attempt"]) == ("running", 1)
    assert [attempt["outcome"] for attempt in running["attempts"]] == ["running"]
    await api.stage.record(api.stage.ended(claimed, "succeeded"))
    ended = await execution(api, started["execution_id"])
    assert (ended["status"], ended["result"], ended["error"]) == ("succeeded", "done", None)
    assert [attempt["outcome"] for attempt in ended["attempts"]] == ["succeeded"]
    assert ended["duration_ms"] >= 0
    assert ended["lateness_ms"] >= 0
    assert ended["worker_id"] == ended["attempts"][0]["worker_id"]
    assert ended["trace_id"] == started["trace_id"]


async def test_a_failure_shows_its_error_and_every_attempt(api: Api) -> None:
    started = await run(api, await api.job(max_retries=1))
    await api.stage.record(api.stage.ended(await claim(api), "failed"))
    assert (await execution(api, started["execution_id"]))["status"] == "retrying"
    await api.stage.retry_now()
    await api.stage.record(api.stage.ended(await claim(api), "timed_out"))
    ended = await execution(api, started["execution_id"])
    assert (ended["status"], ended["attempt"]) == ("dead_lettered", 2)
    assert [attempt["outcome"] for attempt in ended["attempts"]] == ["failed", "timed_out"]
    assert ended["error"] == {
        "type": "Trouble",
        "message": "it timed_out",
        "traceback": None,
        "exit_code": None,
    }


async def test_a_completed_job_can_be_run_again_and_a_cancelled_one_not(api: Api) -> None:
    job = await api.job(delay=0)
    await api.stage.fire()
    await api.stage.record(api.stage.ended(await claim(api), "succeeded"))
    await run(api, job)
    other = await api.job()
    await api.delete(f"/jobs/{other['job_id']}")
    answer = await api.post(f"/jobs/{other['job_id']}/run")
    assert (answer.status, answer.code) == (409, "wrong_state")


async def test_a_cancelled_job_stays_readable_and_fires_no_more(api: Api) -> None:
    job = await api.job(every=1)
    answer = await api.delete(f"/jobs/{job['job_id']}")
    assert (answer.status, answer.body["status"], answer.body["next_run_at"]) == (200, "cancelled", None)
    assert await api.read(job) == answer.body
    assert (await api.delete(f"/jobs/{job['job_id']}")).body == answer.body
    assert (await api.timer(job))["status"] == "done"


async def test_cancelling_a_job_closes_what_waits_and_asks_what_runs_to_stop(api: Api) -> None:
    job = await api.job()
    running = await run(api, job)
    claimed = await claim(api)
    waiting = [await run(api, job) for _ in range(3)]
    assert (await api.delete(f"/jobs/{job['job_id']}")).status == 200
    for one in waiting:
        found = await execution(api, one["execution_id"])
        assert (found["status"], found["reason"], found["attempt"]) == (
            "cancelled",
            "the job was cancelled",
            0,
        )
        assert found["finished_at"] is not None
    row = await api.stage.row("live", UUID(job["job_id"]))
    assert row["cancel_requested_at"] is not None
    assert (await execution(api, running["execution_id"]))["status"] == "running"
    await api.stage.record(api.stage.ended(claimed, "cancelled"))
    assert (await execution(api, running["execution_id"]))["status"] == "cancelled"


async def test_a_job_that_ended_cannot_be_cancelled(api: Api) -> None:
    job = await api.job(delay=0)
    await api.stage.fire()
    await api.stage.record(api.stage.ended(await claim(api), "succeeded"))
    answer = await api.delete(f"/jobs/{job['job_id']}")
    assert (answer.status, answer.code) == (409, "wrong_state")
    assert (await api.read(job))["status"] == "completed"


async def test_one_execution_can_be_cancelled_without_its_job(api: Api) -> None:
    job = await api.job(cron="0 0 1 1 *")
    started = await run(api, job)
    answer = await api.post(f"/executions/{started['execution_id']}/cancel")
    assert (answer.body["status"], answer.body["reason"]) == ("cancelled", "cancelled on request")
    assert (await api.read(job))["status"] == "scheduled"
    again = await api.post(f"/executions/{started['execution_id']}/cancel")
    assert (again.status, again.code) == (409, "wrong_state")


async def test_cancelling_the_execution_of_a_one_time_job_ends_the_job(api: Api) -> None:
    for claimed in (False, True):
        job = await api.job(delay=0)
        await api.stage.fire()
        if claimed:
            await claim(api)
        [row] = (await api.get(f"/jobs/{job['job_id']}/executions")).body["items"]
        assert (await api.post(f"/executions/{row['execution_id']}/cancel")).status == 200
        assert (await api.post(f"/executions/{row['execution_id']}/cancel")).status == (
            200 if claimed else 409
        )
        assert (await api.read(job))["status"] == "cancelled"


async def write(api: Api, claimed: Claim, *texts: str, stream: Any = "stdout", start: int = 0) -> None:
    now = api.stage.now()
    attempt = (claimed.execution_id, claimed.attempt, claimed.token)
    chunks = [LogChunk(*attempt, start + seq, stream, now, text) for seq, text in enumerate(texts)]
    assert await work.append_logs(api.stage.db, chunks)


async def test_logs_are_read_as_plain_text_in_order(api: Api) -> None:
    started = await run(api, await api.job())
    claimed = await claim(api)
    path = f"/executions/{started['execution_id']}/logs"
    assert (await api.get(path)).text == ""
    await write(api, claimed, "one\n", "zwei ü 🗓\n")
    await write(api, claimed, "trouble\n", stream="stderr", start=2)
    answer = await api.get(path)
    assert answer.text == "one\nzwei ü 🗓\ntrouble\n"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    found = await execution(api, started["execution_id"])
    assert (found["stdout"], found["stderr"]) == ("one\nzwei ü 🗓\n", "trouble\n")


async def test_long_output_is_whole_in_the_logs_and_only_its_end_in_the_execution(api: Api) -> None:
    started = await run(api, await api.job())
    claimed = await claim(api)
    lines = [f"line {n} of ünicode\n" for n in range(1_200)]
    await write(api, claimed, *lines)
    assert (await api.get(f"/executions/{started['execution_id']}/logs")).text == "".join(lines)
    tail = (await execution(api, started["execution_id"]))["stdout"]
    assert "".join(lines).endswith(tail)
    assert 4_000 < len(tail.encode()) <= 4_096


async def test_lateness_is_from_the_instant_to_the_first_start(api: Api) -> None:
    at = api.stage.now() - timedelta(seconds=90)
    job = await api.job(scheduled_at=at.isoformat())
    await api.stage.fire()
    await api.stage.record(api.stage.ended(await claim(api), "succeeded"))
    [item] = (await api.get(f"/jobs/{job['job_id']}/executions")).body["items"]
    assert (item["cause"], item["scheduled_for"]) == ("schedule", job["scheduled_at"])
    assert 90_000 <= item["lateness_ms"] < 150_000
