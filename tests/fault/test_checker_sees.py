"""The checker can fail: each kind of lie in a true story is named by the check that should see it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from checker import differences
from customer import Acknowledged
from story import TABLES, Row, Story
from witness import Line, said

START = datetime(2027, 3, 1, 12, 0, 0, tzinfo=UTC)
WORKER = uuid4()
SECOND = timedelta(seconds=1)


def text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def job(fails: int = 0, **schedule: float) -> Acknowledged:
    job_id = uuid4()
    body = {"tags": [f"fails-{fails}"], "max_retries": 1, "retry_delay_seconds": 0.2, **schedule}
    return Acknowledged(job_id, body, {"job_id": str(job_id), "created_at": text(START)}, 1)


class Telling:
    """Builds a story in which everything is as it should be."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.tables["workers"] = [{"worker_id": WORKER, "status": "live"}]
        self.owed: list[Acknowledged] = []
        self.lines: list[Line] = []

    def add(self, one: Acknowledged, status: str, due_at: datetime | None = None) -> None:
        self.owed.append(one)
        self.tables["jobs"].append({"job_id": one.job_id})
        self.tables["timers"].append({"job_id": one.job_id, "status": status, "due_at": due_at})

    def fire(self, one: Acknowledged, at: datetime, outcomes: list[str]) -> None:
        execution = uuid4()
        self.tables["fires"].append(
            {"job_id": one.job_id, "nominal_at": at, "through_at": None, "instants": None,
             "decision": "fired", "execution_id": execution, "reason": None}
        )  # fmt: skip
        for number, outcome in enumerate(outcomes, 1):
            began = at + number * SECOND
            self._attempt(execution, number, outcome, began)
        failures, losses = outcomes.count("failed"), outcomes.count("worker_lost")
        self.tables["executions"].append(
            {"execution_id": execution, "job_id": one.job_id, "scheduled_for": at, "status": one.ends,
             "attempt": len(outcomes), "failures": failures, "losses": losses, "cause": "schedule"}
        )  # fmt: skip
        if one.body.get("callback_url"):
            self.tables["callbacks"].append({"execution_id": execution, "failed_at": None})
        if one.ends == "dead_lettered":
            self.tables["dead_letters"].append({"execution_id": execution})

    def _attempt(self, execution: UUID, number: int, outcome: str, began: datetime) -> None:
        ended = began + SECOND / 2
        self.tables["attempts"].append(
            {"execution_id": execution, "attempt": number, "token": 100 + number, "outcome": outcome,
             "started_at": began, "finished_at": ended}
        )  # fmt: skip
        if outcome != "worker_lost":
            words = f"{said(execution, number)}\n"
            self.tables["logs"].append({"execution_id": execution, "attempt": number, "text": words})
        events = {"succeeded": ["start", "done"], "failed": ["start", "fail"], "worker_lost": ["start"]}
        for event, at in zip(events[outcome], (began, ended), strict=False):
            self.lines.append(Line(event, execution, number, 100 + number, 1, at.timestamp()))

    def skip(self, one: Acknowledged, first: datetime, last: datetime) -> None:
        self.tables["fires"].append(
            {"job_id": one.job_id, "nominal_at": first, "through_at": last,
             "instants": (last - first) // SECOND + 1, "decision": "skipped_misfire",
             "execution_id": None, "reason": "a later instant was due as well"}
        )  # fmt: skip

    def end(self) -> Story:
        jobs = {}
        for one in self.owed:
            status = "paused" if one.recurring else "completed" if one.ends == "succeeded" else "failed"
            jobs[one.job_id] = {"status": status}
            if not one.recurring:
                self.tables["job_ends"].append({"job_id": one.job_id, "status": status})
        shown = [
            {**row, "execution_id": str(row["execution_id"]), "job_id": str(row["job_id"]),
             "scheduled_for": text(row["scheduled_for"])}
            for row in self.tables["executions"]
        ]  # fmt: skip
        paused_at = (START + 10 * SECOND).timestamp()
        return Story(self.owed, paused_at, self.tables, jobs, shown, self.lines)


