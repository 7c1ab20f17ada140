"""Deadlines and timeouts, also when the worker that should see to them does not."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import msgspec
import pytest

from detent.cli.wiring import PostgresPort, PostgresPulse
from detent.execute.report import Reporter
from detent.finish.timeouts import SLACK_SECONDS, TimeoutKeeper
from detent.model.execution import ErrorInfo
from detent.model.work import Beat, Claim, Finished, Orders
from detent.store import work
from detent.store.jobs import cancel_execution
from stage import MINUTE, SECOND, TENANT, Stage

Pair = tuple[UUID, int]


def pair(claim: Claim) -> Pair:
    return claim.execution_id, claim.attempt


def keeper(stage: Stage) -> TimeoutKeeper:
    return TimeoutKeeper(stage.db, stage.clock, stage.notifier)


async def pass_deadline(stage: Stage, ago: timedelta = SECOND) -> None:
    """Every deadline was so long ago."""
    await stage.db.execute(
        "update detent.live set deadline_at = clock_timestamp() - $1::interval where deadline_at is not null",
        ago,
    )


async def claimed_ago(stage: Stage, ago: timedelta) -> None:
    await stage.db.execute(
        "update detent.live set claimed_at = clock_timestamp() - $1::interval where state = 'running'", ago
    )


async def beat(stage: Stage, worker_id: UUID, beat: Beat) -> Orders:
    pulse = PostgresPulse(await stage.hot.dedicated())
    try:
        return await pulse.beat(worker_id, beat)
    finally:
        await pulse.close()


async def reported(stage: Stage, *batch: Finished) -> Reporter:
    """What a worker's reporter makes of these ends."""
    reporter = Reporter(PostgresPort(stage.hot, stage.clock, stage.notifier))
    running = asyncio.create_task(reporter.run())
    for finished in batch:
        reporter.add(finished)
    assert await reporter.drained(10)
    running.cancel()
    return reporter


# The deadline of an execution


@pytest.mark.parametrize("outcome", ["failed", "timed_out"])
async def test_a_retry_that_would_start_past_the_deadline_is_not_waited_for(
    stage: Stage, outcome: str
) -> None:
    _, claim = await stage.running(deadline_seconds=60.0, max_retries=3, retry_delay_seconds=600.0)
    assert claim.deadline_at is not None
    await stage.record(stage.ended(claim, outcome))
    assert await stage.rows("live") == []
    closed = await stage.row("executions", claim.job_id)
    assert (closed["status"], closed["reason"], closed["failures"]) == ("dead_lettered", "deadline", 1)
    assert (await stage.row("dead_letters", claim.job_id))["reason"] == "deadline"
    assert [row["outcome"] for row in await stage.rows("attempts")] == [outcome]
    assert (await stage.row("job_ends", claim.job_id))["status"] == "failed"


async def test_a_retry_that_starts_before_the_deadline_is_waited_for(stage: Stage) -> None:
    _, claim = await stage.running(deadline_seconds=900.0, max_retries=3, retry_delay_seconds=600.0)
    await stage.record(stage.ended(claim, "failed"))
    live = await stage.row("live", claim.job_id)
    assert (live["state"], live["deadline_at"]) == ("retrying", claim.deadline_at)


@pytest.mark.parametrize("outcome", ["failed", "timed_out"])
async def test_a_deadline_of_a_job_without_dead_letters_closes_by_the_attempts_outcome(
    stage: Stage, outcome: str
) -> None:
    _, claim = await stage.running(deadline_seconds=60.0, retry_delay_seconds=600.0, dead_letter=False)
    await stage.record(stage.ended(claim, outcome))
    closed = await stage.row("executions", claim.job_id)
    assert (closed["status"], closed["reason"]) == (outcome, "deadline")
    assert await stage.rows("dead_letters") == []
    assert (await stage.row("job_ends", claim.job_id))["status"] == "failed"


