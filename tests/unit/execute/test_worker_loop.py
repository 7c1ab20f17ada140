"""The worker's loop against a scripted port."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

import pytest
from scripted_port import ScriptedPort, ScriptedPulse, claim_of, until, working

from detent.execute import crew as crews
from detent.execute.appetite import Appetite
from detent.execute.registry import Registry
from detent.model.job import ShellTask
from detent.model.work import Orders


class Tasks(Registry):
    """`nop` returns at once, `gate` waits to be let through, `hang` waits for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.running = 0
        self.most = 0
        self.gate = asyncio.Event()

        async def nop(): ...

        async def gate(ctx):
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await self.gate.wait()
            finally:
                self.running -= 1

        async def hang():
            self.running += 1
            try:
                await asyncio.sleep(600)
            finally:
                self.running -= 1

        for function in (nop, gate, hang):
            self.register(function.__name__, function)


@pytest.fixture
async def tasks() -> Tasks:
    return Tasks()


async def test_ten_thousand_attempts_are_each_recorded_once_in_few_batches(tasks):
    claims = [claim_of("nop") for _ in range(10_000)]
    port = ScriptedPort(claims)
    async with working(port, tasks, slots=100) as worker:
        await until(lambda: len(port.finished) == 10_000, 30)
        assert worker.in_flight == 0
    assert {f.claim.execution_id for f in port.finished} == {c.execution_id for c in claims}
    assert max(port.batches) <= 500
    assert len(port.batches) < 2_500
    assert 100 < max(port.limits) <= 300


async def test_no_more_attempts_run_at_once_than_there_are_slots(tasks):
    port = ScriptedPort([claim_of("gate") for _ in range(50)])
    async with working(port, tasks, slots=7) as worker:
        await until(lambda: tasks.running == 7)
        assert worker.in_flight == 7  # nothing is claimed ahead of attempts that do not end
        tasks.gate.set()
        await until(lambda: len(port.finished) == 50)
    assert tasks.most == 7


async def test_suspended_attempts_do_not_hold_up_others(tasks):
    port = ScriptedPort([*(claim_of("gate") for _ in range(3)), *(claim_of("nop") for _ in range(500))])
    async with working(port, tasks, slots=4):
        await until(lambda: len(port.finished) == 500)
        assert tasks.running == 3
        tasks.gate.set()


async def test_prefetched_work_that_finds_no_lane_goes_back_and_stays_away(tasks):
    port = ScriptedPort([claim_of("hang") for _ in range(40)])
    async with working(port, tasks, slots=10, grace=0.1) as worker:
        await until(lambda: tasks.running == 10)
        ahead = [claim_of("hang") for _ in range(3)]
        worker._crew.add(ahead)
        worker._crew.ended += 5_000  # as after a quick pace, which would prefetch again
        await until(lambda: port.released)
        assert {c.execution_id for c in ahead} <= {c.execution_id for c in port.released}
        claims = len(port.limits)
        worker.wake()
        await asyncio.sleep(0.1)
        assert worker.in_flight == 10
        assert len(port.limits) == claims


async def test_a_hint_starts_work_long_before_the_next_poll(tasks):
    port = ScriptedPort()
    async with working(port, tasks) as worker:
        await until(lambda: port.limits)
        port.waiting.append(claim_of("nop"))
        started = time.monotonic()
        worker.wake()
        await until(lambda: port.finished)
        assert time.monotonic() - started < 0.5


async def test_without_a_hint_the_poll_finds_work(tasks):
    port = ScriptedPort()
    async with working(port, tasks):
        await until(lambda: port.limits)
        port.waiting.append(claim_of("nop"))
        await until(lambda: port.finished, 3)


async def test_an_idle_worker_is_quiet(tasks):
    port = ScriptedPort([claim_of("nop") for _ in range(5)])
    async with working(port, tasks):
        await until(lambda: len(port.finished) == 5)
        before = len(port.limits)
        await asyncio.sleep(0.5)
        assert len(port.limits) - before <= 1


async def test_one_attempt_alone_is_recorded_at_once(tasks):
    port = ScriptedPort()
    async with working(port, tasks) as worker:
        await until(lambda: port.limits)
        for _ in range(5):
            port.waiting.append(claim_of("nop"))
            worker.wake()
            await until(lambda: not port.waiting and worker.in_flight == 0 and port.finished)
    assert len(port.finished) == 5


async def test_a_store_that_is_away_costs_no_result(tasks):
    port = ScriptedPort([claim_of("nop") for _ in range(20)])
    port.outages = 4
    async with working(port, tasks):
        await until(lambda: len(port.finished) == 20)
    assert len(port.finished) == 20