@pytest.fixture
def story() -> Story:
    """Four jobs: one that succeeds in the end, one that dies, one that ticks, and one of every minute."""
    telling = Telling()
    lucky, doomed, ticking, minutely = job(delay=1), job(99, delay=2), job(every=1), job()
    minutely.body["cron"] = "* * * * *"
    doomed.body["callback_url"] = "http://127.0.0.1:1/ended"
    telling.add(lucky, "done")
    telling.fire(lucky, START + SECOND, ["worker_lost", "failed", "succeeded"])
    telling.add(doomed, "done")
    telling.fire(doomed, START + 2 * SECOND, ["failed", "failed"])
    telling.add(ticking, "paused", START + 11 * SECOND)
    for number in (1, 2, 3, 9, 10):
        telling.fire(ticking, START + number * SECOND, ["succeeded"])
    telling.skip(ticking, START + 4 * SECOND, START + 8 * SECOND)
    telling.add(minutely, "paused", START + 60 * SECOND)
    return telling.end()


def test_a_true_story_has_no_differences(story: Story) -> None:
    assert differences(story) == []


def _lose_a_job(story: Story) -> None:
    del story.tables["jobs"][0]


def _make_a_job_twice(story: Story) -> None:
    story.tables["jobs"].append({"job_id": uuid4()})


def _forget_an_instant(story: Story) -> None:
    story.tables["fires"].remove(next(row for row in story.tables["fires"] if row["through_at"]))


def _decide_an_instant_twice(story: Story) -> None:
    story.tables["fires"].append({**story.tables["fires"][0], "execution_id": uuid4()})


def _skip_without_a_reason(story: Story) -> None:
    next(row for row in story.tables["fires"] if row["through_at"])["reason"] = None


def _stop_firing(story: Story) -> None:
    story.paused_at += 5


def _run_for_no_instant(story: Story) -> None:
    execution = {**story.tables["executions"][2], "execution_id": uuid4()}
    story.tables["executions"].append(execution)
    story.lines.append(Line("start", execution["execution_id"], 1, 999, 1, START.timestamp() + 20))


def _run_too_early_for_any(story: Story) -> None:
    _shift(story, -100)


def _run_too_late_for_any(story: Story) -> None:
    _shift(story, 100)


def _shift(story: Story, seconds: float) -> None:
    """The first job ran at another time."""
    first = story.tables["executions"][0]["execution_id"]
    story.lines[:] = [
        Line(one.event, one.execution_id, one.attempt, one.token, one.pid, one.at + seconds * (one.execution_id == first))
        for one in story.lines
    ]  # fmt: skip


def _never_run(story: Story) -> None:
    first = story.tables["executions"][0]["execution_id"]
    story.lines[:] = [line for line in story.lines if line.execution_id != first]


def _lose_an_execution(story: Story) -> None:
    story.tables["executions"].pop()


def _invent_an_execution(story: Story) -> None:
    story.tables["executions"].append({**story.tables["executions"][0], "execution_id": uuid4()})


def _close_twice(story: Story) -> None:
    story.tables["executions"].append({**story.tables["executions"][0]})


def _leave_one_open(story: Story) -> None:
    story.tables["live"].append({"execution_id": uuid4(), "state": "running"})


def _attempt_without_execution(story: Story) -> None:
    story.tables["attempts"].append({**story.tables["attempts"][-1], "execution_id": uuid4()})


def _keep_a_dead_worker(story: Story) -> None:
    story.tables["workers"].append({"worker_id": uuid4(), "status": "live"})


def _end_otherwise(story: Story) -> None:
    story.tables["executions"][0]["status"] = "dead_lettered"


def _count_a_loss_as_failure(story: Story) -> None:
    story.tables["executions"][0]["failures"] += 1


def _lose_a_letter(story: Story) -> None:
    story.tables["dead_letters"].clear()


def _repeat_a_token(story: Story) -> None:
    story.tables["attempts"][1]["token"] = story.tables["attempts"][0]["token"]


def _retry_too_soon(story: Story) -> None:
    story.tables["attempts"][2]["started_at"] = story.tables["attempts"][1]["finished_at"]


def _succeed_unseen(story: Story) -> None:
    story.lines[:] = [line for line in story.lines if line.event != "done"]