@pytest.mark.parametrize("dead_letter", [True, False])
async def test_work_that_waits_past_its_deadline_is_closed_without_any_worker(
    stage: Stage, dead_letter: bool
) -> None:
    job_id = await stage.once(deadline_seconds=60.0, dead_letter=dead_letter)
    await stage.fire()
    await pass_deadline(stage)
    await keeper(stage).run_once()

    assert await stage.rows("live") == await stage.rows("attempts") == []
    closed = await stage.row("executions", job_id)
    assert closed["status"] == ("dead_lettered" if dead_letter else "timed_out")
    assert (closed["reason"], closed["attempt"], closed["failures"]) == ("deadline", 0, 0)
    assert (closed["started_at"], closed["worker_id"], closed["token"]) == (None, None, None)
    assert msgspec.json.decode(closed["error"], type=ErrorInfo).type == "Deadline"
    assert (await stage.row("job_ends", job_id))["status"] == "failed"
    letters = await stage.rows("dead_letters")
    assert [letter["reason"] for letter in letters] == (["deadline"] if dead_letter else [])


async def test_a_retry_that_waits_past_its_deadline_is_closed_with_what_it_tried(stage: Stage) -> None:
    _, claim = await stage.running(deadline_seconds=900.0, max_retries=3, retry_delay_seconds=600.0)
    await stage.record(stage.ended(claim, "failed"))
    await pass_deadline(stage)
    await keeper(stage).run_once()
    closed = await stage.row("executions", claim.job_id)
    assert (closed["status"], closed["reason"]) == ("dead_lettered", "deadline")
    assert (closed["attempt"], closed["failures"]) == (1, 1)
    assert closed["started_at"] is not None
    assert [row["outcome"] for row in await stage.rows("attempts")] == ["failed"]


async def test_nobody_is_closed_before_the_deadline_or_without_one(stage: Stage) -> None:
    await stage.once(deadline_seconds=60.0)
    await stage.once()
    await stage.fire()
    before = await stage.everything()
    await keeper(stage).run_once()
    assert await stage.everything() == before


async def test_work_past_its_deadline_that_was_claimed_meanwhile_is_left_to_its_worker(stage: Stage) -> None:
    _, claim = await stage.running(deadline_seconds=60.0)
    await pass_deadline(stage)
    seen_before_the_claim = (claim.execution_id, 0, "dead_lettered", None)
    assert await work.close_waiting(stage.db, [seen_before_the_claim], "{}", "deadline") == set()
    await keeper(stage).run_once()  # the worker has its slack
    assert (await stage.row("live", claim.job_id))["state"] == "running"
    assert await stage.record(stage.ended(claim, "succeeded")) == {pair(claim)}


async def test_many_that_waited_too_long_are_closed_in_as_many_looks_as_it_takes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.finish.timeouts.BATCH", 3)
    await stage.jobs([stage.now() - SECOND] * 7, scheduled_at=stage.now(), deadline_seconds=60.0)
    await stage.fire()
    await pass_deadline(stage)
    waits = [await keeper(stage).run_once() for _ in range(3)]
    assert waits == [0, 0, None]
    assert len(await stage.rows("executions")) == len(await stage.rows("dead_letters")) == 7


@pytest.mark.parametrize("max_retries", [0, 3])
@pytest.mark.parametrize("dead_letter", [True, False])
async def test_a_running_one_that_its_worker_does_not_end_is_taken_at_its_deadline(
    stage: Stage, max_retries: int, dead_letter: bool
) -> None:
    worker_id, claim = await stage.running(
        deadline_seconds=60.0, max_retries=max_retries, dead_letter=dead_letter
    )
    held = (claim.execution_id, claim.attempt, claim.token)
    await pass_deadline(stage, timedelta(seconds=SLACK_SECONDS - 5))
    await keeper(stage).run_once()
    assert (await stage.row("live", claim.job_id))["state"] == "running"
    assert (await beat(stage, worker_id, Beat((held,)))).stale == ()

    await pass_deadline(stage, timedelta(seconds=SLACK_SECONDS + 5))
    await keeper(stage).run_once()
    assert await stage.rows("live") == []
    closed = await stage.row("executions", claim.job_id)
    assert closed["status"] == ("dead_lettered" if dead_letter else "timed_out")
    assert closed["reason"] == ("deadline" if max_retries else "out_of_attempts")
    assert len(await stage.rows("dead_letters")) == int(dead_letter)
    [attempt] = await stage.rows("attempts")
    assert (attempt["outcome"], attempt["token"]) == ("timed_out", claim.token)
    assert (await beat(stage, worker_id, Beat((held,)))).stale == (pair(claim),)


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "timed_out"])
async def test_the_late_end_of_an_attempt_that_was_taken_is_stale_and_counted(
    stage: Stage, outcome: str
) -> None:
    worker_id, claim = await stage.running(deadline_seconds=60.0)
    await pass_deadline(stage, MINUTE)
    await keeper(stage).run_once()
    before = await stage.everything()
    reporter = await reported(stage, stage.ended(claim, outcome))
    assert (reporter.recorded, reporter.stale_writes) == (0, 1)
    assert await stage.everything() == before
    await beat(stage, worker_id, Beat(stale_writes=reporter.stale_writes))
    assert (
        await stage.db.fetchval("select stale_writes from detent.workers where worker_id = $1", worker_id)
        == 1
    )


