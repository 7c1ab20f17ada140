"""The store and the model side by side: which of the store's ids are which of the model's numbers, and that both
tell the same story.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from hypothesis.stateful import RuleBasedStateMachine, invariant
from lifecycle_model import OPEN, Execution, Job, Model, Refused

from detent.model.errors import Conflict
from detent.model.work import Claim, Finished
from detent.runtime.clock import Clock
from detent.store import timers
from detent.store.database import Database
from detent.store.job_read import read_jobs
from stage import TENANT, Stage

T = TypeVar("T")

FOREVER = 1e9


class World:
    """An open stage and the loop that it lives on."""

    def __init__(self, runner: asyncio.Runner, stage: Stage) -> None:
        self._runner = runner
        self.stage = stage

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


async def open_stage(url: str) -> Stage:
    db = await Database.open(url, size=2, application_name="detent test")
    hot = await Database.open(url, size=2, application_name="detent test", hot=True)
    clock = Clock()
    for _ in range(3):
        await clock.sample(lambda: timers.clock_us(hot))
    return Stage(db, hot, clock)


async def close_stage(stage: Stage) -> None:
    await stage.close()
    await stage.hot.close()
    await stage.db.close()


class SameStory(RuleBasedStateMachine):
    """The model, the store, and after every step that they agree."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.stage = world.stage
        self.model = Model()
        self.job_ids: list[UUID] = []
        self.execution_ids: list[UUID] = []
        self.worker_ids: list[UUID] = []
        self.held: dict[int, Claim] = {}  # what each running execution was claimed as
        self.stale: list[Claim] = []  # claims that were over before their worker said so
        self.reported: list[Finished] = []
        self.runs = 0
        self.do(self.stage.clear())
        self.hire()
        self.hire()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.world.do(work)

    def hire(self) -> None:
        self.model.hire()
        self.worker_ids.append(self.do(self.stage.worker(lease_seconds=FOREVER)))

    def forget_what_was_taken_back(self) -> None:
        """Staged again, an instant has the id that it had: the number it had before stands for nothing."""
        for one in self.model.executions:
            if one.taken_back:
                self.execution_ids[one.number] = UUID(int=one.number)

    def changes_nothing(self, finished: Finished, *, recorded: bool) -> None:
        before = self.do(self.stage.everything())
        answer = self.do(self.stage.record(finished))
        pair = (finished.claim.execution_id, finished.claim.attempt)
        assert answer == ({pair} if recorded else set())
        assert self.do(self.stage.everything()) == before

    def now_or_before(self) -> Any:
        """Now, in the name of somebody whose clock is a little behind: due for a claim at once."""
        return self.stage.now() - timedelta(milliseconds=50)

    @contextmanager
    def refused_by_both(self) -> Iterator[Any]:
        """What the model refuses the store refuses too, and the other way round."""
        refused = []

        def allowed(step: Any) -> None:
            try:
                step()
            except Refused as refusal:
                refused.append(refusal)

        try:
            yield allowed
        except Conflict as conflict:
            assert refused, f"the store refused what the model allows: {conflict}"
        else:
            assert not refused, "the store allowed what the model refuses"

    # The same story

    @invariant()
    def the_store_tells_the_models_story(self) -> None:
        told = self.do(self.stage.everything())
        self.open_rows_agree(told["live"])
        self.closing_rows_agree(told["executions"])
        self.attempts_agree(told["attempts"])
        self.letters_agree(told["dead_letters"])
        self.jobs_agree(told)

    def open_rows_agree(self, rows: list[dict[str, Any]]) -> None:
        expected = {
            self.execution_ids[one.number]: (
                one.state, one.attempt, one.failures, one.losses, one.cancelling, one.ends_job, one.cause,
                None if one.worker is None else self.worker_ids[one.worker],
                None if one.source is None else self.execution_ids[one.source.number],
            )
            for one in self.model.executions
            if one.open
        }  # fmt: skip
        found = {
            row["execution_id"]: (
                row["state"], row["attempt"], row["failures"], row["losses"],
                row["cancel_requested_at"] is not None, row["ends_job"], row["cause"], row["worker_id"],
                row["source_id"],
            )
            for row in rows
        }  # fmt: skip
        assert found == expected
        leases = {row["execution_id"]: row["token"] for row in rows if row["state"] == "running"}
        assert leases == {claim.execution_id: claim.token for claim in self.held.values()}
        assert all(row["token"] is None for row in rows if row["state"] != "running")

    def closing_rows_agree(self, rows: list[dict[str, Any]]) -> None:
        expected = {
            self.execution_ids[one.number]: (one.state, one.attempt, one.failures, one.losses, one.cause)
            for one in self.model.executions
            if not one.open and not one.taken_back
        }
        assert len(rows) == len(expected)  # one each
        found = {
            row["execution_id"]: (
                row["status"],
                row["attempt"],
                row["failures"],
                row["losses"],
                row["cause"],
            )
            for row in rows
        }
        assert found == expected

    def attempts_agree(self, rows: list[dict[str, Any]]) -> None:
        found: dict[UUID, list[str]] = {}
        for row in rows:
            found.setdefault(row["execution_id"], []).append(row["outcome"])
            assert row["attempt"] == len(found[row["execution_id"]])
        expected = {
            self.execution_ids[one.number]: one.outcomes for one in self.model.executions if one.outcomes
        }
        assert found == expected
        # One token stands for all that one claim took, and never for two attempts of one execution.
        leases = [(row["execution_id"], row["token"]) for row in rows]
        leases += [(claim.execution_id, claim.token) for claim in self.held.values()]
        assert len(leases) == len(set(leases))
        for one in self.model.executions:
            assert len(one.outcomes) == one.attempt - (one.state == "running")

    def letters_agree(self, rows: list[dict[str, Any]]) -> None:
        replays = {one.source: one for one in self.model.executions if one.source is not None}
        expected = {
            self.execution_ids[one.number]: (
                one.letter,
                one.reason,
                self.execution_ids[replays[one].number] if one in replays else None,
            )
            for one in self.model.letters()
        }
        assert {
            row["execution_id"]: (row["status"], row["reason"], row["replayed_as"]) for row in rows
        } == expected
        waiting = {str(self.job_ids[one.job.number]) for one in self.model.letters("waiting")}
        alerts = self.do(
            self.stage.db.fetch(
                "select subject from detent.alerts where kind = 'dead_letter' and resolved_at is null"
            )
        )
        assert sorted(row["subject"] for row in alerts) == sorted(waiting)

    def jobs_agree(self, told: dict[str, list[dict[str, Any]]]) -> None:
        ends = {row["job_id"]: row["status"] for row in told["job_ends"]}
        assert ends == {self.job_ids[job.number]: job.ended for job in self.model.jobs if job.ended}
        standings = self.do(self.standings())
        fires: dict[UUID, list[dict[str, Any]]] = {}
        for row in told["fires"]:
            fires.setdefault(row["job_id"], []).append(row)
        for job in self.model.jobs:
            job_id = self.job_ids[job.number]
            standing = standings[job_id]
            assert (standing.job.status, standing.timer_status) == (self.model.status_of(job), job.timer)
            assert (standing.due_at is None) == (job.next_due is None)
            self.ledger_agrees(job, fires.get(job_id, []))

    async def standings(self) -> Any:
        async with self.stage.db.connection() as connection:
            return await read_jobs(connection, TENANT, self.job_ids)

    def ledger_agrees(self, job: Job, rows: list[dict[str, Any]]) -> None:
        """Every instant that is decided is decided once: fired, or in one range of skipped ones."""
        fired = [row["execution_id"] for row in rows if row["decision"] in ("fired", "fired_late")]
        expected = [
            self.execution_ids[one.number]
            for one in self.model.executions
            if one.job is job and one.cause == "schedule" and not one.taken_back
        ]
        assert sorted(fired) == sorted(expected)
        assert len(fired) == job.fired
        assert sum(row["instants"] or 0 for row in rows if row["execution_id"] is None) == job.skipped


def open_ones(story: SameStory) -> int:
    return len(story.model.in_state(*OPEN))


def pick(choices: list[T], place: int) -> T:
    return choices[place % len(choices)]


def turn(one: Execution) -> tuple[int, int]:
    return one.job.klass, one.order
