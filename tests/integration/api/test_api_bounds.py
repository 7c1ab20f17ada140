"""`start_at` and `end_at` of a recurring job, and what `H` means for one."""

from __future__ import annotations

from datetime import datetime, timedelta

from api_client import Api

from detent.when.instant import format_instant

MINUTE = timedelta(minutes=1)
FIRST, LAST = "2090-01-01T00:20:00.000Z", "2090-01-01T02:20:00.000Z"


async def test_an_interval_fires_at_its_beginning_and_ends_at_its_end(api: Api) -> None:
    job = await api.job(every="PT1H", start_at=FIRST, end_at=LAST)
    assert (job["start_at"], job["end_at"], job["next_run_at"]) == (FIRST, LAST, FIRST)
    told = (await api.get(f"/jobs/{job['job_id']}/next?count=10")).body
    assert told["fires"] == [FIRST, "2090-01-01T01:20:00.000Z", LAST]
    assert told["description"] == f"every hour from {FIRST} until {LAST}"


async def test_bounds_can_be_moved_and_taken_away(api: Api) -> None:
    job = await api.job(cron="0 0 * * *", start_at=FIRST)
    path = f"/jobs/{job['job_id']}"
    assert job["next_run_at"] == "2090-01-02T00:00:00.000Z"
    moved = (await api.patch(path, {"start_at": "2091-01-01T00:00:00Z"})).body
    assert (moved["next_run_at"], moved["revision"]) == ("2091-01-01T00:00:00.000Z", 2)
    freed = (await api.patch(path, {"start_at": None})).body
    assert freed["start_at"] is None
    assert freed["next_run_at"] < "2090"


async def test_bounds_that_leave_nothing_are_refused(api: Api) -> None:
    body = {
        "name": "n",
        "cron": "0 0 1 1 *",
        "start_at": "2090-01-02T00:00:00Z",
        "end_at": "2090-12-31T00:00:00Z",
    }
    (await api.post("/jobs", body)).refuses("end_at", "never_fires")
    past = {"name": "n", "every": 60, "end_at": "2020-01-01T00:00:00Z"}
    (await api.post("/jobs", past)).refuses("end_at", "never_fires")
    once = {"name": "n", "scheduled_at": FIRST, "end_at": LAST}
    (await api.post("/jobs", once)).refuses("end_at", "mismatch")


async def test_a_job_whose_end_passed_during_a_pause_fires_no_more(api: Api) -> None:
    now = api.stage.now().replace(microsecond=0)
    first, end = now - 5 * MINUTE, now - 2 * MINUTE
    job_id = await api.stage.job(first, armed_at=first - MINUTE, every=60, end_at=end)
    await api.post(f"/jobs/{job_id}/pause")
    answer = await api.post(f"/jobs/{job_id}/resume")
    assert (answer.status, answer.body["next_run_at"]) == (200, None)
    assert await api.stage.fire() == 0
    [fire] = (await api.get(f"/jobs/{job_id}/fires")).body["items"]
    assert (fire["decision"], fire["instants"]) == ("skipped_paused", 4)
    assert fire["through_at"] == format_instant(end)


async def test_jobs_with_the_same_h_have_instants_of_their_own_that_do_not_change(api: Api) -> None:
    jobs = [await api.job(cron="H H * * *") for _ in range(12)]
    assert {job["cron"] for job in jobs} == {"H H * * *"}
    clocks = {datetime.fromisoformat(job["next_run_at"]).strftime("%H:%M") for job in jobs}
    assert len(clocks) > 6
    told = (await api.get(f"/jobs/{jobs[0]['job_id']}/next")).body
    assert told["fires"][0] == jobs[0]["next_run_at"]
    assert {at[11:16] for at in told["fires"]} == {jobs[0]["next_run_at"][11:16]}
    assert told["fires"][0][11:16] in told["description"]
    assert told["hints"] == []
    edited = (await api.patch(f"/jobs/{jobs[0]['job_id']}", {"max_retries": 1})).body
    assert edited["next_run_at"] == jobs[0]["next_run_at"]


async def test_a_preview_of_h_says_that_it_is_one_choice(api: Api) -> None:
    told = (await api.post("/schedules/preview", {"cron": "H H * * *", "count": 1})).body
    assert "chosen for each job" in told["hints"][0]
