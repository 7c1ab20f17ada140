"""Claims that came ahead of their instant: held, started at it, and let go of like any other."""

from __future__ import annotations

import time

import pytest
from scripted_port import ScriptedPort, ScriptedPulse, claim_of, until, working

from detent.execute import worker as workers
from detent.execute.appetite import Appetite
from detent.execute.registry import Registry
from detent.execute.staged import Staging
from detent.model.work import Claim, Orders, Staged

MS = 1_000_000
FAR = 600_000 * MS


@pytest.fixture
def ran() -> list[int]:
    """When attempts started, in monotonic nanoseconds."""
    return []


@pytest.fixture
def tasks(ran: list[int]) -> Registry:
    registry = Registry()

    async def note():
        ran.append(time.monotonic_ns())

    registry.register("note", note)
    return registry


def staged(wait_ns: int, count: int = 1) -> list[Staged]:
    at = time.monotonic_ns() + wait_ns
    return [Staged(claim_of("note"), at) for _ in range(count)]


def ids(claims: list[Claim]) -> set:
    return {claim.execution_id for claim in claims}


async def test_what_was_claimed_ahead_starts_at_its_instant_and_never_before(tasks, ran):
    port = ScriptedPort()
    port.ahead = [one for ms in (150, 100, 160, 120) for one in staged(ms * MS)]
    instants = sorted(one.start_ns for one in port.ahead)
    async with working(port, tasks, slots=8):
        await until(lambda: len(port.finished) == 4)
    late = [started - instant for started, instant in zip(ran, instants, strict=True)]
    assert min(late) >= 0
    assert min(late) < 5 * MS  # by a loop's own timer, or a poll, none would be


async def test_a_thousand_of_one_instant_start_together(tasks, ran):
    port = ScriptedPort()
    port.ahead = staged(150 * MS, 1000)
    instant, claims = port.ahead[0].start_ns, [one.claim for one in port.ahead]
    async with working(port, tasks, slots=2000) as worker:
        await until(lambda: worker.in_flight == 1000)
        await until(lambda: len(port.finished) == 1000)
    assert min(ran) >= instant
    assert len(ran) == 1000
    assert max(port.ahead_limits) == workers.AHEAD_BATCH  # in parts, or the loop would stand still meanwhile
    assert ids([finished.claim for finished in port.finished]) == ids(claims)


async def test_half_of_the_free_slots_stay_for_what_is_due(tasks):
    port = ScriptedPort([claim_of("note") for _ in range(3)])
    port.ahead = staged(FAR, 20)
    async with working(port, tasks, slots=8) as worker:
        await until(lambda: worker.in_flight == 4 and len(port.finished) == 3)
        assert max(port.ahead_limits) <= 4
        assert len(port.ahead) == 16
        port.waiting.extend(claim_of("note") for _ in range(10))
        worker.wake()
        await until(lambda: len(port.finished) == 13)


def test_no_more_is_claimed_ahead_than_into_half_of_the_free_slots():
    appetite = Appetite(10)
    assert appetite.ahead(0, 0) == 5
    assert appetite.ahead(0, 5) == 0
    assert appetite.ahead(4, 1) == 2
    assert appetite.ahead(10, 0) == 0
    assert appetite.ahead(12, 3) == 0
    assert Appetite(1).ahead(0, 0) == 0


async def test_what_found_no_room_is_claimed_when_it_is_due(tasks, ran):
    port = ScriptedPort()
    port.ahead = staged(200 * MS, 2)
    instant = port.ahead[0].start_ns
    worker: workers.Worker

    async def claim(worker_id, pools, limit):
        due = [one for one in port.ahead if one.start_ns <= time.monotonic_ns()][:limit]
        port.ahead = port.ahead[len(due) :]
        return [one.claim for one in due]

    port.claim = claim  # type: ignore[method-assign]
    async with working(port, tasks, slots=1) as worker:
        worker.every = 60.0  # no poll helps
        await until(lambda: len(port.finished) == 2)
    assert min(ran) >= instant


