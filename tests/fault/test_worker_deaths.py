"""kill -9 of a worker at each stage of an attempt: what was not recorded runs again, what was recorded does not."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import pytest
from customer import Acknowledged, Orders
from killing import Systems
from settling import fleet_is
from systems import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

LEASE = 2.0


def closed(systems: Systems, job: Acknowledged) -> dict[str, Any]:
    def look() -> Any:
        found = systems.api.all(f"/jobs/{job.job_id}/executions")
        return next((one for one in found if one["finished_at"]), None)

    execution = until(look, 30, "the end of its execution")
    detail, _ = systems.api.insist("GET", f"/executions/{execution['execution_id']}")
    return dict(detail)


def starts(systems: Systems, execution: dict[str, Any]) -> list[tuple[int, int]]:
    """Attempt and token of each start that was witnessed."""
    lines = systems.witness.lines()
    mine = [line for line in lines if str(line.execution_id) == execution["execution_id"]]
    return [(line.attempt, line.token) for line in mine if line.event == "start"]


def test_only_what_was_not_recorded_runs_again(systems: Systems, dice: int) -> None:
    systems.start().ready()
    orders = Orders(f"{dice}-deaths", systems.witness.path)

    claimed = systems.api.create(orders.plain("fault.dies", when="before"))
    execution = closed(systems, claimed)
    assert [one["outcome"] for one in execution["attempts"]] == ["worker_lost", "succeeded"]
    assert [attempt for attempt, _ in starts(systems, execution)] == [2]

    until(lambda: fleet_is(systems, 1), 20, "a fleet of one")
    running = systems.api.create(orders.plain("fault.looped", long_once=600))
    until(lambda: systems.witness.lines()[-1].event == "start", 20, "its start")
    os.kill(systems.witness.lines()[-1].pid, signal.SIGKILL)
    execution = closed(systems, running)
    assert [one["outcome"] for one in execution["attempts"]] == ["worker_lost", "succeeded"]
    (first, second) = starts(systems, execution)
    assert (first[0], second[0]) == (1, 2)
    assert second[1] > first[1], "the second attempt has a newer token"

    until(lambda: fleet_is(systems, 1), 20, "a fleet of one")
    done = systems.api.create(orders.plain("fault.dies", when="after"))
    execution = closed(systems, done)
    assert [one["outcome"] for one in execution["attempts"]] == ["worker_lost", "succeeded"]
    assert [attempt for attempt, _ in starts(systems, execution)] == [1, 2]

    until(lambda: fleet_is(systems, 1), 20, "a fleet of one")
    reported = systems.api.create(orders.plain("fault.looped"))
    before = closed(systems, reported)
    (worker,) = systems.roles()["worker"]
    os.kill(worker, signal.SIGKILL)
    until(lambda: fleet_is(systems, 1), 20, "a fleet of one")
    time.sleep(2 * LEASE)  # not a wait: nothing must happen in it
    assert closed(systems, reported) == before
    assert [attempt for attempt, _ in starts(systems, before)] == [1]
    systems.stop()
