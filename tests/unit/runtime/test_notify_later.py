"""Planned wake-ups: gathered, bounded, in order, and sent when they are due; a real listener hears them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from detent.model.ids import new_incarnation_id
from detent.runtime import notify
from detent.runtime.notify import LATER_HORIZON, LATER_SLOT, MOST_PLANNED, ORDERS, QUEUE, Listener, Notifier
from detent.store.database import Database


class Monotonic:
    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    clock = Monotonic()
    monkeypatch.setattr(notify, "time", clock)
    return clock


class Ear:
    """Hears what the notifier has sent by now."""

    def __init__(self, database: Database) -> None:
        self._heard: list[str] = []
        self._listener = Listener(
            database, {QUEUE: self._heard.append, ORDERS: self._heard.append}, lambda: None
        )
        self._database = database

    async def open(self) -> None:
        await self._listener.run_once()

    async def close(self) -> None:
        await self._listener.closed()

    async def heard(self) -> list[str]:
        """Everything since the last time. Messages come in order: a mark ends what was sent before it."""
        mark = str(new_incarnation_id())
        await self._database.execute("select pg_notify($1, $2)", QUEUE, mark)
        async with asyncio.timeout(10):
            while mark not in self._heard:
                await asyncio.sleep(0.002)
        end = self._heard.index(mark)
        found = self._heard[:end]
        del self._heard[: end + 1]
        return found


@pytest.fixture
async def ear(db: Database) -> AsyncIterator[Ear]:
    ear = Ear(db)
    await ear.open()
    yield ear
    await ear.close()


async def test_a_planned_wake_up_is_sent_when_it_is_due_and_not_before(
    db: Database, ear: Ear, time: Monotonic
) -> None:
    notifier = Notifier(db)
    notifier.queue_later("default", 2.0)
    wait = await notifier.run_once()
    assert wait == pytest.approx(2.0, abs=LATER_SLOT)
    assert await ear.heard() == []
    time.at += 1.9
    await notifier.run_once()
    assert await ear.heard() == []
    time.at += 0.1 + LATER_SLOT
    assert await notifier.run_once() is None
    assert await ear.heard() == ["default"]
    await notifier.run_once()
    assert await ear.heard() == []


async def test_what_is_due_within_the_same_moment_is_sent_once(
    db: Database, ear: Ear, time: Monotonic
) -> None:
    notifier = Notifier(db)
    for _ in range(10_000):
        notifier.queue_later("default", 1.0)
    notifier.queue_later("default", 1.0 + LATER_SLOT / 10)
    notifier.queue_later("reports", 1.0)
    assert len(notifier._later) == len(notifier._planned) <= 3
    time.at += 1.1
    await notifier.run_once()
    assert sorted(await ear.heard()) == ["default", "reports"]
    assert notifier._later == []
    assert notifier._planned == set()


async def test_planned_and_present_wake_ups_of_a_pool_are_one_message(
    db: Database, ear: Ear, time: Monotonic
) -> None:
    notifier = Notifier(db)
    notifier.queue_later("default", 0.0)
    notifier.queue(["default"])
    time.at += LATER_SLOT
    await notifier.run_once()
    assert await ear.heard() == ["default"]


async def test_they_come_in_the_order_of_their_instants(db: Database, ear: Ear, time: Monotonic) -> None:
    notifier = Notifier(db)
    for pool, seconds in (("c", 3.0), ("a", 1.0), ("d", 4.0), ("b", 2.0)):
        notifier.queue_later(pool, seconds)
    order = []
    for _ in range(4):
        wait = await notifier.run_once()
        assert wait is not None
        assert wait == pytest.approx(1.0, abs=2 * LATER_SLOT)
        assert await ear.heard() == []
        time.at += wait
        following = notifier._come_due()
        order.append(notifier._pools.copy())
        await notifier.run_once()
        assert await ear.heard() == sorted(order[-1])
        assert (following is None) == (len(order) == 4)
    assert order == [{"a"}, {"b"}, {"c"}, {"d"}]


async def test_the_plan_is_bounded(time: Monotonic) -> None:
    notifier = Notifier(None)  # type: ignore[arg-type]  # nothing is sent
    for number in range(MOST_PLANNED + 1000):
        notifier.queue_later(f"pool-{number}", 1.0)
    assert len(notifier._later) == len(notifier._planned) == MOST_PLANNED
    time.at += 2.0
    notifier._come_due()
    assert notifier._later == []
    notifier.queue_later("default", 1.0)  # there is room again
    assert len(notifier._later) == 1


async def test_what_is_far_away_is_left_to_the_poll(time: Monotonic) -> None:
    notifier = Notifier(None)  # type: ignore[arg-type]  # nothing is sent
    notifier.queue_later("default", LATER_HORIZON + 1)
    assert notifier._later == []
    notifier.queue_later("default", LATER_HORIZON)
    assert len(notifier._later) == 1


async def test_a_plan_cuts_the_notifiers_wait_short(db: Database, ear: Ear) -> None:
    """On the real clock: the loop is asleep for a minute when the plan is made."""
    notifier = Notifier(db)
    running = asyncio.create_task(notifier.run())
    try:
        await asyncio.sleep(0)
        notifier.queue_later("default", 0.05)
        heard: list[str] = []
        async with asyncio.timeout(10):
            while "default" not in heard:
                heard += await ear.heard()
        assert heard == ["default"]
    finally:
        notifier.stop()
        await running


async def test_orders_for_nobody_send_nothing_and_repeats_are_one(db: Database, ear: Ear) -> None:
    notifier = Notifier(db)
    notifier.orders([])
    await notifier.run_once()
    assert await ear.heard() == []
    worker_id = new_incarnation_id()
    for _ in range(5):
        notifier.orders([worker_id])
    await notifier.run_once()
    assert await ear.heard() == [str(worker_id)]
