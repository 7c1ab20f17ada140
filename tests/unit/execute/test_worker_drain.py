"""Stopping a worker."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest
from scripted_port import ScriptedPort, ScriptedPulse, claim_of, until, working

from detent.execute import worker as workers
from detent.execute.registry import Registry
from detent.model.job import ShellTask


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    async def nap(payload):
        await asyncio.sleep(payload)
        return "rested"

    registry.register("nap", nap)
    return registry


async def test_running_work_may_end_and_waiting_work_goes_back_at_once(registry):
    runs, waits = claim_of("nap", "0.3"), claim_of("nap", "0")
    port = ScriptedPort([runs])
    async with working(port, registry, slots=1) as worker:
        await until(lambda: worker.in_flight == 1)
        worker._crew.add([waits])
        worker.stop()
        await until(lambda: port.released)
        assert not port.finished
    assert port.released == [waits]
    assert [(f.claim, f.outcome) for f in port.finished] == [(runs, "succeeded")]
    assert port.stopped == [worker.worker_id]


async def test_what_does_not_end_in_time_is_cancelled_and_handed_back(registry):
    cleaned = threading.Event()

    async def cleans():
        try:
            await asyncio.sleep(600)
        finally:
            cleaned.set()

    registry.register("cleans", cleans)
    registry.register("thread", lambda ctx: cleaned.wait(600))
    claims = [claim_of("cleans"), claim_of("thread"), claim_of(ShellTask("echo begun; sleep 600"))]
    port = ScriptedPort(claims)
    started = time.monotonic()
    async with working(port, registry, grace=0.2) as worker:
        await until(lambda: worker.in_flight == 3 and port.text("stdout"))
    assert time.monotonic() - started < 6
    assert cleaned.is_set()
    assert not port.finished
    assert {c.execution_id for c in port.released} == {c.execution_id for c in claims}
    assert port.stopped == [worker.worker_id]


async def test_a_program_that_was_asked_to_stop_together_with_its_worker_is_handed_back(registry):
    """As service managers do it: a signal for every process of the worker, in any order."""
    first, second = (
        claim_of(ShellTask("echo $$; exec sleep 600")),
        claim_of(ShellTask("echo $$; exec sleep 600")),
    )
    port = ScriptedPort([first, second])
    async with working(port, registry, grace=60.0) as worker:
        await until(lambda: len(port.text("stdout").split()) == 2)
        before, after = map(int, port.text("stdout").split())
        os.kill(before, signal.SIGTERM)
        worker.stop()
        os.kill(after, signal.SIGTERM)
    assert {claim.execution_id for claim in port.released} == {first.execution_id, second.execution_id}
    assert not port.finished


async def test_a_program_that_somebody_ends_while_its_worker_stays_has_failed(registry):
    port = ScriptedPort([claim_of(ShellTask("kill -TERM $$"))])
    async with working(port, registry):
        await until(lambda: port.finished)
    assert [(f.outcome, f.error.exit_code) for f in port.finished] == [("failed", 143)]
    assert not port.released


async def test_work_that_ends_when_asked_to_hurry_counts(registry):
    async def hurries():
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            return "saved"

    registry.register("hurries", hurries)
    port = ScriptedPort([claim_of("hurries")])
    async with working(port, registry, grace=0.1) as worker:
        await until(lambda: worker.in_flight == 1)
    assert [(f.outcome, f.result) for f in port.finished] == [("succeeded", '"saved"')]
    assert not port.released


async def test_a_handler_that_will_not_end_does_not_hold_the_worker(registry, monkeypatch):
    monkeypatch.setattr(workers, "END_PATIENCE", 0.2)
    release = asyncio.Event()

    async def stubborn():
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass

    registry.register("stubborn", stubborn)
    claim = claim_of("stubborn")
    port = ScriptedPort([claim])

    async with working(port, registry, grace=0.1) as worker:
        await until(lambda: worker.in_flight == 1)
    assert port.released == [claim]
    assert not port.finished
    release.set()


async def test_results_wait_for_a_store_that_comes_back_during_the_stop(registry):
    port = ScriptedPort([claim_of("nap", "0") for _ in range(3)])
    port.outages = 3
    async with working(port, registry):
        await until(lambda: not port.waiting)
    assert len(port.finished) == 3
    assert port.stopped


async def test_a_store_that_stays_away_does_not_hold_the_worker(registry, monkeypatch, caplog):
    monkeypatch.setattr(workers, "STORE_PATIENCE", 0.2)
    port = ScriptedPort([claim_of("nap", "0")])
    port.outages = 10**9
    started = time.monotonic()
    async with working(port, registry) as worker:
        await until(lambda: worker.in_flight == 0 and not port.waiting)
    assert time.monotonic() - started < 5
    assert "1 ended attempts could not be recorded" in caplog.text


async def test_no_thread_and_no_task_is_left_behind(registry):
    registry.register("thread", lambda: None)
    before_threads = {t.name for t in threading.enumerate()}
    before_tasks = len(asyncio.all_tasks())
    port = ScriptedPort([claim_of("nap", "0"), claim_of("thread"), claim_of(ShellTask("true"))])
    async with working(port, registry):
        await until(lambda: len(port.finished) == 3)
    ours = {"detent-heartbeat"} | {f"detent-task-{n}" for n in range(1, 5)}
    await until(lambda: not {t.name for t in threading.enumerate() if t.name in ours} - before_threads)
    await until(lambda: len(asyncio.all_tasks()) <= before_tasks)


async def test_a_worker_stopped_before_it_could_join_just_ends(registry):
    port = ScriptedPort()

    async def refuse(info, lease):
        port.outages = 1
        port._reach()

    port.register = refuse  # type: ignore[method-assign]
    async with working(port, registry) as worker:
        await until(lambda: not worker.healthy)
    assert not port.stopped


async def test_a_lost_worker_says_nothing_more(registry):
    port = ScriptedPort([claim_of("nap", "600")])
    pulse = ScriptedPulse()
    async with working(port, registry, pulse) as worker:
        await until(lambda: worker.in_flight == 1)
        worker.stop()
        pulse.lost.add(worker.worker_id)
    assert not port.finished
    assert not port.released
    assert not port.stopped