async def test_staged_claims_are_named_in_heartbeats(tasks):
    port, pulse = ScriptedPort(), ScriptedPulse()
    port.ahead = staged(FAR, 3)
    async with working(port, tasks, pulse, slots=8) as worker:
        await until(lambda: worker.in_flight == 3)
        await until(lambda: pulse.beats and pulse.beats[-1][1] == 3)


async def test_a_staged_claim_that_is_cancelled_never_starts_and_says_so(tasks, ran):
    port, pulse = ScriptedPort(), ScriptedPulse()
    port.ahead = staged(FAR, 2)
    first, second = (one.claim for one in port.ahead)
    async with working(port, tasks, pulse, slots=8) as worker:
        await until(lambda: worker.in_flight == 2)
        pulse.orders = Orders(
            True, False, cancel=((first.execution_id, 1),), stale=((second.execution_id, 1),)
        )
        await until(lambda: worker.in_flight == 0)
        await until(lambda: len(port.finished) == 1)
        pulse.orders = Orders(True, False)
    [finished] = port.finished
    assert (finished.claim, finished.outcome, finished.started_at) == (first, "cancelled", None)
    assert ran == [] and port.released == []


async def test_staged_claims_go_back_when_the_worker_stops(tasks, ran):
    port = ScriptedPort()
    port.ahead = staged(FAR, 3)
    waiting = [one.claim for one in port.ahead]
    async with working(port, tasks, slots=8) as worker:
        await until(lambda: worker.in_flight == 3)
    assert ids(port.released) == ids(waiting)
    assert ran == [] and port.finished == []


async def test_staged_claims_go_back_when_the_worker_drains(tasks):
    port, pulse = ScriptedPort(), ScriptedPulse()
    port.ahead = staged(FAR, 3)
    async with working(port, tasks, pulse, slots=8) as worker:
        await until(lambda: worker.in_flight == 3)
        pulse.orders = Orders(True, True)
        await until(lambda: len(port.released) == 3)
        assert worker.in_flight == 0


async def test_staged_claims_do_not_go_back_for_lack_of_movement(tasks, monkeypatch):
    monkeypatch.setattr(workers, "PREFETCH_PATIENCE", 0.0)
    port = ScriptedPort()
    port.ahead = staged(FAR, 3)
    async with working(port, tasks, slots=8) as worker:
        await until(lambda: worker.in_flight == 3)
        for ticks in (3, 4, 5):
            worker.wake()
            await until(lambda ticks=ticks: len(port.limits) >= ticks)
        assert worker.in_flight == 3 and port.released == []


async def test_staged_claims_of_a_worker_that_was_given_up_are_dropped(tasks, ran):
    port, pulse = ScriptedPort(), ScriptedPulse()
    port.ahead = staged(300 * MS, 3)
    async with working(port, tasks, pulse, slots=8) as worker:
        await until(lambda: worker.in_flight == 3)
        assert worker.worker_id is not None
        pulse.lost.add(worker.worker_id)
        await until(lambda: len(port.registered) == 2)
        assert worker.in_flight == 0
        again = claim_of("note")
        port.ahead = [Staged(again, time.monotonic_ns() + 600 * MS)]
        worker.wake()
        await until(lambda: len(port.finished) == 1)
    assert len(ran) == 1 and port.released == []


async def test_instants_pass_in_order_whatever_order_they_came_in():
    started: list[list[Claim]] = []
    staging = Staging(started.append)
    now = time.monotonic_ns()
    claims = [claim_of("note") for _ in range(5)]
    instants = [now + ms * MS for ms in (30, 10, 20, 10, 40)]
    staging.add([Staged(*pair) for pair in zip(claims, instants, strict=True)])
    assert staging.withdraw({(claims[2].execution_id, 1)}) == [claims[2]]
    assert len(staging) == 4
    await until(lambda: not len(staging))
    staging.close()
    flat = [claim for group in started for claim in group]
    assert [claims.index(claim) for claim in flat] == [1, 3, 0, 4]
