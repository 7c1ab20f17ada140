"""Any order of submit, fire, claim, finish, lose, cancel, replay, pause and of hours that pass: after every step
the real store, through its real functions, and the model of `lifecycle_model` tell the same story.

Hypothesis draws positions in the model's lists and never an id, so that a failing story is told in small numbers
and shrinks. An hour passes by moving what waits for its time an hour back; a second more, so that no instant of
a schedule is met twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from lifecycle_model import OPEN, Execution, Job, Kind
from lifecycle_store import SameStory, World, close_stage, open_ones, open_stage, pick, turn

from detent.api.decide import pause, resume
from detent.finish.timeouts import TimeoutKeeper
from detent.model.job import CLASSES
from detent.store import dead_letters
from detent.store.jobs import cancel_execution, cancel_job, change_job, run_job
from stage import SECOND, TENANT, with_attempt, with_token

T = TypeVar("T")

PASSING = timedelta(seconds=3601)
DEADLINE = 5000.0
MOST_OPEN = 12
PRIORITIES = sorted(CLASSES, key=CLASSES.__getitem__)

SHIFTED = (
    "update detent.live set rank = detent.rank(clock_timestamp(), class) "
    "where state = 'queued' and not_before > clock_timestamp() and $1 > interval '0'",
    "update detent.timers set due_at = due_at - $1, decided_through = decided_through - $1, "
    "decided_before = decided_before - $1",
    "update detent.job_revisions set armed_at = armed_at - $1",
    "update detent.live set scheduled_for = scheduled_for - $1, not_before = not_before - $1, "
    "deadline_at = deadline_at - $1",
)
PLACE = st.integers(0, 1_000)
JOB = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["once", "once", "every", "manual"]),
        "in_hours": st.sampled_from([0, 0, 1]),
        "max_retries": st.integers(0, 2),
        "dead_letter": st.sampled_from([True, True, False]),
        "deadline": st.booleans(),
        "klass": st.integers(0, 3),
    }
)
OUTCOMES = ["failed", "failed", "failed", "timed_out", "succeeded", "released", "cancelled"]


class Story(SameStory):
    """What may happen."""

    # Most of a life is work; what people and accidents do to it comes in between.

    @rule(
        place=PLACE,
        limit=st.integers(1, 4),
        ends=st.lists(
            st.tuples(st.sampled_from(OUTCOMES), st.sampled_from([True, True, True, False])),
            min_size=1,
            max_size=4,
        ),
        overnight=st.booleans(),
        ahead=st.booleans(),
    )
    def work(
        self, place: int, limit: int, ends: list[tuple[str, bool]], overnight: bool, ahead: bool
    ) -> None:
        """Fire what is due, claim some of it, end some of what is claimed."""
        if ahead and open_ones(self) < MOST_OPEN:
            self.fire_ahead()
        if overnight:
            self.an_hour_passes()
        if open_ones(self) < MOST_OPEN:
            self.fire()
        self.claim(place, limit)
        for outcome, retryable in ends:
            if self.held:
                self.finish(place, outcome, retryable)

    @rule(
        what=st.sampled_from(
            [
                "pause",
                "resume",
                "cancel a job",
                "cancel an execution",
                "discard",
                "lose a worker",
                "lose a worker",
            ]
        ),
        place=PLACE,
    )
    def interfere(self, what: str, place: int) -> None:
        if what == "lose a worker":
            self.lose_a_worker(place)
        elif what == "cancel an execution":
            if self.model.executions:
                self.cancel_an_execution(place)
        elif what == "discard":
            if self.model.letters():
                self.discard(place)
        elif self.model.jobs:
            {"pause": self.pause, "resume": self.resume, "cancel a job": self.cancel_a_job}[what](place)

    # Stories that chance alone would seldom tell

    @precondition(lambda self: self.model.jobs)
    @rule(place=PLACE, hours=st.integers(1, 2))
    def pause_for_hours(self, place: int, hours: int) -> None:
        recurring = [job.number for job in self.model.jobs if job.kind == "every" and job.ended is None]
        place = pick(recurring, place) if recurring else place
        self.pause(place)
        for _ in range(hours):
            self.an_hour_passes()
        self.fire()
        self.resume_job(pick(self.model.jobs, place))

    @precondition(lambda self: self.held)
    @rule(
        place=PLACE,
        whole=st.booleans(),
        outcome=st.sampled_from(["failed", "worker_lost", "released", "succeeded", "cancelled"]),
    )
    def cancel_what_runs_and_let_it_end(self, place: int, whole: bool, outcome: str) -> None:
        one = self.model.executions[pick(sorted(self.held), place)]
        assert one.worker is not None
        if whole:
            self.cancel_a_job(one.job.number)
        else:
            self.cancel_one(one)
        if outcome == "worker_lost":
            alive = [number for number, lives in enumerate(self.model.workers) if lives]
            self.lose_a_worker(alive.index(one.worker))
        else:
            self.finish(place, outcome, retryable=True)

    @precondition(lambda self: self.model.letters("waiting"))
    @rule(place=PLACE)
    def cancel_the_job_of_a_letter_and_replay_it(self, place: int) -> None:
        waiting = [one for one in self.model.letters("waiting") if one.job.ended is None]
        if waiting:
            self.cancel_a_job(pick(waiting, place).job.number)
            self.replay(self.model.letters("waiting").index(pick(waiting, place)), None)

    @precondition(lambda self: self.model.jobs and open_ones(self) < MOST_OPEN)
    @rule(place=PLACE, what=st.sampled_from(["pause", "cancel"]), again=st.booleans(), passes=st.booleans())
    def change_what_is_staged(self, place: int, what: str, again: bool, passes: bool) -> None:
        self.fire_ahead()
        staged = [one for one in self.model.executions if self.model.staged(one)]
        job = pick(staged, place).job if staged else pick(self.model.jobs, place)
        if what == "cancel":
            self.cancel_a_job(job.number)
            return
        self.pause(job.number)
        if passes:
            self.an_hour_passes()
        self.resume_job(job)
        if again:
            self.fire_ahead()

    # Hours, workers

    @rule()
    def an_hour_passes(self) -> None:
        self.model.an_hour_passes()
        for statement in SHIFTED:
            self.do(self.stage.db.execute(statement.replace("$1", "$1::interval"), PASSING))
        for number, claim in self.held.items():
            if claim.deadline_at is not None:
                self.held[number] = msgspec.structs.replace(claim, deadline_at=claim.deadline_at - PASSING)

    @rule(place=PLACE)
    def lose_a_worker(self, place: int) -> None:
        """Its lease is over and it is silent: the rescuer gives it up at first sight. Another one joins."""
        worker = pick([n for n, alive in enumerate(self.model.workers) if alive], place)
        self.do(
            self.stage.db.execute(
                "update detent.workers set lease_seconds = 0 where worker_id = $1", self.worker_ids[worker]
            )
        )
        self.do(self.stage.rescuer().run_once())
        self.stale += [self.held.pop(one.number) for one in self.model.lose(worker)]
        self.hire()

    # Jobs

    @initialize(first=JOB, second=JOB, third=JOB)
    def begin(self, first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]) -> None:
        for fields in (first, second, third):
            self.submit(**fields)

    @precondition(lambda self: len(self.model.jobs) < 6)
    @rule(fields=JOB)
    def submit_another(self, fields: dict[str, Any]) -> None:
        self.submit(**fields)

    def submit(
        self, kind: Kind, in_hours: int, max_retries: int, dead_letter: bool, deadline: bool, klass: int
    ) -> None:
        self.model.submit(
            kind, in_hours=in_hours, max_retries=max_retries, dead_letter=dead_letter, deadline=deadline,
            klass=klass,
        )  # fmt: skip
        at = self.stage.now() - SECOND + in_hours * PASSING
        fields: dict[str, Any] = {
            "max_retries": max_retries,
            "dead_letter": dead_letter,
            "deadline_seconds": DEADLINE if deadline else None,
            "priority": PRIORITIES[klass],
        }
        if kind == "once":
            made = self.stage.job(at, scheduled_at=at, **fields)
        elif kind == "every":
            hour = timedelta(hours=1)
            made = self.stage.job(at, armed_at=at - hour, every=3600.0, **fields)
        else:
            made = self.stage.job(None, **fields)
        self.job_ids.append(self.do(made))

    @precondition(lambda self: open_ones(self) < MOST_OPEN)
    @rule()
    def fire(self) -> None:
        self.fires(self.model.fire(), self.stage.fire())

    @precondition(lambda self: open_ones(self) < MOST_OPEN)
    @rule()
    def fire_ahead(self) -> None:
        self.fires(self.model.fire(ahead=True), self.stage.fire_ahead(PASSING))

    def fires(self, expected: list[Execution], firing: Coroutine[Any, Any, int]) -> None:
        assert self.do(firing) == len(expected)
        rows = self.do(self.stage.rows("live"))
        new = {
            row["job_id"]: row["execution_id"]
            for row in rows
            if row["execution_id"] not in self.execution_ids
        }
        assert len(new) == len(expected)
        self.execution_ids += [new[self.job_ids[one.job.number]] for one in expected]

    @precondition(lambda self: self.model.jobs and open_ones(self) < MOST_OPEN)
    @rule(place=PLACE)
    def run_by_hand(self, place: int) -> None:
        job = pick(self.model.jobs, place)
        self.runs += 1
        with self.refused_by_both() as allowed:
            allowed(lambda: self.model.run(job))
            run = self.do(
                run_job(
                    self.stage.db,
                    TENANT,
                    self.job_ids[job.number],
                    str(self.runs),
                    self.now_or_before(),
                    None,
                )
            )
            self.execution_ids.append(run.execution.execution_id)

    def pause(self, place: int) -> None:
        job = pick(self.model.jobs, place)
        with self.refused_by_both() as allowed:
            allowed(lambda: self.model.pause(job))
            self.do(
                change_job(self.stage.db, TENANT, self.job_ids[job.number], pause, self.stage.now(), None)
            )
        self.forget_what_was_taken_back()

    def resume(self, place: int) -> None:
        paused = [job for job in self.model.jobs if job.timer == "paused"]
        self.resume_job(pick(paused or self.model.jobs, place))

    def resume_job(self, job: Job) -> None:
        now = self.stage.now()
        with self.refused_by_both() as allowed:
            allowed(lambda: self.model.resume(job))
            self.do(
                change_job(
                    self.stage.db, TENANT, self.job_ids[job.number], lambda s: resume(s, now), now, None
                )
            )

    def cancel_a_job(self, place: int) -> None:
        job = pick(self.model.jobs, place)
        running = {one.worker for one in self.model.open_of(job) if one.worker is not None}
        with self.refused_by_both() as allowed:
            allowed(lambda: self.model.cancel_job(job))
            told = self.do(
                cancel_job(self.stage.db, TENANT, self.job_ids[job.number], self.stage.now(), None)
            )
            assert not told.changed or set(told.workers) == {self.worker_ids[worker] for worker in running}
        self.forget_what_was_taken_back()

    def cancel_an_execution(self, place: int) -> None:
        known = [one for one in self.model.executions if not one.taken_back]
        if known:
            self.cancel_one(pick(self.model.in_state(*OPEN) or known, place))

    def cancel_one(self, one: Execution) -> None:
        with self.refused_by_both() as allowed:
            allowed(lambda: self.model.cancel(one))
            self.do(
                cancel_execution(
                    self.stage.db, TENANT, self.execution_ids[one.number], self.stage.now(), None
                )
            )

    # Work

    @rule(place=PLACE, limit=st.integers(1, 4))
    def claim(self, place: int, limit: int) -> None:
        worker = place % len(self.worker_ids)
        claims = self.do(self.stage.claim(self.worker_ids[worker], limit))
        if not self.model.workers[worker]:
            assert claims == []
            return
        free = self.model.claimable()
        taken = [self.model.executions[self.execution_ids.index(claim.execution_id)] for claim in claims]
        assert len(taken) == len(set(taken)) == min(limit, len(free))
        assert set(taken) <= set(free)
        left = [one for one in free if one not in taken]
        if taken and left:  # higher classes first, then in the order they came to wait
            assert max(map(turn, taken)) <= min(map(turn, left))
        self.model.claim(worker, taken)
        for one, claim in zip(taken, claims, strict=True):
            assert (claim.attempt, claim.failures) == (one.attempt, one.failures)
            assert all(claim.token > other.token for other in self.stale)
            self.held[one.number] = claim

    @precondition(lambda self: self.held)
    @rule(
        place=PLACE,
        outcome=st.sampled_from(OUTCOMES),
        retryable=st.sampled_from([True, True, True, False]),
    )
    def finish(self, place: int, outcome: str, retryable: bool) -> None:
        number = pick(sorted(self.held), place)
        one, claim = self.model.executions[number], self.held.pop(number)
        if outcome == "cancelled" and not one.cancelling:
            outcome = "succeeded"  # a worker stops nothing that nobody asked it to
        finished = self.stage.ended(claim, outcome, retryable=retryable)
        assert self.do(self.stage.record(finished)) == {(claim.execution_id, claim.attempt)}
        self.model.finish(one, outcome, retryable=retryable)
        self.reported.append(finished)
        self.stale.append(claim)

    @precondition(lambda self: self.stale)
    @rule(place=PLACE, outcome=st.sampled_from(["succeeded", "failed", "timed_out", "released", "cancelled"]))
    def finish_what_was_over_already(self, place: int, outcome: str) -> None:
        claim = pick(self.stale, place)
        self.changes_nothing(self.stage.ended(claim, outcome), recorded=False)

    @precondition(lambda self: self.held)
    @rule(
        place=PLACE, outcome=st.sampled_from(["succeeded", "failed", "released"]), by=st.sampled_from([-1, 1])
    )
    def finish_under_another_token_or_attempt(self, place: int, outcome: str, by: int) -> None:
        claim = self.held[pick(sorted(self.held), place)]
        self.changes_nothing(self.stage.ended(with_token(claim, claim.token + by), outcome), recorded=False)
        self.changes_nothing(
            self.stage.ended(with_attempt(claim, claim.attempt + by), outcome), recorded=False
        )

    @precondition(lambda self: self.reported)
    @rule(place=PLACE)
    def finish_again_as_after_a_lost_answer(self, place: int) -> None:
        self.changes_nothing(pick(self.reported, place), recorded=True)

    @precondition(lambda self: any(self.model.executions[number].cancelling for number in self.held))
    @rule()
    def stop_what_was_asked_to(self) -> None:
        for place, number in reversed(list(enumerate(sorted(self.held)))):
            if self.model.executions[number].cancelling:
                self.finish(place, "cancelled", retryable=True)

    @rule()
    def keep_deadlines(self) -> None:
        keeper = TimeoutKeeper(self.stage.db, self.stage.clock, self.stage.notifier)
        self.do(keeper.run_once())
        self.stale += [self.held.pop(one.number) for one in self.model.keep()]

    # Letters

    @precondition(lambda self: self.model.letters() and open_ones(self) < MOST_OPEN)
    @rule(place=PLACE, payload=st.sampled_from([None, '{"edited": true}']))
    def replay(self, place: int, payload: str | None) -> None:
        one = pick(self.model.letters("waiting") or self.model.letters(), place)
        with self.refused_by_both() as allowed:
            allowed(lambda: self.model.replay(one))
            run = self.do(
                dead_letters.replay(
                    self.stage.db, TENANT, self.execution_ids[one.number], payload, None,
                    self.now_or_before(), None,
                )
            )  # fmt: skip
            self.execution_ids.append(run.execution.execution_id)

    def discard(self, place: int) -> None:
        one = pick(self.model.letters(), place)
        with self.refused_by_both() as allowed:
            allowed(lambda: self.model.discard(one))
            self.do(
                dead_letters.discard(
                    self.stage.db, TENANT, self.execution_ids[one.number], None, self.stage.now(), None
                )
            )


QUICK = settings(
    max_examples=60,
    phases=(Phase.generate,),
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(
    QUICK, max_examples=400, stateful_step_count=60, derandomize=False, print_blob=True, phases=tuple(Phase)
)


def tell(url: str, how: settings) -> None:
    with asyncio.Runner() as runner:
        stage = runner.run(open_stage(url))
        world = World(runner, stage)
        try:
            run_state_machine_as_test(lambda: Story(world), settings=how)
        finally:
            runner.run(close_stage(stage))


@pytest.mark.timeout(600)  # a failing story takes a while to be told shortly
def test_the_store_and_the_model_tell_one_story_whatever_happens(stage_url: str) -> None:
    tell(stage_url, QUICK)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_store_and_the_model_tell_one_story_in_many_long_lives(stage_url: str) -> None:
    tell(stage_url, LONG)