async def test_while_results_pile_up_nothing_more_is_claimed(tasks, monkeypatch):
    from detent.execute import report

    monkeypatch.setattr(report, "MOST_WAITING", 30)
    port = ScriptedPort([claim_of("nop") for _ in range(1000)])
    port.outages = 10**9
    async with working(port, tasks, slots=10) as worker:
        await until(lambda: worker.worker_id and worker._reporter.full)
        await asyncio.sleep(0.1)
        claimed = 1000 - len(port.waiting)
        assert claimed <= 30 + 2 * 10
        port.outages = 0
        await until(lambda: len(port.finished) == 1000)


async def test_log_lines_survive_an_outage_in_order(tasks):
    tasks.register("talk", lambda ctx: [ctx.log(n) for n in range(100)] and None)
    port = ScriptedPort([claim_of("talk")])
    port.outages = 3
    async with working(port, tasks):
        await until(lambda: port.finished)
    assert port.text("log").split() == [str(n) for n in range(100)]


async def test_a_stale_end_is_counted_and_not_repeated(tasks, caplog):
    claims = [claim_of("nop"), claim_of("nop")]
    port = ScriptedPort(claims)
    port.stale = {claims[0].execution_id}
    async with working(port, tasks) as worker:
        await until(lambda: port.finished and worker.stale_writes)
        assert worker.stale_writes == 1
        assert worker.recorded == 1
    assert caplog.text.count("not ours any more") == 1


async def test_stale_output_tells_the_attempt_to_stop(tasks):
    seen = []

    async def talks(ctx):
        ctx.log("hello")
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(ctx.still_mine())

    tasks.register("talks", talks)
    claim = claim_of("talks")
    port = ScriptedPort([claim])
    port.stale = {claim.execution_id}
    async with working(port, tasks) as worker:
        await until(lambda: seen)
        assert seen == [False]
        await until(lambda: worker.in_flight == 0)
        assert worker.stale_writes == 1
    assert not port.finished
    assert not port.released


async def test_an_end_that_cannot_be_stored_harms_itself_only(tasks):
    claims = [claim_of("nop") for _ in range(50)]
    port = ScriptedPort(claims)
    port.poison = claims[17].execution_id
    async with working(port, tasks, slots=50) as worker:
        await until(lambda: len(port.finished) == 50)
        assert worker.stale_writes == 0
    failed = [f for f in port.finished if f.outcome != "succeeded"]
    assert [f.claim for f in failed] == [claims[17]]
    assert failed[0].error.type == "Unrecordable"


async def test_orders_cancel_what_runs_and_what_waits(tasks):
    runs, waits, other = claim_of("hang"), claim_of("hang"), claim_of("gate")
    port = ScriptedPort([runs, other])
    pulse = ScriptedPulse()
    async with working(port, tasks, pulse, slots=2) as worker:
        await until(lambda: tasks.running == 2)
        worker._crew.add([waits])
        pulse.orders = Orders(True, False, tuple((c.execution_id, c.attempt) for c in (runs, waits)))
        await until(lambda: len(port.finished) == 2)
        assert {f.claim.execution_id: f.outcome for f in port.finished} == {
            runs.execution_id: "cancelled",
            waits.execution_id: "cancelled",
        }
        tasks.gate.set()
        await until(lambda: len(port.finished) == 3)
    assert port.finished[2].outcome == "succeeded"


async def test_orders_cancel_programs_and_threads_too(tasks):
    stopped = threading.Event()

    def polite(ctx):
        while not ctx.cancelled:
            stopped.wait(0.01)
        stopped.set()

    tasks.register("polite", polite)
    claims = [claim_of(ShellTask("sleep 60")), claim_of("polite")]
    port = ScriptedPort(claims)
    pulse = ScriptedPulse()
    async with working(port, tasks, pulse) as worker:
        await until(lambda: worker.in_flight == 2)
        pulse.orders = Orders(True, False, tuple((c.execution_id, c.attempt) for c in claims))
        await until(lambda: len(port.finished) == 2)
        await until(stopped.is_set)
    assert {f.outcome for f in port.finished} == {"cancelled"}


async def test_a_lost_incarnation_drops_its_attempts_and_a_new_one_goes_on(tasks):
    port = ScriptedPort([claim_of("hang"), claim_of("hang")])
    pulse = ScriptedPulse()
    async with working(port, tasks, pulse) as worker:
        await until(lambda: tasks.running == 2)
        first = worker.worker_id
        pulse.lost.add(first)
        await until(lambda: len(port.registered) == 2)
        await until(lambda: tasks.running == 0)
        assert worker.worker_id != first
        port.waiting.append(claim_of("nop"))
        worker.wake()
        await until(lambda: port.finished)
        second = worker.worker_id
        await until(lambda: pulse.beats[-1][0] == second)
    assert [f.claim.spec.task.name for f in port.finished] == ["nop"]
    assert not port.released
    assert port.stopped == [second]


