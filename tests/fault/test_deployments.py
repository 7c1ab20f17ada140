"""Workers that are replaced under load: what they cannot finish is handed back, and nothing is counted."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest
from killing import Systems
from receiver import Receiver
from rig import Fault, differences, redeployed, suffer
from story import Story, ask
from systems import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def until_replaced(systems: Systems, times: int, seconds: float) -> Iterator[Fault]:
    """A deployment every three seconds, until so many workers have left in order and so long has passed. One that
    is just being started cannot be replaced, and on a busy machine a start takes its time.
    """
    stopped = "select count(*) from detent.workers where status = 'stopped'"
    end = time.monotonic() + seconds
    for _ in range(20 * times):
        started = time.monotonic()
        yield redeployed
        time.sleep(max(0.0, 3.0 - (time.monotonic() - started)))  # not a wait: how often is what is tested
        if time.monotonic() > end and ask(systems.database, stopped) >= times:
            return


def replaced(systems: Systems, seed: int, times: int, seconds: float) -> Story:
    with Receiver() as receiver, systems.explained():
        story = suffer(systems, seed, until_replaced(systems, times, seconds), receiver)
        assert differences(story) == []
        in_flight = "select coalesce(sum(in_flight), 0) from detent.workers where status = 'live'"
        until(lambda: ask(systems.database, in_flight) == 0, 10, "an idle fleet")
        systems.stop()
    return story


def check(story: Story, times: int) -> None:
    # The start of a system that is killed at once may take a worker along; the replacements must not.
    outcomes = [row["outcome"] for row in story.tables["attempts"]]
    assert outcomes.count("worker_lost") == 0
    stopped = [row for row in story.tables["workers"] if row["status"] == "stopped"]
    assert len(stopped) >= times
    planned = sum(job.body["max_retries"] + 1 for job in story.owed if job.ends == "dead_lettered")
    assert outcomes.count("failed") >= planned  # what was told to fail did, and nothing else was counted


def test_a_worker_that_is_replaced_every_three_seconds_loses_nothing(systems: Systems, dice: int) -> None:
    check(replaced(systems, dice, 3, 15.0), 3)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_twenty_deployments_over_two_minutes_lose_nothing(systems: Systems, dice: int) -> None:
    check(replaced(systems, dice + 1, 20, 120.0), 20)
