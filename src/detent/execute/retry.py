"""Saying something to the store until it is heard.

A store that is away is asked again with capped, jittered pauses: what a worker has to say is safe to
repeat. Anything else that is raised is about the batch, so the batch is halved until the one bad item
stands alone: it harms itself only. So does one whose row somebody keeps locked: it is said again later.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

from detent.model.errors import StoreBusy, StoreUnavailable

log = logging.getLogger("detent.worker")

PAUSE_FIRST = 0.05
PAUSE_CAP = 2.0

Item = TypeVar("Item")


def pause_after(failures: int, cap: float = PAUSE_CAP) -> float:
    """How long to wait after so many failures in a row."""
    longest: float = min(cap, PAUSE_FIRST * 2.0 ** min(failures, 12))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads workers, hides nothing


class Persistent:
    """Sends batches through one function of the port."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._failures = 0

    @property
    def failing(self) -> bool:
        """Whether the store is away just now."""
        return self._failures > 0

    async def send(
        self,
        deliver: Callable[[Sequence[Item]], Awaitable[set[tuple[UUID, int]]]],
        batch: Sequence[Item],
        refused: Callable[[Item, Exception], None],
        later: Callable[[Item], None] | None = None,
    ) -> set[tuple[UUID, int]]:
        """Deliver all of a batch, whatever it takes. `refused` gets each item that cannot be delivered,
        `later` each that cannot be delivered yet; without it, such a one is waited for.
        """
        while True:
            try:
                answer = await deliver(batch)
            except StoreBusy as error:
                log.warning("%s: %s; trying again", self._what, error)
                if len(batch) > 1:
                    return await self._halves(deliver, batch, refused, later)
                self._failures += 1
                await asyncio.sleep(pause_after(self._failures))
                if later is not None:
                    later(batch[0])
                    return set()
            except StoreUnavailable as error:
                if not self._failures:
                    log.warning("%s: %s; keeping them and trying again", self._what, error)
                self._failures += 1
                await asyncio.sleep(pause_after(self._failures))
            except Exception as error:  # noqa: BLE001 - the border of a batch: one bad item is not all
                if len(batch) == 1:
                    refused(batch[0], error)
                    return set()
                return await self._halves(deliver, batch, refused, later)
            else:
                self._failures = 0
                return answer

    async def _halves(
        self,
        deliver: Callable[[Sequence[Item]], Awaitable[set[tuple[UUID, int]]]],
        batch: Sequence[Item],
        refused: Callable[[Item, Exception], None],
        later: Callable[[Item], None] | None,
    ) -> set[tuple[UUID, int]]:
        middle = len(batch) // 2
        first = await self.send(deliver, batch[:middle], refused, later)
        return first | await self.send(deliver, batch[middle:], refused, later)
