"""Progress: what a task says of itself goes the way of the heartbeat, and never costs a beat."""

from __future__ import annotations

import asyncio

import pytest
from scripted_port import ScriptedPort, ScriptedPulse, claim_of, until, working

from detent.execute import pulse as pulse_module
from detent.execute.context import Context
from detent.execute.registry import Registry


@pytest.fixture
def tasks():
    return Registry()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(pulse_module, "GATHER_PROGRESS", 0.05)


async def test_what_a_task_says_of_its_progress_is_passed_on_under_its_token(tasks):
    async def works(ctx: Context) -> None:
        ctx.progress(30, "reading")
        await asyncio.sleep(60)

    tasks.register("works", works)
    claim, pulse = claim_of("works"), ScriptedPulse()
    async with working(ScriptedPort([claim]), tasks, pulse, heartbeat=60.0, lease=600.0, grace=0.0):
        await until(lambda: pulse.told)
    [told] = pulse.told
    assert told == (claim.execution_id, claim.attempt, claim.token, 30.0, "reading")


async def test_of_many_words_within_the_gathering_the_last_counts(tasks):
    def works(ctx: Context) -> None:
        for share in range(101):
            ctx.progress(share)

    tasks.register("works", works)
    pulse = ScriptedPulse()
    async with working(ScriptedPort([claim_of("works")]), tasks, pulse):
        await until(lambda: pulse.told and pulse.told[-1].pct == 100)
    assert len(pulse.told) < 20


async def test_progress_that_is_stale_is_counted_and_the_beat_asks_what_to_stop(tasks):
    async def works(ctx: Context) -> None:
        ctx.progress(1)
        await asyncio.sleep(60)

    tasks.register("works", works)
    claim, pulse = claim_of("works"), ScriptedPulse()
    pulse.stale = {claim.execution_id}
    async with working(ScriptedPort([claim]), tasks, pulse, heartbeat=60.0, lease=600.0, grace=0.0) as worker:
        await until(lambda: worker.worker_id and worker.stale_writes == 1)
        await until(lambda: len(pulse.beats) == 2)  # the first, and the one that the stale answer asked for


async def test_progress_waits_for_a_store_that_is_away(tasks):
    async def works(ctx: Context) -> None:
        ctx.progress(50)
        await asyncio.sleep(60)

    tasks.register("works", works)
    pulse = ScriptedPulse()
    pulse.broken = True
    port = ScriptedPort([claim_of("works")])
    async with working(port, tasks, pulse, grace=0.0):
        await until(lambda: not port.waiting and pulse.connections > 2)
        assert not pulse.told
        pulse.broken = False
        await until(lambda: pulse.told)


async def test_progress_that_cannot_be_stored_costs_no_beat(tasks, caplog):
    async def works(ctx: Context) -> None:
        ctx.progress(50)
        await asyncio.sleep(60)

    tasks.register("works", works)
    pulse = ScriptedPulse()
    pulse.unfit = True
    async with working(ScriptedPort([claim_of("works")]), tasks, pulse, grace=0.0):
        await until(lambda: "could not be kept" in caplog.text)
        beats = len(pulse.beats)
        await until(lambda: len(pulse.beats) > beats + 2)
        assert pulse.connections == 1


@pytest.mark.parametrize("share", [-1, 100.5, float("nan"), float("inf")])
async def test_a_share_that_is_none_is_refused_where_it_is_said(tasks, share):
    tasks.register("works", lambda ctx: ctx.progress(share))
    port, pulse = ScriptedPort([claim_of("works")]), ScriptedPulse()
    async with working(port, tasks, pulse):
        await until(lambda: port.finished)
    assert (port.finished[0].outcome, port.finished[0].error.type) == ("failed", "ValueError")
    assert not pulse.told
