"""Asking together what is asked at the same time.

A statement of its own for every request costs a round trip, a commit and two dozen steps of the driver each.
Requests of one kind that arrive together, or while others of their kind are under way, share a statement
instead: one alone goes at once, and the more there are the more go together. Nothing waits for a clock, and
each is answered for itself, after the commit. When a statement fails for what somebody in it asked, everyone
in it is tried alone, so that one bad row harms itself only; when the store cannot be had, nobody is: it is
not known what was done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from detent.model.errors import StoreBusy, StoreUnavailable

T = TypeVar("T")
R = TypeVar("R")

LANES = 2  # statements under way at once, while others gather
MOST = 100  # that go together

Together = Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]]


class Gather(Generic[T, R]):
    """`ask` answers each of a list of questions, in their order, with an exception for one that fails."""

    def __init__(self, ask: Together[T, R], *, lanes: int = LANES, most: int = MOST) -> None:
        self._ask = ask
        self._most = most
        self._free = lanes
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._starting = False
        self._under_way: set[asyncio.Task[None]] = set()

    async def __call__(self, question: T) -> R:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        self._waiting.append((question, answer))
        if self._free and not self._starting:
            self._starting = True
            loop.call_soon(self._start)  # after what else came with this tick of the loop
        return await answer

    def _start(self) -> None:
        self._starting = False
        while self._waiting and self._free:
            self._free -= 1
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most))]
            task = asyncio.get_running_loop().create_task(self._go(taken))
            self._under_way.add(task)
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._free += 1
        self._start()

    async def _go(self, taken: list[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            answers = await self._ask([question for question, _ in taken])
        except asyncio.CancelledError:
            for _, answer in taken:
                answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - whatever it was, it is the answer
            undone = isinstance(error, StoreBusy) or not isinstance(error, StoreUnavailable)
            if len(taken) > 1 and undone:
                await asyncio.gather(*(self._go([one]) for one in taken))
                return
            answers = [error] * len(taken)
        for (_, answer), given in zip(taken, answers, strict=True):
            if answer.done():  # who asked is gone
                continue
            if isinstance(given, Exception):
                answer.set_exception(given)
            else:
                answer.set_result(given)