async def test_one_that_was_asked_to_cancel_and_is_out_of_time_is_cancelled(stage: Stage) -> None:
    _, claim = await stage.running(deadline_seconds=60.0)
    await cancel_execution(stage.db, TENANT, claim.execution_id, stage.now(), None)
    await pass_deadline(stage, MINUTE)
    await keeper(stage).run_once()
    assert (await stage.row("executions", claim.job_id))["status"] == "cancelled"
    assert await stage.rows("dead_letters") == []


async def test_a_database_clock_that_leaps_ahead_closes_nothing_before_it_is_believed(stage: Stage) -> None:
    """The keeper's clock runs on as before: what the database's says is not asked."""
    await stage.once(deadline_seconds=60.0)
    await stage.fire()
    behind = timedelta(minutes=10)
    await pass_deadline(stage, behind - MINUTE)  # passed on the database's clock alone
    stage.clock.offset_ns -= int(behind.total_seconds() * 1e9)
    before = await stage.everything()
    await keeper(stage).run_once()
    assert await stage.everything() == before


# The timeout of an attempt


async def three_claims(stage: Stage) -> tuple[UUID, Claim, list[Claim]]:
    """A worker with an attempt that may take 10 s and two that may take an hour, claimed half a minute ago."""
    short = await stage.once(timeout_seconds=10.0, max_retries=1)
    for _ in range(2):
        await stage.once(timeout_seconds=3600.0)
    await stage.fire()
    worker_id = await stage.worker()
    claims = await stage.claim(worker_id)
    await claimed_ago(stage, timedelta(seconds=30))
    [late] = [claim for claim in claims if claim.job_id == short]
    return worker_id, late, [claim for claim in claims if claim is not late]


async def test_a_worker_that_is_overdue_loses_that_attempt_and_only_that(stage: Stage) -> None:
    worker_id, late, others = await three_claims(stage)
    _, bystander = await stage.running(timeout_seconds=10.0)
    await claimed_ago(stage, timedelta(seconds=30))
    holding = tuple((c.execution_id, c.attempt, c.token) for c in (late, *others))
    assert (await beat(stage, worker_id, Beat(holding, overdue_in=-20.0))).stale == ()
    await keeper(stage).run_once()

    live = {row["execution_id"]: row for row in await stage.rows("live")}
    assert live[late.execution_id]["state"] == "retrying"
    assert live[late.execution_id]["failures"] == 1
    assert {live[c.execution_id]["state"] for c in (*others, bystander)} == {"running"}
    [attempt] = await stage.rows("attempts")
    assert (attempt["execution_id"], attempt["outcome"]) == (late.execution_id, "timed_out")
    assert msgspec.json.decode(attempt["error"], type=ErrorInfo).type == "Timeout"

    assert (await beat(stage, worker_id, Beat(holding, overdue_in=-22.0))).stale == (pair(late),)
    ends = [stage.ended(c, "succeeded") for c in (late, *others)]
    reporter = await reported(stage, *ends)
    assert (reporter.recorded, reporter.stale_writes) == (2, 1)
    await keeper(stage).run_once()
    assert (await stage.row("live", late.job_id))["failures"] == 1


