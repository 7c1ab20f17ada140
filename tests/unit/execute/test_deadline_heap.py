from __future__ import annotations

import asyncio
import time

from scripted_port import until

from detent.execute.deadlines import FOREVER, Deadlines


class Item:
    def __init__(self) -> None:
        self.deadline = FOREVER
        self.entry_at = FOREVER

    def due_in(self, seconds: float, heap: Deadlines[Item]) -> None:
        self.deadline = time.monotonic() + seconds
        if self.deadline < self.entry_at:
            heap.watch(self)


async def test_items_come_due_in_order_and_never_early():
    rung: list[tuple[str, float]] = []
    names = {}
    heap: Deadlines[Item] = Deadlines(
        lambda item: rung.append((names[item], time.monotonic() - item.deadline))
    )
    for name, seconds in (("late", 0.12), ("soon", 0.03), ("middle", 0.07)):
        item = Item()
        names[item] = name
        item.due_in(seconds, heap)
    await until(lambda: len(rung) == 3)
    assert [name for name, _ in rung] == ["soon", "middle", "late"]
    assert all(0 <= late < 0.5 for _, late in rung)


async def test_one_item_used_a_hundred_thousand_times_keeps_one_entry():
    heap: Deadlines[Item] = Deadlines(lambda item: None)
    item = Item()
    for _ in range(100_000):
        item.due_in(3600, heap)
        item.deadline = FOREVER
    assert len(heap) == 1
    heap.close()


async def test_an_item_that_went_on_with_something_else_is_not_overdue():
    rung: list[Item] = []
    heap: Deadlines[Item] = Deadlines(rung.append)
    item, bell = Item(), Item()
    item.due_in(0.03, heap)
    item.due_in(0.2, heap)  # its first entry comes due while this runs
    bell.due_in(0.06, heap)
    await until(lambda: rung)
    assert rung == [bell]
    bell.deadline = FOREVER
    await until(lambda: len(rung) == 2)
    assert rung[1] is item


async def test_a_shorter_deadline_overtakes_the_one_before():
    rung: list[Item] = []
    heap: Deadlines[Item] = Deadlines(rung.append)
    item = Item()
    item.due_in(3600, heap)
    item.due_in(0.02, heap)
    await until(lambda: rung)
    assert rung == [item]
    item.deadline = FOREVER
    heap.close()
    await asyncio.sleep(0)


async def test_an_idle_item_rings_for_nothing():
    rung: list[Item] = []
    heap: Deadlines[Item] = Deadlines(rung.append)
    item, bell = Item(), Item()
    item.due_in(0.01, heap)
    item.deadline = FOREVER
    bell.due_in(0.05, heap)
    await until(lambda: rung)
    assert rung == [bell]
    assert len(heap) == 0
