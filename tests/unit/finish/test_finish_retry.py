"""The pause before the next attempt."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.api.values import LONGEST_RETRY_DELAY
from detent.finish.retry import CAP_SECONDS, retry_delay
from detent.model.job import Backoff, JobSpec, PythonTask


def spec(backoff: Backoff = "exponential", seconds: float = 30.0) -> JobSpec:
    return JobSpec(name="job", task=PythonTask("noop"), retry_backoff=backoff, retry_delay_seconds=seconds)


def pauses(backoff: Backoff, count: int = 5) -> list[float]:
    return [retry_delay(spec(backoff), failures).total_seconds() for failures in range(1, count + 1)]


def test_exponential_doubles() -> None:
    assert pauses("exponential") == [30, 60, 120, 240, 480]


def test_linear_grows_by_the_same_amount() -> None:
    assert pauses("linear") == [30, 60, 90, 120, 150]


def test_fixed_stays() -> None:
    assert pauses("fixed") == [30, 30, 30, 30, 30]


def test_the_default_is_exponential_from_half_a_minute() -> None:
    plain = JobSpec(name="job", task=PythonTask("noop"))
    assert retry_delay(plain, 1) == timedelta(seconds=30)
    assert retry_delay(plain, 2) == timedelta(seconds=60)


@pytest.mark.parametrize("backoff", ["exponential", "linear"])
def test_no_pause_is_longer_than_thirty_days(backoff: Backoff) -> None:
    assert retry_delay(spec(backoff), 1_000_000) == timedelta(seconds=CAP_SECONDS)
    assert retry_delay(spec(backoff, 1e9), 1) == timedelta(days=30)


@pytest.mark.parametrize("backoff", ["exponential", "linear", "fixed"])
def test_the_longest_pause_that_a_job_may_ask_for_is_not_cut(backoff: Backoff) -> None:
    assert retry_delay(spec(backoff, LONGEST_RETRY_DELAY), 1).total_seconds() == LONGEST_RETRY_DELAY


@given(
    st.sampled_from(["exponential", "linear", "fixed"]),
    st.floats(0, 1e7),
    st.integers(1, 10_000),
)
def test_a_pause_is_bounded_and_never_shorter_than_the_one_before(
    backoff: Backoff, seconds: float, failures: int
) -> None:
    one = retry_delay(spec(backoff, seconds), failures)
    following = retry_delay(spec(backoff, seconds), failures + 1)
    assert timedelta(0) <= one <= following <= timedelta(seconds=CAP_SECONDS)


def test_a_pause_of_nothing_stays_nothing() -> None:
    for backoff in ("exponential", "linear", "fixed"):
        assert retry_delay(spec(backoff, 0.0), 50) == timedelta(0)