def _run_unrecorded(story: Story) -> None:
    story.lines.append(Line("start", uuid4(), 1, 999, 1, START.timestamp()))


def _start_twice_under_one_lease(story: Story) -> None:
    story.lines.append(story.lines[0])


def _run_by_nobody(story: Story) -> None:
    story.tables["executions"].append(
        {**story.tables["executions"][0], "execution_id": uuid4(), "cause": "manual"}
    )


def _break_a_promise(story: Story) -> None:
    story.runs = [uuid4()]


def _lose_output(story: Story) -> None:
    story.tables["logs"].pop()


def _keep_output_twice(story: Story) -> None:
    story.tables["logs"].append(story.tables["logs"][0])


def _lose_a_callback(story: Story) -> None:
    story.tables["callbacks"].clear()


def _call_unasked(story: Story) -> None:
    story.heard = [story.tables["executions"][0]["execution_id"]]


def _start_early(story: Story) -> None:
    line = story.lines[0]
    story.lines[0] = Line(line.event, line.execution_id, line.attempt, line.token, line.pid, line.at - 10)


def _run_beside_itself(story: Story) -> None:
    line = story.lines[0]
    story.lines[0] = Line(line.event, line.execution_id, line.attempt, line.token, line.pid, line.at + 10)


def _answer_otherwise(story: Story) -> None:
    story.api_executions[0]["status"] = "running"


def _job_says_otherwise(story: Story) -> None:
    story.api_jobs[story.owed[0].job_id]["status"] = "failed"


LIES: tuple[tuple[str, Callable[[Story], None]], ...] = (
    ("jobs_are_those_acknowledged", _lose_a_job),
    ("jobs_are_those_acknowledged", _make_a_job_twice),
    ("every_instant_is_decided_once", _forget_an_instant),
    ("every_instant_is_decided_once", _decide_an_instant_twice),
    ("every_instant_is_decided_once", _skip_without_a_reason),
    ("every_instant_is_decided_once", _stop_firing),
    ("every_owed_instant_ran", _run_for_no_instant),
    ("every_owed_instant_ran", _run_too_early_for_any),
    ("every_owed_instant_ran", _run_too_late_for_any),
    ("every_owed_instant_ran", _never_run),
    ("every_owed_instant_ran", _forget_an_instant),
    ("every_fire_has_its_execution", _lose_an_execution),
    ("every_fire_has_its_execution", _invent_an_execution),
    ("every_fire_has_its_execution", _close_twice),
    ("every_fire_has_its_execution", _run_by_nobody),
    ("every_fire_has_its_execution", _break_a_promise),
    ("nothing_is_left_open", _leave_one_open),
    ("nothing_is_left_open", _attempt_without_execution),
    ("nothing_is_left_open", _keep_a_dead_worker),
    ("every_execution_ended_as_it_must", _end_otherwise),
    ("every_execution_ended_as_it_must", _count_a_loss_as_failure),
    ("every_execution_ended_as_it_must", _lose_a_letter),
    ("attempts_follow_each_other", _repeat_a_token),
    ("attempts_follow_each_other", _retry_too_soon),
    ("witness_and_history_agree", _succeed_unseen),
    ("witness_and_history_agree", _run_unrecorded),
    ("witness_and_history_agree", _start_twice_under_one_lease),
    ("output_is_kept", _lose_output),
    ("output_is_kept", _keep_output_twice),
    ("callbacks_are_made_or_wait", _lose_a_callback),
    ("callbacks_are_made_or_wait", _call_unasked),
    ("nothing_started_early_or_beside_itself", _start_early),
    ("nothing_started_early_or_beside_itself", _run_beside_itself),
    ("the_api_tells_the_same", _answer_otherwise),
    ("the_api_tells_the_same", _job_says_otherwise),
)


@pytest.mark.parametrize(
    ("check", "lie"), LIES, ids=[f"{check}-{lie.__name__.strip('_')}" for check, lie in LIES]
)
def test_a_lie_is_named(story: Story, check: str, lie: Callable[[Story], None]) -> None:
    lie(story)
    assert any(difference.startswith(f"{check}: ") for difference in differences(story))
