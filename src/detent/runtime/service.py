"""Every loop has this shape: a service whose `run_once` does one batch and says when to come back.

A tick that raises is logged and tried again after a capped, jittered pause: no loop ends because the
database went away. `wake` cuts a wait short; `stop` ends the loop after the current tick.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

from detent.model.errors import StoreUnavailable

log = logging.getLogger("detent")

PAUSE_FIRST = 0.1
PAUSE_CAP = 5.0


class Service(ABC):
    """One loop of one role."""

    name: str = "service"
    every: float = 1.0

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self._stopping = False
        self._failures = 0

    @abstractmethod
    async def run_once(self) -> float | None:
        """Do one batch. Return the seconds to wait before the next tick; None means `every`, jittered."""

    async def opened(self) -> None:  # noqa: B027 - a hook
        """Called once before the first tick."""

    async def closed(self) -> None:  # noqa: B027 - a hook
        """Called once after the last tick."""

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def healthy(self) -> bool:
        return self._failures == 0

    async def run(self) -> None:
        await self._until_opened()
        try:
            while not self._stopping:
                self._wake.clear()
                await self._wait(await self._tick())
        finally:
            await self._close()

    async def _close(self) -> None:
        """A goodbye that nobody hears must not cut short those of the other loops."""
        try:
            await self.closed()
        except StoreUnavailable as error:
            log.info("%s: left without a word: %s", self.name, error)
        except Exception:  # the border of a loop
            log.exception("%s: closing failed", self.name)

    async def _until_opened(self) -> None:
        while not self._stopping:
            try:
                await self.opened()
            except StoreUnavailable as error:
                await self._wait(self._pause(error))
            else:
                self._failures = 0
                return

    async def _tick(self) -> float:
        try:
            wait = await self.run_once()
        except StoreUnavailable as error:
            return self._pause(error)
        except Exception:  # the border of a loop tick: a bad tick must not end the loop
            log.exception("%s: a tick failed", self.name)
            return self._pause(None)
        self._failures = 0
        return self.every * random.uniform(0.9, 1.1) if wait is None else wait  # noqa: S311

    def _pause(self, error: StoreUnavailable | None) -> float:
        if error is not None and self._failures == 0:
            log.warning("%s: %s; trying again", self.name, error)
        self._failures += 1
        pause = min(PAUSE_CAP, PAUSE_FIRST * 2.0 ** min(self._failures, 10))
        return pause * random.uniform(0.5, 1.0)  # noqa: S311

    async def _wait(self, seconds: float) -> None:
        if seconds <= 0 or self._stopping:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass


async def run_services(services: Sequence[Service], stop: asyncio.Event) -> None:
    """Run services until `stop` is set, then let each end its tick and close."""
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(service.run(), name=service.name)
        await stop.wait()
        for service in services:
            service.stop()
