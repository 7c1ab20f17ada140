"""After the faults: catch up, start nothing new, and let everything that is open end."""

from __future__ import annotations

import time

from customer import Acknowledged
from killing import Systems
from story import ask


def caught_up(systems: Systems) -> bool:
    """Whether nothing is overdue."""
    late = "select count(*) from detent.timers where status = 'scheduled' and due_at < clock_timestamp()"
    return bool(ask(systems.database, late) == 0)


def pause_recurring(systems: Systems, owed: list[Acknowledged]) -> float:
    """No more fires from now on; when that was asked for."""
    paused_at = time.time()
    for job in owed:
        if job.recurring:
            systems.api.insist("POST", f"/jobs/{job.job_id}/pause")
    return paused_at


def fleet_is(systems: Systems, workers: int) -> bool:
    """Whether these are all the workers there are, and each has been heard of."""
    present = """select count(*) = $1::integer and bool_and(beat > 0)
                 from detent.workers where status in ('live', 'draining')"""
    return bool(ask(systems.database, present, workers))


def nothing_open(systems: Systems) -> bool:
    waiting = """select (select count(*) from detent.live)
                      + (select count(*) from detent.timers where status = 'scheduled')"""
    return bool(ask(systems.database, waiting) == 0)
