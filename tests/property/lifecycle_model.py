"""What becomes of jobs and executions, in memory: small enough to be read as the specification.

Time is counted in hours, and an hour passes when it is told to. Recurring jobs are hourly; a failed attempt is
tried again within the hour; a deadline passes when the second hour after the execution was queued begins. What
is staged is decided in the hour before its own; a change of its job takes it back as if it had never been.
Nothing here knows of tables, tokens or clocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

OPEN = frozenset({"queued", "running", "retrying"})
DEADLINE_HOURS = 2

Kind = Literal["once", "every", "manual"]


class Refused(Exception):
    """The state of things does not allow it."""


@dataclass(eq=False)
class Job:
    number: int
    kind: Kind
    born: int
    max_retries: int
    dead_letter: bool
    deadline: bool
    klass: int
    next_due: int | None  # the hour of the next undecided instant; its minute is before any look at it
    timer: str
    ended: str | None = None
    fired: int = 0
    skipped: int = 0  # instants
    decided: int = -1  # the hour of the last decided instant
    decided_before: int = -1


@dataclass(eq=False)
class Execution:
    number: int
    job: Job
    cause: str
    born: int
    order: int
    ends_job: bool
    source: Execution | None = None
    state: str = "queued"
    ready: int = 0
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    cancelling: bool = False
    worker: int | None = None
    outcomes: list[str] = field(default_factory=list)
    letter: str | None = None
    reason: str | None = None

    @property
    def open(self) -> bool:
        return self.state in OPEN

    @property
    def taken_back(self) -> bool:
        return self.state == "taken back"


class Model:
    def __init__(self) -> None:
        self.hour = 0
        self.jobs: list[Job] = []
        self.executions: list[Execution] = []
        self.workers: list[bool] = []  # whether each is alive
        self._steps = 0

    # Looking

    def open_of(self, job: Job) -> Iterator[Execution]:
        return (one for one in self.executions if one.job is job and one.open)

    def in_state(self, *states: str) -> list[Execution]:
        return [one for one in self.executions if one.state in states]

    def claimable(self) -> list[Execution]:
        return [one for one in self.in_state("queued", "retrying") if one.ready <= self.hour]

    def letters(self, status: str | None = None) -> list[Execution]:
        return [one for one in self.executions if one.letter and status in (None, one.letter)]

    def status_of(self, job: Job) -> str:
        if job.ended is not None:
            return job.ended
        if job.timer == "paused":
            return "paused"
        ending = any(one.ends_job and not self.staged(one) for one in self.open_of(job))
        return "running" if job.kind == "once" and job.timer == "done" and ending else "scheduled"

    def staged(self, one: Execution) -> bool:
        """Whether its instant is still to come, and no worker had it."""
        return one.state == "queued" and one.attempt == 0 and one.ready > self.hour

    def late(self, one: Execution) -> bool:
        return one.job.deadline and self.hour - one.born >= DEADLINE_HOURS

    # Jobs

    def submit(
        self, kind: Kind, *, in_hours: int, max_retries: int, dead_letter: bool, deadline: bool, klass: int
    ) -> Job:
        due = None if kind == "manual" else self.hour + in_hours
        timer = "idle" if due is None else "scheduled"
        job = Job(len(self.jobs), kind, self.hour, max_retries, dead_letter, deadline, klass, due, timer)
        self.jobs.append(job)
        return job

    def an_hour_passes(self) -> None:
        """What is staged comes to wait for its turn."""
        self._steps += 1
        for one in self.executions:
            if self.staged(one):
                one.order = self._steps
        self.hour += 1

    def fire(self, *, ahead: bool = False) -> list[Execution]:
        """Each job that is due fires its latest instant; what it missed before is skipped. Ahead, also what is due
        in the next hour is staged, unless an instant of the same job is already.
        """
        self._steps += 1
        fired = []
        for job in self.jobs:
            if job.timer != "scheduled" or job.next_due is None:
                continue
            at = max(job.next_due, self.hour)
            if at > self.hour and not (ahead and at == self.hour + 1 and job.decided <= self.hour):
                continue
            job.fired += 1
            job.decided_before, job.decided = job.decided, at
            if job.kind == "once":
                job.next_due, job.timer = None, "done"
            else:
                job.skipped += at - job.next_due
                job.next_due = at + 1
            fired.append(self._queue(job, "schedule", ends_job=job.kind == "once"))
            fired[-1].born = fired[-1].ready = at
        return fired

    def take_back(self, job: Job) -> None:
        for one in self.open_of(job):
            if one.cause == "schedule" and self.staged(one):
                one.state = "taken back"
                job.next_due, job.timer = one.ready, "scheduled"
                job.decided = job.decided_before
                job.fired -= 1

    def run(self, job: Job) -> Execution:
        self._steps += 1
        if job.ended == "cancelled":
            raise Refused
        return self._queue(job, "manual", ends_job=False)

    def pause(self, job: Job) -> None:
        if job.ended is not None:
            raise Refused
        self.take_back(job)
        job.timer = "paused"

    def resume(self, job: Job) -> None:
        if job.ended is not None:
            raise Refused
        if job.timer != "paused":
            return
        if job.next_due is None:
            job.timer = "done" if job.kind == "once" else "idle"
            return
        job.timer = "scheduled"
        if job.kind == "every" and job.next_due <= self.hour:
            job.skipped += self.hour - job.next_due + 1
            job.next_due = self.hour + 1

    def cancel_job(self, job: Job) -> None:
        if job.ended == "cancelled":
            return
        if job.ended is not None:
            raise Refused
        self.take_back(job)
        for one in self.open_of(job):
            self._cancel(one)
        job.timer, job.next_due, job.ended = "done", None, "cancelled"

    def cancel(self, one: Execution) -> None:
        if not one.open:
            raise Refused
        if one.cancelling:
            return
        ends_job = one.ends_job
        self._cancel(one)
        if ends_job:
            self._end(one.job, "cancelled")

    # Work

    def hire(self) -> int:
        self.workers.append(True)
        return len(self.workers) - 1

    def claim(self, worker: int, taken: list[Execution]) -> None:
        for one in taken:
            one.state, one.worker = "running", worker
            one.attempt += 1

    def finish(self, one: Execution, outcome: str, *, retryable: bool = True) -> None:
        self._steps += 1
        one.outcomes.append(outcome)
        one.worker = None
        if outcome in ("succeeded", "cancelled"):
            self._close(one, outcome)
        elif outcome == "released":
            self._close(one, "cancelled") if one.cancelling else self._put_back(one)
        else:
            self._failed(one, outcome, retryable)

    def _failed(self, one: Execution, outcome: str, retryable: bool) -> None:
        left = retryable and one.failures < one.job.max_retries
        again = left and not self.late(one)
        one.failures += 1
        if one.cancelling:
            self._close(one, "cancelled")
            return
        if again:
            one.state, one.ready, one.order = "retrying", self.hour + 1, self._steps
            return
        one.reason = "deadline" if left else "out_of_attempts" if retryable else "not_retryable"
        self._close(one, "dead_lettered" if one.job.dead_letter else outcome)

    def lose(self, worker: int) -> list[Execution]:
        """A worker is given up; answers what it had."""
        self._steps += 1
        self.workers[worker] = False
        had = [one for one in self.executions if one.worker == worker]
        for one in had:
            one.outcomes.append("worker_lost")
            one.worker = None
            one.losses += 1
            if one.cancelling:
                self._close(one, "cancelled")
            else:
                self._put_back(one)
        return had

    def keep(self) -> list[Execution]:
        """What is past its deadline is closed, by force where a worker has it; answers the latter."""
        taken = []
        for one in self.in_state("running"):
            if self.late(one):
                taken.append(one)
                self.finish(one, "timed_out")
        for one in self.in_state("queued", "retrying"):
            if self.late(one):
                one.reason = "deadline"
                self._close(one, "dead_lettered" if one.job.dead_letter else "timed_out")
        return taken

    # Letters

    def replay(self, one: Execution) -> Execution:
        self._steps += 1
        job = one.job
        if one.letter != "waiting" or job.ended == "cancelled":
            raise Refused
        revives = job.kind == "once" and job.ended == "failed"
        if revives:
            job.ended = None
        one.letter = "replayed"
        new = self._queue(job, "replay", ends_job=revives)
        new.source = one
        return new

    def discard(self, one: Execution) -> None:
        if one.letter == "replayed":
            raise Refused
        one.letter = "discarded"

    # What all of these do

    def _queue(self, job: Job, cause: str, *, ends_job: bool) -> Execution:
        one = Execution(len(self.executions), job, cause, self.hour, self._steps, ends_job, ready=self.hour)
        self.executions.append(one)
        return one

    def _put_back(self, one: Execution) -> None:
        one.state, one.ready, one.order = "queued", max(self.hour, one.ready), self._steps

    def _cancel(self, one: Execution) -> None:
        if one.state == "running":
            one.cancelling, one.ends_job = True, False
        else:
            self._close(one, "cancelled", ends_job=False)

    def _close(self, one: Execution, status: str, *, ends_job: bool = True) -> None:
        one.state = status
        if status == "dead_lettered":
            one.letter = "waiting"
        if one.ends_job and ends_job:
            self._end(one.job, {"succeeded": "completed", "cancelled": "cancelled"}.get(status, "failed"))

    def _end(self, job: Job, how: str) -> None:
        if job.ended is None:
            job.ended = how
