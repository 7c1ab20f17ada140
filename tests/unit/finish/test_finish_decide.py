"""What an ended attempt means for its execution: every case there is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Literal, get_args
from uuid import UUID

import pytest

from detent.finish.decide import Close, Decision, PutBack, decide
from detent.finish.retry import retry_delay
from detent.model.execution import CLOSED, OPEN, Outcome
from detent.model.job import JobSpec, PythonTask
from detent.model.work import Claim, Finished, us_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
Failure = Literal["failed", "timed_out"]
FAILURES: tuple[Failure, ...] = get_args(Failure)

# From `running` an execution may go here and nowhere else; an attempt of this outcome leads there.
LEGAL: dict[str, set[str]] = {
    "succeeded": {"succeeded"},
    "failed": {"retrying", "dead_lettered", "failed"},
    "timed_out": {"retrying", "dead_lettered", "timed_out"},
    "cancelled": {"cancelled"},
    "worker_lost": {"queued"},
    "released": {"queued"},
}


def ended(
    outcome: Outcome,
    *,
    failures: int = 0,
    max_retries: int = 3,
    dead_letter: bool = True,
    retryable: bool = True,
) -> Finished:
    spec = JobSpec(name="job", task=PythonTask("noop"), max_retries=max_retries, dead_letter=dead_letter)
    claim = Claim(UUID(int=1), UUID(int=2), failures + 1, 9, failures, us_of(NOON), 1, spec, "null")
    return Finished(claim, outcome, us_of(NOON), us_of(NOON), retryable=retryable)


def state_after(decision: Decision) -> str:
    return decision.status if isinstance(decision, Close) else decision.state


EVERY_CASE = [
    ended(outcome, failures=failures, max_retries=retries, dead_letter=letter, retryable=retryable)
    for outcome, failures, retries, letter, retryable in product(
        OUTCOMES, range(6), range(5), (True, False), (True, False)
    )
]


def test_no_outcome_leads_to_an_illegal_state() -> None:
    reached: dict[str, set[str]] = {outcome: set() for outcome in OUTCOMES}
    for finished in EVERY_CASE:
        decision = decide(finished)
        if isinstance(decision, Close):
            assert decision.status in CLOSED
        else:
            assert decision.state in OPEN - {"running", "held"}
        reached[finished.outcome].add(state_after(decision))
    assert reached == LEGAL


def test_only_failures_and_timeouts_are_counted_and_each_once() -> None:
    for finished in EVERY_CASE:
        decision = decide(finished)
        assert decision.counted == (1 if finished.outcome in FAILURES else 0)


@pytest.mark.parametrize("outcome", FAILURES)
@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_there_are_as_many_attempts_as_retries_and_one_more(outcome: Failure, max_retries: int) -> None:
    attempts = 0
    while True:
        decision = decide(ended(outcome, failures=attempts, max_retries=max_retries))
        attempts += decision.counted
        if isinstance(decision, Close):
            break
    assert attempts == max_retries + 1
    assert decision == Close("dead_lettered", 1, "out_of_attempts")


@pytest.mark.parametrize("outcome", FAILURES)
def test_an_error_that_forbids_a_retry_ends_at_once(outcome: Failure) -> None:
    assert decide(ended(outcome, retryable=False)) == Close("dead_lettered", 1, "not_retryable")
    assert decide(ended(outcome, retryable=False, dead_letter=False)) == Close(outcome, 1, "not_retryable")


@pytest.mark.parametrize("outcome", FAILURES)
def test_without_dead_letters_the_last_outcome_is_the_executions(outcome: Failure) -> None:
    decision = decide(ended(outcome, max_retries=0, dead_letter=False))
    assert decision == Close(outcome, 1, "out_of_attempts")


def test_a_retry_waits_as_long_as_its_job_says() -> None:
    for failures in range(3):
        finished = ended("failed", failures=failures)
        decision = decide(finished)
        assert isinstance(decision, PutBack)
        assert decision.delay == retry_delay(finished.claim.spec, failures + 1)


@pytest.mark.parametrize("outcome", ["released", "worker_lost"])
def test_work_that_comes_back_through_no_fault_of_its_own_is_queued_at_once(outcome: Outcome) -> None:
    decision = decide(ended(outcome, failures=5, max_retries=0))
    assert isinstance(decision, PutBack)
    assert (decision.state, decision.delay, decision.counted) == ("queued", timedelta(0), 0)


def test_a_success_stands_whatever_came_before() -> None:
    assert decide(ended("succeeded", failures=9, max_retries=0)) == Close("succeeded")
