"""Clocks that jump: the database's own, and a node's."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from customer import Api, Orders
from faking import FakedServer, in_another_hour, library
from killing import LEASE
from story import ask
from systems import Up, until
from witness import Witness

from detent.api.decide import pause
from detent.runtime.clock import Clock
from detent.store import timers
from detent.store.database import Database
from detent.store.embedded import discard, temporary_folder
from detent.store.jobs import change_job
from detent.store.migrate import migrate
from stage import MINUTE, SECOND, TENANT, Stage

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="fakes clocks with LD_PRELOAD"),
    pytest.mark.timeout(240),
]

HERE = Path(__file__).parent
STEP = 600
ROLES = 4


@pytest.fixture(autouse=True)
def faketime() -> None:
    if library() is None:
        if os.environ.get("CI") == "true":
            pytest.fail("libfaketime is not installed, and CI skips nothing")
        pytest.skip("libfaketime is not installed")


@pytest.fixture
def server() -> Iterator[FakedServer]:
    with FakedServer() as running:
        yield running


class Scene:
    def __init__(self, up: Up, url: str, notes: Path) -> None:
        self.up, self.url = up, url
        self.api = Api(up.url)
        self.witness = Witness(notes / "witness")
        self.orders = Orders("clock", self.witness.path)

    def ask(self, query: str, *args: Any) -> Any:
        return ask(self.url, query, *args)

    def fires(self) -> int:
        return int(self.ask("select count(*) from detent.fires where execution_id is not null"))

    def alerted(self, kind: str) -> bool:
        overview, _ = self.api.insist("GET", "/stats/overview")
        return any(alert["kind"] == kind for alert in overview["alerts"])

    def confirmed(self, times: int) -> bool:
        """Whether every role has believed so many jumps."""
        return sum("clock is confirmed" in line for line in self.up.err) >= times * ROLES

    def fresh_job_runs_on_time(self) -> None:
        job = self.api.create(self.orders.plain("fault.looped", delay=1))
        path = f"/jobs/{job.job_id}/executions"
        (execution,) = until(lambda: [e for e in self.api.all(path) if e["finished_at"]], 15, "a fresh job")
        assert execution["status"] == "succeeded"
        assert 0 <= execution["lateness_ms"] < 1000

    def nothing_happened_twice(self) -> None:
        twice = """select count(*) from (select job_id, scheduled_for from detent.executions
                   union all select job_id, scheduled_for from detent.live) e
                   group by job_id, scheduled_for having count(*) > 1"""
        assert self.ask(twice) is None
        assert self.ask("select count(*) from detent.workers where status = 'lost'") == 0
        assert self.ask("select coalesce(sum(losses), 0) from detent.executions") == 0
        starts = Counter(line.execution_id for line in self.witness.lines() if line.event == "start")
        assert set(starts.values()) <= {1}


def test_a_database_clock_that_steps_is_doubted_and_nothing_happens_twice(
    server: FakedServer, tmp_path: Path
) -> None:
    data = temporary_folder("detent-clock-up-")
    up = Up(data, ("--database", server.url, "--import", "witness", *LEASE), HERE)
    try:
        scene = Scene(up.ready(), server.url, tmp_path)
        for _ in range(3):
            scene.api.create(scene.orders.recurring())
        until(lambda: scene.fires() >= 6, 20, "the first fires")

        server.step(STEP)
        until(lambda: scene.alerted("clock_jump"), 10, "the alert")
        before = scene.fires()
        time.sleep(2)  # not a wait: nothing must happen in it
        assert scene.fires() == before
        until(lambda: scene.fires() > before, 30, "firing by the new time")
        until(lambda: scene.confirmed(1), 20, "the agreement of all processes")
        until(lambda: not scene.alerted("clock_jump"), 10, "the end of the alert")
        ranges = scene.ask("select count(*) from detent.fires where decision = 'skipped_misfire'")
        assert ranges == 3  # one range for each job, not ten minutes of rows
        scene.fresh_job_runs_on_time()
        scene.nothing_happened_twice()

        server.step(0)
        until(lambda: scene.alerted("clock_jump"), 10, "the alert of the step back")
        until(lambda: scene.confirmed(2), 30, "the agreement of all processes")
        until(lambda: not scene.alerted("clock_jump"), 10, "its end")
        scene.fresh_job_runs_on_time()
        scene.nothing_happened_twice()
    finally:
        up.end(seconds=60)
        discard(data)


def test_a_node_whose_clock_is_an_hour_off_fires_and_runs_on_time(tmp_path: Path) -> None:
    data = temporary_folder("detent-clock-node-")
    up = Up(data, ("--import", "witness", *LEASE), HERE, in_another_hour("+3600"))
    try:
        up.ready()
        from detent.store.embedded import find_running

        url = find_running(data)
        assert url is not None
        scene = Scene(up, url, tmp_path)
        until(lambda: scene.alerted("clock_skew"), 15, "the alert")
        true_now = time.time()
        scene.fresh_job_runs_on_time()
        recorded = scene.ask("select extract(epoch from max(started_at)) from detent.executions")
        assert abs(float(recorded) - true_now) < 60
        scene.nothing_happened_twice()
    finally:
        up.end(seconds=60)
        discard(data)


async def set_up(server: FakedServer, name: str) -> Stage:
    """A stage on that server, whose clock is read anew."""
    await migrate(server.url)
    db = await Database.open(server.url, size=2, application_name=name)
    hot = await Database.open(server.url, size=2, application_name=name, hot=True)
    stage = Stage(db, hot, Clock())
    await read_clock(stage)
    return stage


async def read_clock(stage: Stage) -> None:
    stage.clock = Clock()
    await stage.clock.sample(lambda: timers.clock_us(stage.hot))


async def pause_both(stage: Stage, jobs: list[UUID]) -> None:
    for job_id in jobs:
        await change_job(stage.db, TENANT, job_id, pause, stage.now(), None)


async def test_a_staged_fire_is_taken_back_until_its_instant_whatever_the_clock_does(
    server: FakedServer,
) -> None:
    server.step(STEP)
    stage = await set_up(server, "detent test")
    try:
        fired = await stage.every(3600, first_ago=SECOND)
        staged = await stage.every(3600, first_ago=-MINUTE)
        assert await stage.fire_ahead() == 2
        server.step(0)  # both instants are ten minutes ahead now; one of them was there already
        await read_clock(stage)
        assert await stage.fire_ahead() == 0
        await pause_both(stage, [fired, staged])
        assert len(await stage.rows("live", fired)) == len(await stage.rows("fires", fired)) == 1
        assert await stage.rows("live", staged) == await stage.rows("fires", staged) == []
    finally:
        await stage.hot.close()
        await stage.db.close()


async def test_a_staged_fire_is_a_fact_once_the_clock_has_leapt_over_its_instant(
    server: FakedServer,
) -> None:
    stage = await set_up(server, "detent test")
    try:
        jobs = [await stage.every(3600, first_ago=-MINUTE) for _ in range(2)]
        assert await stage.fire_ahead() == 2
        worker = await stage.worker()
        assert await stage.claim(worker) == []
        server.step(STEP)
        await read_clock(stage)
        await pause_both(stage, jobs)
        assert await stage.fire_ahead() == 0
        assert len(await stage.claim(worker)) == len(await stage.rows("fires")) == 2
    finally:
        await stage.hot.close()
        await stage.db.close()
