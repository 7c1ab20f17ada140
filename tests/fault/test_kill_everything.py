"""kill -9 of everything in the middle of a stream of jobs, again and again; then every promise is checked."""

from __future__ import annotations

import random
import sys
import time

import pytest
from checker import differences
from customer import Acknowledged, Customers, Orders
from killing import Systems
from settling import caught_up, nothing_open, pause_recurring
from story import read_story
from systems import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

SETTLE_SECONDS = 45.0


def test_nothing_is_lost_or_doubled_when_everything_is_killed(systems: Systems, seed: int) -> None:
    torment(systems, seed, rounds=3)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("offset", range(1, 5))
def test_nothing_is_lost_or_doubled_over_many_rounds(systems: Systems, seed: int, offset: int) -> None:
    torment(systems, seed + offset, rounds=10)


def torment(systems: Systems, seed: int, rounds: int) -> None:
    """Warm up, kill and start again, settle, check, and leave."""
    chance = random.Random(seed)
    systems.start("--slots", "20").ready()
    owed = recurring_jobs(systems, seed)
    customers = Customers(systems.api, seed, systems.witness.path)
    customers.start()
    try:
        for number in range(rounds):
            time.sleep(chance.uniform(1.0, 3.5))  # not a wait: when to kill is what the seed decides
            systems.kill_everything(chance, programs=chance.random() < 0.5)
            if number % 3 == 1:  # and once more before it is up again
                systems.start("--slots", "20")
                time.sleep(chance.uniform(0.3, 2.5))
                systems.kill_everything(chance, programs=True)
            systems.start("--slots", "20").ready()
        time.sleep(chance.uniform(0.5, 1.5))
    finally:
        owed += customers.stop()
    until(lambda: caught_up(systems), 20, "the catching up with all that was due")
    paused_at = pause_recurring(systems, owed)
    until(lambda: nothing_open(systems), SETTLE_SECONDS, "the end of all that was open")
    story = read_story(systems.database, systems.api, owed, paused_at, systems.witness.lines())
    tables = story.tables
    losses = sum(row["losses"] for row in tables["executions"])
    print(
        f"{len(owed)} jobs, {sum(job.tries > 1 for job in owed)} of them asked for again,"
        f" {len(tables['fires'])} ledger rows, {len(tables['executions'])} executions,"
        f" {losses} attempts lost with their worker"
    )
    found = differences(story)
    assert not found, f"{len(found)} differences:\n" + "\n".join(found[:40])
    assert losses > 0, "nothing ran when everything was killed: this run proved nothing"
    runs_on_time(systems, seed)
    systems.stop()


def recurring_jobs(systems: Systems, seed: int) -> list[Acknowledged]:
    orders = Orders(f"{seed}-recurring", systems.witness.path)
    bodies = [*(orders.recurring() for _ in range(5)), *(orders.minutely() for _ in range(2))]
    return [systems.api.create(body) for body in bodies]


def runs_on_time(systems: Systems, seed: int) -> None:
    """A job that is new at the end is not held up by anything that happened before."""
    orders = Orders(f"{seed}-fresh", systems.witness.path)
    job = systems.api.create(orders.plain("fault.looped", delay=1))
    until(
        lambda: systems.api.call("GET", f"/jobs/{job.job_id}")["status"] == "completed", 10, "the fresh job"
    )
    (fire,) = systems.api.all(f"/jobs/{job.job_id}/fires")
    (execution,) = systems.api.all(f"/jobs/{job.job_id}/executions")
    assert fire["decision"] == "fired"
    assert execution["attempt"] == 1
    assert 0 <= execution["lateness_ms"] < 1000
