"""One part dies, the others go on: the same system through the death of each of its processes in turn.

The tests share one system, which is cheaper and harder on it: what an earlier death left behind would show
in a later test, and the last one checks all that happened against every promise.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from checker import differences
from customer import Acknowledged, Orders
from killing import Systems
from settling import caught_up, fleet_is, pause_recurring, until_nothing_is_open
from story import ask, read_story
from systems import until
from witness import Line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

WORKERS = 2
LEASE = 2.0
# A rescue: the lease, and what the rescuer's look and the worker's last beat add to it.
RESCUED_WITHIN = LEASE + 3.0
FIRING_WITHIN = 6.0
BACK_WITHIN = 15.0


@dataclass
class Scene:
    """The one system, and what it owes by now."""

    systems: Systems
    orders: Orders
    owed: list[Acknowledged] = field(default_factory=list)
    zombies: set[int] = field(default_factory=set)

    def create(self, body: dict[str, Any]) -> Acknowledged:
        self.owed.append(self.systems.api.create(body))
        return self.owed[-1]

    def ask(self, query: str, *args: Any) -> Any:
        return ask(self.systems.database, query, *args)

    def started(self, job: Acknowledged, attempt: int, seconds: float) -> Line:
        """The witness's line of an attempt's start."""
        return self._witnessed("start", job, attempt, seconds)

    def ended(self, job: Acknowledged, attempt: int, seconds: float) -> Line:
        return self._witnessed("done", job, attempt, seconds)

    def _witnessed(self, event: str, job: Acknowledged, attempt: int, seconds: float) -> Line:
        def look() -> list[Line]:
            executions = {UUID(row["execution_id"]) for row in self._executions(job)}
            lines = [line for line in self.systems.witness.lines() if line.execution_id in executions]
            return [line for line in lines if (line.event, line.attempt) == (event, attempt)]

        return until(look, seconds, f"the {event} of attempt {attempt}")[0]

    def _executions(self, job: Acknowledged) -> list[Any]:
        return self.systems.api.all(f"/jobs/{job.job_id}/executions")

    def outcomes(self, job: Acknowledged, seconds: float = 10) -> list[str]:
        """The attempts of a one-time job's execution, once it is closed."""

        def closed() -> Any:
            return next((one for one in self._executions(job) if one["finished_at"]), None)

        execution = until(closed, seconds, "the end of its execution")
        detail, _ = self.systems.api.insist("GET", f"/executions/{execution['execution_id']}")
        return [attempt["outcome"] for attempt in detail["attempts"]]

    def ticks(self) -> int:
        return int(self.ask("select count(*) from detent.fires where job_id = $1", self.owed[0].job_id))

    def ticks_on(self, seconds: float) -> None:
        before = self.ticks()
        until(lambda: self.ticks() > before, seconds, "the next fire")

    def whole_again(self) -> None:
        """Every role runs, and the workers are in the fleet."""
        until(lambda: len(self.systems.roles().get("worker", ())) == WORKERS, 15, "the return of the workers")
        until(lambda: fleet_is(self.systems, WORKERS), 15, "a fleet of two")


@pytest.fixture(scope="module")
def scene(lasting: Systems, dice: int) -> Iterator[Scene]:
    lasting.start("--workers", str(WORKERS), "--slots", "5").ready()
    scene = Scene(lasting, Orders(f"{dice}-single", lasting.witness.path))
    scene.create(scene.orders.recurring())
    scene.ticks_on(10)
    yield scene


def test_the_work_of_a_killed_worker_is_taken_back_and_run_again(scene: Scene) -> None:
    job = scene.create(scene.orders.plain("fault.looped", long_once=600))
    worker = scene.started(job, 1, 10).pid
    os.kill(worker, signal.SIGKILL)
    killed_at = time.time()
    again = scene.started(job, 2, 20)
    assert again.at - killed_at < RESCUED_WITHIN
    assert again.pid != worker
    assert scene.outcomes(job) == ["worker_lost", "succeeded"]
    scene.whole_again()


def test_the_late_finish_of_a_worker_that_was_given_up_changes_nothing(scene: Scene) -> None:
    job = scene.create(scene.orders.plain("fault.threaded", long_once=0.3))
    worker = scene.started(job, 1, 10).pid
    os.kill(worker, signal.SIGSTOP)
    scene.zombies.add(worker)
    try:
        scene.started(job, 2, 20)
        assert scene.outcomes(job) == ["worker_lost", "succeeded"]
        before = scene.systems.api.call("GET", f"/executions/{scene._executions(job)[0]['execution_id']}")
    finally:
        os.kill(worker, signal.SIGCONT)
    scene.ended(job, 1, 10)
    until(lambda: any("no longer ours" in line for line in scene.systems.up.err), 10, "its being told")
    scene.whole_again()
    assert scene.systems.api.call("GET", f"/executions/{before['execution_id']}") == before


