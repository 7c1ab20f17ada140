"""Finishing: one fenced transaction, by outcome."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detent.model.errors import StoreUnavailable
from detent.model.execution import ErrorInfo
from detent.model.work import Claim, Finished, us_of
from detent.store.jobs import cancel_execution, cancel_job, read_job, run_job
from detent.store.sql import Queries
from stage import DAY, TENANT, Stage, unreliable, with_attempt, with_token

queries = Queries.load()


def pair(claim: Claim) -> tuple[object, int]:
    return claim.execution_id, claim.attempt


async def test_a_success_closes_the_execution_and_completes_its_job(stage: Stage) -> None:
    worker_id, claim = await stage.running()
    finished = stage.ended(claim, "succeeded")
    assert await stage.record(finished) == {pair(claim)}

    assert await stage.rows("live") == []
    closed = await stage.row("executions", claim.job_id)
    assert (closed["execution_id"], closed["status"]) == (claim.execution_id, "succeeded")
    assert (closed["attempt"], closed["failures"], closed["losses"]) == (1, 0, 0)
    assert (closed["token"], closed["worker_id"]) == (claim.token, worker_id)
    assert (closed["result"], closed["error"]) == ('"done"', None)
    assert (closed["started_at"], closed["finished_at"]) == (finished.started_at, finished.finished_at)
    assert closed["scheduled_for"] == claim.scheduled_for

    [attempt] = await stage.rows("attempts")
    assert (attempt["execution_id"], attempt["attempt"]) == pair(claim)
    assert (attempt["outcome"], attempt["error"], attempt["token"]) == ("succeeded", None, claim.token)
    assert (await stage.row("job_ends", claim.job_id))["status"] == "completed"
    assert await stage.rows("dead_letters") == []


async def test_the_end_of_a_recurring_jobs_execution_is_not_the_jobs_end(stage: Stage) -> None:
    job_id = await stage.every(3600, first_ago=timedelta(seconds=1))
    await stage.fire()
    [claim] = await stage.claim(await stage.worker())
    await stage.record(stage.ended(claim, "succeeded"))
    assert (await stage.row("executions", job_id))["status"] == "succeeded"
    assert await stage.rows("job_ends") == []


@pytest.mark.parametrize("outcome", ["failed", "timed_out"])
async def test_a_failure_with_attempts_left_waits_for_its_next_one(stage: Stage, outcome: str) -> None:
    _, claim = await stage.running(max_retries=2, retry_delay_seconds=600.0)
    asked = stage.now()
    assert await stage.record(stage.ended(claim, outcome)) == {pair(claim)}

    live = await stage.row("live", claim.job_id)
    assert (live["state"], live["attempt"], live["failures"]) == ("retrying", 1, 1)
    assert (live["token"], live["worker_id"], live["claimed_at"]) == (None, None, None)
    assert live["not_before"] - asked >= timedelta(seconds=599)
    assert live["ends_job"] is True
    [attempt] = await stage.rows("attempts")
    assert attempt["outcome"] == outcome
    assert msgspec.json.decode(attempt["error"], type=ErrorInfo) == ErrorInfo("Trouble", f"it {outcome}")
    assert await stage.rows("executions") == await stage.rows("job_ends") == []


async def test_a_retry_is_not_claimed_before_its_instant_and_then_under_a_new_token(stage: Stage) -> None:
    worker_id, claim = await stage.running(max_retries=2, retry_delay_seconds=600.0)
    await stage.record(stage.ended(claim, "failed"))
    assert await stage.claim(worker_id) == []
    await stage.retry_now()
    [again] = await stage.claim(worker_id)
    assert again.execution_id == claim.execution_id
    assert (again.attempt, again.failures) == (2, 1)
    assert again.token > claim.token


@pytest.mark.parametrize("outcome", ["failed", "timed_out"])
async def test_an_execution_out_of_attempts_is_a_dead_letter(stage: Stage, outcome: str) -> None:
    worker_id, claim = await stage.running(max_retries=1)
    await stage.record(stage.ended(claim, outcome))
    await stage.retry_now()
    [last] = await stage.claim(worker_id)
    assert await stage.record(stage.ended(last, outcome)) == {pair(last)}

    assert await stage.rows("live") == []
    closed = await stage.row("executions", claim.job_id)
    assert (closed["status"], closed["attempt"], closed["failures"]) == ("dead_lettered", 2, 2)
    letter = await stage.row("dead_letters", claim.job_id)
    assert (letter["execution_id"], letter["reason"]) == (claim.execution_id, "out_of_attempts")
    assert letter["error"] == closed["error"]
    assert [row["outcome"] for row in await stage.rows("attempts")] == [outcome, outcome]
    assert (await stage.row("job_ends", claim.job_id))["status"] == "failed"


async def test_an_error_that_forbids_a_retry_is_a_dead_letter_at_once(stage: Stage) -> None:
    _, claim = await stage.running(max_retries=5)
    await stage.record(stage.ended(claim, "failed", retryable=False))
    assert (await stage.row("executions", claim.job_id))["status"] == "dead_lettered"
    assert (await stage.row("dead_letters", claim.job_id))["reason"] == "not_retryable"


@pytest.mark.parametrize("outcome", ["failed", "timed_out"])
async def test_a_job_that_wants_no_dead_letters_ends_by_its_own_outcome(stage: Stage, outcome: str) -> None:
    _, claim = await stage.running(max_retries=0, dead_letter=False)
    await stage.record(stage.ended(claim, outcome))
    assert (await stage.row("executions", claim.job_id))["status"] == outcome
    assert await stage.rows("dead_letters") == []
    assert (await stage.row("job_ends", claim.job_id))["status"] == "failed"


async def test_released_work_goes_back_to_the_queue_and_costs_no_attempt(stage: Stage) -> None:
    worker_id, claim = await stage.running(max_retries=0)
    await stage.record(stage.ended(claim, "released"))
    live = await stage.row("live", claim.job_id)
    assert (live["state"], live["failures"]) == ("queued", 0)
    [again] = await stage.claim(worker_id)
    assert (again.attempt, again.failures) == (2, 0)
    await stage.record(stage.ended(again, "succeeded"))
    assert [row["outcome"] for row in await stage.rows("attempts")] == ["released", "succeeded"]


async def test_a_cancelled_attempt_closes_as_cancelled(stage: Stage) -> None:
    _, claim = await stage.running()
    await cancel_execution(stage.db, TENANT, claim.execution_id, stage.now(), None)
    await stage.record(stage.ended(claim, "cancelled"))
    assert (await stage.row("executions", claim.job_id))["status"] == "cancelled"
    assert [row["outcome"] for row in await stage.rows("attempts")] == ["cancelled"]
    assert (await stage.row("job_ends", claim.job_id))["status"] == "cancelled"


@pytest.mark.parametrize("outcome", ["failed", "timed_out"])
@pytest.mark.parametrize("max_retries", [0, 3])
@pytest.mark.parametrize("dead_letter", [True, False])
async def test_a_failure_that_was_asked_to_cancel_closes_as_cancelled(
    stage: Stage, outcome: str, max_retries: int, dead_letter: bool
) -> None:
    _, claim = await stage.running(max_retries=max_retries, dead_letter=dead_letter)
    await cancel_job(stage.db, TENANT, claim.job_id, stage.now(), None)
    assert await stage.record(stage.ended(claim, outcome)) == {pair(claim)}
    assert await stage.rows("live") == await stage.rows("dead_letters") == []
    assert (await stage.row("executions", claim.job_id))["status"] == "cancelled"
    assert [row["outcome"] for row in await stage.rows("attempts")] == [outcome]
    assert (await stage.row("job_ends", claim.job_id))["status"] == "cancelled"


async def test_released_work_that_was_asked_to_cancel_closes_as_cancelled(stage: Stage) -> None:
    _, claim = await stage.running()
    await cancel_execution(stage.db, TENANT, claim.execution_id, stage.now(), None)
    await stage.record(stage.ended(claim, "released"))
    assert (await stage.row("executions", claim.job_id))["status"] == "cancelled"
    assert await stage.rows("live") == []


async def test_a_success_that_came_before_the_cancel_could_stop_it_is_a_success(stage: Stage) -> None:
    _, claim = await stage.running()
    await cancel_execution(stage.db, TENANT, claim.execution_id, stage.now(), None)
    await stage.record(stage.ended(claim, "succeeded"))
    closed = await stage.row("executions", claim.job_id)
    assert (closed["status"], closed["result"]) == ("succeeded", '"done"')


async def test_an_execution_by_hand_does_not_end_its_job(stage: Stage) -> None:
    at = stage.now() + DAY
    job_id = await stage.job(at, scheduled_at=at)
    await run_job(stage.db, TENANT, job_id, "by hand", stage.now() - timedelta(seconds=1), None)
    [claim] = await stage.claim(await stage.worker())
    await stage.record(stage.ended(claim, "succeeded"))
    assert await stage.rows("job_ends") == []
    standing = await read_job(stage.db, TENANT, job_id)
    assert standing is not None
    assert standing.job.status == "scheduled"


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "timed_out", "cancelled", "released"])
async def test_an_ending_under_another_token_or_attempt_changes_nothing(stage: Stage, outcome: str) -> None:
    _, claim = await stage.running()
    before = await stage.everything()
    for stale in (
        with_token(claim, claim.token - 1),
        with_token(claim, claim.token + 1),
        with_attempt(claim, claim.attempt - 1),
        with_attempt(claim, claim.attempt + 1),
    ):
        assert await stage.record(stage.ended(stale, outcome)) == set()
    assert await stage.everything() == before
    assert await stage.record(stage.ended(claim, "succeeded")) == {pair(claim)}


async def test_a_stale_ending_among_good_ones_harms_none_of_them(stage: Stage) -> None:
    await stage.jobs([stage.now() - timedelta(seconds=1)] * 6, scheduled_at=stage.now(), max_retries=1)
    await stage.fire()
    claims = await stage.claim(await stage.worker())
    outcomes = ["succeeded", "failed", "released"] * 2
    ends = [stage.ended(claim, outcome) for claim, outcome in zip(claims, outcomes, strict=True)]
    stale = [stage.ended(with_attempt(with_token(claim, 7), 2), "succeeded") for claim in claims]
    recorded = await stage.record(*stale[:3], *ends, *stale[3:])
    assert recorded == {pair(claim) for claim in claims}
    assert [row["status"] for row in await stage.rows("executions")] == ["succeeded"] * 2
    assert sorted(row["state"] for row in await stage.rows("live")) == ["queued"] * 2 + ["retrying"] * 2
    assert len(await stage.rows("attempts")) == 6


async def test_of_two_successes_of_one_execution_only_the_one_with_the_lease_counts(stage: Stage) -> None:
    worker_id, lost = await stage.running()
    await stage.record(stage.ended(lost, "released"))
    await stage.retry_now()
    [holds] = await stage.claim(worker_id)
    late = stage.ended(lost, "succeeded")
    assert await stage.record(late, stage.ended(holds, "succeeded")) == {pair(holds)}
    assert (await stage.row("executions", holds.job_id))["attempt"] == holds.attempt
    assert len(await stage.rows("attempts")) == 2


@pytest.mark.parametrize(
    ("outcome", "statement"),
    [
        ("succeeded", queries.close_succeeded),
        ("cancelled", queries.close_batch),
        ("failed", queries.return_batch),
        ("timed_out", queries.return_batch),
        ("released", queries.return_batch),
    ],
)
async def test_an_ending_repeated_after_a_lost_answer_is_read_back_as_recorded(
    stage: Stage, outcome: str, statement: str
) -> None:
    _, claim = await stage.running()
    finished = stage.ended(claim, outcome)
    with pytest.raises(StoreUnavailable):
        await stage.record(finished, database=unreliable(stage.hot, statement))
    after = await stage.everything()
    assert len(after["attempts"]) == 1
    assert await stage.record(finished) == {pair(claim)}
    assert await stage.everything() == after


async def test_a_repeat_is_read_back_although_the_next_attempt_runs_already(stage: Stage) -> None:
    worker_id, claim = await stage.running()
    finished = stage.ended(claim, "failed")
    await stage.record(finished)
    await stage.retry_now()
    [again] = await stage.claim(worker_id)
    before = await stage.everything()
    assert await stage.record(finished) == {pair(claim)}
    assert await stage.everything() == before
    assert await stage.record(stage.ended(again, "succeeded")) == {pair(again)}


async def test_a_repeat_with_another_outcome_does_not_change_what_was_recorded(stage: Stage) -> None:
    _, claim = await stage.running()
    await stage.record(stage.ended(claim, "succeeded"))
    after = await stage.everything()
    await stage.record(stage.ended(claim, "failed"))
    assert await stage.everything() == after


async def test_a_missing_partition_of_the_history_is_made_on_the_spot(stage: Stage) -> None:
    _, waits = await stage.running(max_retries=1)
    _, closes = await stage.running()
    for day in (stage.now() - DAY, stage.now(), stage.now() + DAY):
        await stage.drop_partitions_of(day)
    ends = [stage.ended(waits, "failed"), stage.ended(closes, "succeeded")]
    assert await stage.record(*ends) == {pair(waits), pair(closes)}
    assert len(await stage.rows("attempts")) == 2
    assert (await stage.row("executions", closes.job_id))["status"] == "succeeded"


async def test_an_error_with_a_zero_character_is_recorded_without_it(stage: Stage) -> None:
    _, claim = await stage.running(max_retries=0)
    now = stage.now()
    error = ErrorInfo("Trouble", "a\0b", traceback="c\0d")
    assert await stage.record(Finished(claim, "failed", us_of(now), us_of(now), None, error)) == {pair(claim)}
    closed = await stage.row("executions", claim.job_id)
    assert msgspec.json.decode(closed["error"], type=ErrorInfo).message == "a\ufffdb"