@pytest.mark.parametrize("overdue_in", [None, 5.0, -1.0, 2.0 - SLACK_SECONDS])
async def test_a_worker_that_is_in_time_or_nearly_keeps_everything(
    stage: Stage, overdue_in: float | None
) -> None:
    """How long ago it claimed says little: the attempt may have waited there for its turn."""
    worker_id, _, _ = await three_claims(stage)
    await beat(stage, worker_id, Beat(overdue_in=overdue_in))
    before = await stage.everything()
    await keeper(stage).run_once()
    assert await stage.everything() == before


async def test_a_clock_that_jumps_after_a_beat_makes_no_worker_late(stage: Stage) -> None:
    worker_id, _, _ = await three_claims(stage)
    await beat(stage, worker_id, Beat(overdue_in=5.0))
    # The clock leaps ten minutes ahead: everything that was written is that much older.
    await claimed_ago(stage, timedelta(minutes=10))
    await stage.db.execute(
        "update detent.workers set beat_at = beat_at - $1::interval, overdue_at = overdue_at - $1::interval",
        timedelta(minutes=10),
    )
    before = await stage.everything()
    await keeper(stage).run_once()
    assert await stage.everything() == before


async def test_nothing_is_taken_while_the_clock_is_in_doubt(stage: Stage) -> None:
    worker_id, _, _ = await three_claims(stage)
    await stage.once(deadline_seconds=60.0)
    await stage.fire()
    await pass_deadline(stage, MINUTE)
    await beat(stage, worker_id, Beat(overdue_in=-20.0))

    async def ahead() -> int:
        return stage.clock.now_us() + 600_000_000

    await stage.clock.sample(ahead)
    assert not stage.clock.steady
    before = await stage.everything()
    await keeper(stage).run_once()
    assert await stage.everything() == before


# One bad row among others


async def test_a_definition_that_cannot_be_read_does_not_keep_others_past_their_deadline(
    stage: Stage,
) -> None:
    spoiled, *others = [await stage.once(deadline_seconds=60.0) for _ in range(4)]
    await stage.fire()
    await spoil(stage, spoiled)
    await pass_deadline(stage)
    await keeper(stage).run_once()
    assert await stage.rows("live") == []
    letters = {row["job_id"] for row in await stage.rows("dead_letters")}
    assert letters == {spoiled, *others}


async def test_a_definition_that_cannot_be_read_does_not_keep_a_stuck_workers_other_attempts(
    stage: Stage,
) -> None:
    spoiled, other = [await stage.once(timeout_seconds=1.0, max_retries=0) for _ in range(2)]
    await stage.fire()
    worker_id = await stage.worker()
    assert len(await stage.claim(worker_id)) == 2
    await spoil(stage, spoiled)
    await claimed_ago(stage, MINUTE)
    await beat(stage, worker_id, Beat(overdue_in=-60.0))
    await keeper(stage).run_once()
    assert [row["job_id"] for row in await stage.rows("live")] == [spoiled]
    assert (await stage.row("executions", other))["status"] == "dead_lettered"


async def test_an_execution_that_cannot_be_closed_does_not_keep_others_past_their_deadline(
    stage: Stage,
) -> None:
    jobs = [await stage.once(deadline_seconds=60.0) for _ in range(5)]
    await stage.fire()
    stuck = await stage.row("live", jobs[2])
    await stage.db.execute(
        "insert into detent.dead_letters (tenant, execution_id, job_id, revision, reason, died_at)"
        " values (1, $1, $2, 1, 'in the way', clock_timestamp())",
        stuck["execution_id"],
        jobs[2],
    )
    await pass_deadline(stage)
    await keeper(stage).run_once()
    assert [row["job_id"] for row in await stage.rows("live")] == [jobs[2]]
    assert {row["job_id"] for row in await stage.rows("executions")} == {*jobs} - {jobs[2]}


async def spoil(stage: Stage, job_id: UUID) -> None:
    """Its definition is one that this program cannot read."""
    await stage.db.execute(
        "update detent.job_revisions set spec = jsonb_set(spec, '{task}', '{\"kind\": \"of another time\"}')"
        " where job_id = $1",
        job_id,
    )