async def test_a_fleet_drain_order_stops_claims_until_it_is_lifted(tasks):
    port = ScriptedPort()
    pulse = ScriptedPulse()
    pulse.orders = Orders(True, True, ())
    async with working(port, tasks, pulse) as worker:
        await until(lambda: worker._draining)
        port.waiting.append(claim_of("nop"))
        worker.wake()
        await asyncio.sleep(0.2)
        assert not port.finished
        pulse.orders = Orders(True, False, ())
        await until(lambda: port.finished)


async def test_heartbeats_go_on_while_a_handler_blocks_the_loop(tasks):
    pulse = ScriptedPulse()
    beaten = []

    async def blocks():
        before = len(pulse.beats)
        time.sleep(0.6)
        beaten.append(len(pulse.beats) - before)

    tasks.register("blocks", blocks)
    port = ScriptedPort([claim_of("blocks")])
    async with working(port, tasks, pulse):
        await until(lambda: port.finished)
    assert beaten[0] >= 5
    assert pulse.connections == 1
    assert pulse.closed == 1


async def test_a_beat_that_fails_is_repeated_soon_on_a_new_connection(tasks):
    port = ScriptedPort([claim_of("gate")])
    pulse = ScriptedPulse()
    async with working(port, tasks, pulse) as worker:
        await until(lambda: pulse.beats and tasks.running)
        pulse.broken = True
        await until(lambda: pulse.connections >= 3)
        pulse.broken = False
        seen = len(pulse.beats)
        await until(lambda: len(pulse.beats) > seen, 2)
        tasks.gate.set()
        await until(lambda: port.finished)
        assert worker.worker_id == pulse.beats[-1][0]


async def test_without_a_beat_for_a_whole_lease_nothing_is_claimed_or_trusted(tasks):
    seen = []

    async def watches(ctx):
        seen.append(ctx)
        await tasks.gate.wait()

    tasks.register("watches", watches)
    port = ScriptedPort([claim_of("watches")])
    pulse = ScriptedPulse()
    async with working(port, tasks, pulse, lease=0.4, heartbeat=0.05) as worker:
        await until(lambda: seen)
        assert seen[0].still_mine()
        pulse.broken = True
        await until(lambda: not seen[0].still_mine())
        port.waiting.append(claim_of("nop"))
        worker.wake()
        await asyncio.sleep(0.3)
        assert len(port.waiting) == 1
        assert not seen[0].cancelled
        pulse.broken = False
        await until(lambda: not port.waiting)
        assert seen[0].still_mine()
        tasks.gate.set()
        await until(lambda: len(port.finished) == 2)


async def test_a_handler_that_ignores_its_cancellation_does_not_keep_its_slot(tasks, monkeypatch, caplog):
    monkeypatch.setattr(crews, "ABANDON_AFTER", 0.2)
    done = asyncio.Event()

    async def stubborn():
        while not done.is_set():
            try:
                await asyncio.wait_for(done.wait(), 60)
            except asyncio.CancelledError:
                pass
        return "at last"

    tasks.register("stubborn", stubborn)
    port = ScriptedPort([claim_of("stubborn", timeout=0.05), claim_of("nop")])
    async with working(port, tasks, slots=1) as worker:
        await until(lambda: len(port.finished) == 2)
        assert [f.outcome for f in port.finished] == ["timed_out", "succeeded"]
        assert worker.in_flight == 0
        done.set()
    assert len(port.finished) == 2
    assert "left to itself" in caplog.text


async def test_lanes_leave_room_for_the_rest_of_the_loop(tasks):
    async def works():
        until_at = time.monotonic() + 0.0005
        while time.monotonic() < until_at:
            pass

    tasks.register("works", works)
    port = ScriptedPort([claim_of("works") for _ in range(1500)])
    longest = 0.0
    async with working(port, tasks, slots=200):
        last = time.monotonic()
        while len(port.finished) < 1500:
            await asyncio.sleep(0)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
    assert longest < 0.1


async def test_instants_are_on_the_clock_that_was_passed_in(tasks):
    port = ScriptedPort([claim_of("nop")])
    async with working(port, tasks) as worker:
        await until(lambda: port.finished)
        worker._clock.offset_ns += 3600 * 10**9
        port.waiting.append(claim_of("nop"))
        worker.wake()
        await until(lambda: len(port.finished) == 2)
        ahead = worker._clock.now() - port.finished[1].started_at
    assert timedelta(0) <= ahead < timedelta(minutes=1)
    assert port.finished[1].started_at - port.finished[0].started_at > timedelta(minutes=59)


def test_appetite_follows_the_pace():
    slow = Appetite(10)
    assert slow.limit(100.0, 0, 0) == 10
    assert slow.limit(160.0, 1, 9) == 1
    fast = Appetite(10)
    fast.limit(100.0, 0, 0)
    assert fast.limit(100.01, 100, 0) == 30
    assert fast.limit(100.02, 200, 15) == 15
    assert fast.limit(100.03, 300, 30) == 0
    # It calls for more as soon as there is room for as many as it has slots.
    assert fast.low_flight == 20
    assert slow.low_flight == -1