def test_fires_go_on_soon_after_the_scheduler_was_killed(scene: Scene) -> None:
    scene.systems.kill("scheduler")
    scene.ticks_on(FIRING_WITHIN)
    job = scene.create(scene.orders.plain("fault.looped"))
    scene.started(job, 1, FIRING_WITHIN)


def test_a_killed_server_is_back_soon_and_fires_do_not_wait_for_it(scene: Scene) -> None:
    before = scene.ticks()
    killed_at = time.monotonic()
    scene.systems.kill("api")
    job = scene.create(scene.orders.plain("fault.threaded"))
    assert time.monotonic() - killed_at < BACK_WITHIN
    assert scene.outcomes(job) == ["succeeded"]
    missed = time.monotonic() - killed_at - 1.5
    assert scene.ticks() - before >= int(missed)


def test_a_killed_postgresql_costs_no_process_and_no_attempt(scene: Scene) -> None:
    running = scene.create(scene.orders.plain("fault.looped", seconds=4))
    waiting = scene.create(scene.orders.plain("fault.threaded", delay=1))
    scene.started(running, 1, 10)
    roles = scene.systems.roles()
    scene.systems.kill("postgres")
    killed_at = time.monotonic()
    after = scene.create(scene.orders.plain("fault.looped"))
    assert time.monotonic() - killed_at < BACK_WITHIN
    for job in (after, waiting, running):
        assert scene.outcomes(job, BACK_WITHIN) == ["succeeded"]
    scene.ticks_on(FIRING_WITHIN)
    now = scene.systems.roles()
    assert now.pop("postgres") != roles.pop("postgres")
    assert now == roles


def test_a_killed_backend_takes_all_connections_along_and_nothing_else(scene: Scene) -> None:
    """PostgreSQL then ends every other session too, recovers, and goes on."""
    roles = scene.systems.roles()
    running = scene.create(scene.orders.plain("fault.threaded", seconds=3))
    scene.started(running, 1, 10)
    sessions = "select min(pid) from pg_stat_activity where application_name = 'detent scheduler'"
    pid = scene.ask(sessions)
    os.kill(pid, signal.SIGKILL)
    after = scene.create(scene.orders.plain("fault.looped"))
    for job in (after, running):
        assert scene.outcomes(job, BACK_WITHIN) == ["succeeded"]
    scene.ticks_on(FIRING_WITHIN)
    assert scene.systems.roles() == roles


def test_work_is_taken_back_also_when_the_keeper_died_with_the_worker(scene: Scene) -> None:
    job = scene.create(scene.orders.plain("fault.looped", long_once=600))
    worker = scene.started(job, 1, 10).pid
    scene.systems.kill("keeper")
    os.kill(worker, signal.SIGKILL)
    scene.started(job, 2, RESCUED_WITHIN + 5)
    assert scene.outcomes(job) == ["worker_lost", "succeeded"]
    scene.whole_again()


def test_after_all_these_deaths_every_account_agrees_and_nothing_is_left(scene: Scene) -> None:
    systems = scene.systems
    until(lambda: caught_up(systems), 20, "the catching up with all that was due")
    paused_at = pause_recurring(systems, scene.owed)
    until_nothing_is_open(systems, 30)
    story = read_story(
        systems.database, systems.api, scene.owed, paused_at, systems.witness.lines(),
        workers=WORKERS, zombies=frozenset(scene.zombies),
    )  # fmt: skip
    assert differences(story) == []
    assert systems.complaints() == []
    systems.stop()


def test_children_end_with_a_killed_supervisor_and_the_next_start_does_not_wait(systems: Systems) -> None:
    systems.start("--grace", "1").ready()
    orders = Orders("supervisor", systems.witness.path)
    python = systems.api.create(orders.plain("fault.looped", long_once=600))
    shell = systems.api.create({**orders.plain(""), "task": {"kind": "shell", "command": SLEEPS_ONCE}})
    running = "select count(*) from detent.live where state = 'running'"
    until(lambda: ask(systems.database, running) == 2, 10, "the start of both")
    orphans = systems.family()
    os.kill(systems.up.process.pid, signal.SIGKILL)
    systems.up.process.wait()
    systems.start("--grace", "1").ready()
    completed = "select count(*) from detent.job_ends where status = 'completed' and job_id = any($1)"
    both = [python.job_id, shell.job_id]
    until(lambda: ask(systems.database, completed, both) == 2, 20, "the end of both")
    until(lambda: not systems.running(orphans), 15, "the end of all children")
    assert systems.complaints() == []
    systems.stop()


SLEEPS_ONCE = '[ "$DETENT_ATTEMPT" -gt 1 ] || sleep 600'
