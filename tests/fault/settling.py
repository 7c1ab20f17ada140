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


def shards_are_shared(systems: Systems) -> bool:
    """Whether each shard has an owner that lives, and each node has some."""
    shared = """select count(*) = 256 and count(distinct n.node_id) = $1::integer from detent.shard_leases s
                join detent.nodes n on n.node_id = s.node_id and n.ended_at is null
                 and n.beat_at > clock_timestamp() - interval '2 seconds'"""
    return bool(ask(systems.database, shared, systems.schedulers))


def open_now(systems: Systems) -> int:
    """Executions and timers that are not over."""
    waiting = """select (select count(*) from detent.live)
                      + (select count(*) from detent.timers where status = 'scheduled')"""
    return int(ask(systems.database, waiting))


def until_nothing_is_open(systems: Systems, patience: float) -> None:
    """However much there is to catch up with, it must get less all the time."""
    least, deadline = open_now(systems), time.monotonic() + patience
    while least:
        time.sleep(0.02)
        left = open_now(systems)
        if left < least:
            least, deadline = left, time.monotonic() + patience
        assert time.monotonic() < deadline, f"none of {least} that are open ended in {patience:g} s"
