"""When a callback is tried again, and what it says."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from detent.finish.callbacks import LEASE, MOST_TRIES, TIMEOUT, body_of, pause_after
from detent.runtime.config import BadConfiguration, environment_of, load
from detent.store.callbacks import Due

START = datetime(2026, 1, 1, 9, 0, 0, 250_900, tzinfo=UTC)
DUE = Due(
    execution_id=UUID("019b0000-0000-8000-8000-000000000001"),
    job_id=UUID("019b0000-0000-7000-8000-000000000002"),
    url="https://example.org/done", origin="https://example.org", tries=1, name="report",
    status="dead_lettered", cause="schedule", scheduled_for=START, started_at=START,
    finished_at=START + timedelta(seconds=1.5), attempt=4,
    result=None, error='{"type": "ValueError", "message": "no"}',
)  # fmt: skip


def test_pauses_double_from_ten_seconds_to_an_hour() -> None:
    pauses = [pause_after(tries, 0.5) for tries in range(1, MOST_TRIES)]
    seconds = [pause.total_seconds() for pause in pauses if pause is not None]
    assert seconds[:9] == pytest.approx([10, 20, 40, 80, 160, 320, 640, 1280, 2560])
    assert set(seconds[9:]) == {3600}


def test_all_tries_together_take_about_a_day_and_then_it_is_given_up() -> None:
    total = sum((pause_after(tries, 0.5) or timedelta() for tries in range(1, MOST_TRIES)), timedelta())
    assert timedelta(hours=22) < total < timedelta(hours=24)
    assert pause_after(MOST_TRIES, 0.5) is None
    assert pause_after(10_000, 0.5) is None


def test_pauses_are_scattered_by_a_tenth() -> None:
    assert pause_after(1, 0.0) == timedelta(seconds=9)
    assert pause_after(1, 1.0) == timedelta(seconds=11)


def test_a_post_is_over_long_before_its_lease() -> None:
    assert timedelta(seconds=2 * TIMEOUT) < LEASE


def test_the_body_tells_how_the_execution_closed() -> None:
    assert json.loads(body_of(DUE)) == {
        "execution_id": "019b0000-0000-8000-8000-000000000001",
        "job_id": "019b0000-0000-7000-8000-000000000002",
        "name": "report",
        "status": "dead_lettered",
        "cause": "schedule",
        "scheduled_for": "2026-01-01T09:00:00.250Z",
        "started_at": "2026-01-01T09:00:00.250Z",
        "finished_at": "2026-01-01T09:00:01.750Z",
        "duration_ms": 1500,
        "attempt": 4,
        "result": None,
        "error": {"type": "ValueError", "message": "no"},
    }


def test_private_callbacks_are_a_switch_that_is_off() -> None:
    assert load({}, {}).config.allow_private_callbacks is False
    for word, value in {"true": True, "1": True, "Yes": True, "off": False, "false": False}.items():
        loaded = load({}, {"DETENT_ALLOW_PRIVATE_CALLBACKS": word}).config
        assert loaded.allow_private_callbacks is value
        assert load({}, environment_of(loaded, "postgresql://h/db")).config.allow_private_callbacks is value
    with pytest.raises(BadConfiguration, match="must be true or false"):
        load({}, {"DETENT_ALLOW_PRIVATE_CALLBACKS": "perhaps"})
