"""Requests of one kind share a statement, and each is answered for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from detent.api.gather import Gather
from detent.model.errors import Conflict, StoreBusy, StoreUnavailable


class Store:
    """Answers twice what is asked, when it is let; notes what it was asked together."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.free = asyncio.Event()
        self.free.set()
        self.fails: dict[int, Exception] = {}

    async def ask(self, questions: Sequence[int]) -> list[int | Exception]:
        self.asked.append(list(questions))
        await self.free.wait()
        for question in questions:
            if error := self.fails.get(question):
                raise error
        return [Conflict("odd", "odd") if question == 13 else 2 * question for question in questions]


async def settled(gather: Gather[int, int], *questions: int) -> list[int | BaseException]:
    return await asyncio.gather(*map(gather, questions), return_exceptions=True)


async def test_one_alone_goes_at_once() -> None:
    store = Store()
    assert await Gather(store.ask)(1) == 2
    assert store.asked == [[1]]


async def test_what_comes_together_goes_together() -> None:
    store = Store()
    assert await settled(Gather(store.ask), *range(5)) == [0, 2, 4, 6, 8]
    assert store.asked == [[0, 1, 2, 3, 4]]


async def test_what_comes_while_the_lanes_are_busy_goes_together_next() -> None:
    store = Store()
    gather = Gather(store.ask, lanes=1, most=3)
    store.free.clear()
    first = asyncio.create_task(gather(0))
    while not store.asked:
        await asyncio.sleep(0)
    others = [asyncio.create_task(gather(number)) for number in range(1, 6)]
    await asyncio.sleep(0)
    store.free.set()
    assert await asyncio.gather(first, *others) == [0, 2, 4, 6, 8, 10]
    assert store.asked == [[0], [1, 2, 3], [4, 5]]


async def test_an_answer_that_is_an_error_is_raised_where_it_was_asked() -> None:
    first, second = await settled(Gather(Store().ask), 1, 13)
    assert first == 2
    assert isinstance(second, Conflict)


@pytest.mark.parametrize("error", [ValueError("a bad row"), StoreBusy("a lock")])
async def test_a_bad_one_harms_itself_only(error: Exception) -> None:
    store = Store()
    store.fails[2] = error
    assert await settled(Gather(store.ask), 1, 2, 3) == [2, error, 6]
    assert store.asked == [[1, 2, 3], [1], [2], [3]]


async def test_nothing_is_asked_again_when_it_is_not_known_what_was_done() -> None:
    store = Store()
    lost = StoreUnavailable("the connection was lost")
    store.fails[2] = lost
    assert await settled(Gather(store.ask), 1, 2) == [lost, lost]
    assert store.asked == [[1, 2]]


async def test_who_gives_up_takes_nobody_along() -> None:
    store = Store()
    gather = Gather(store.ask)
    store.free.clear()
    leaving, staying = asyncio.create_task(gather(1)), asyncio.create_task(gather(2))
    while not store.asked:
        await asyncio.sleep(0)
    leaving.cancel()
    store.free.set()
    assert await staying == 4
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await gather(3) == 6
