"""Threads for handlers that are plain functions.

A thread cannot be killed. When a handler outstays its attempt the thread is left to itself: whatever it
returns is ignored, a fresh one takes its place, and it ends when the handler does. The standard pool could
not do that: an overdue handler would keep a place in it, and hold up the exit of the process. All book
keeping happens on the event loop, so that it needs no locks.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable
from contextvars import Context as Variables
from queue import SimpleQueue
from typing import Any

log = logging.getLogger("detent.worker")


class _Errand:
    """One call on its way through a thread."""

    __slots__ = ("abandoned", "call", "done")

    def __init__(self, call: Callable[[], Any], done: asyncio.Future[Any]) -> None:
        self.call = call
        self.done = done
        self.abandoned = False


class Threads:
    """As many threads as there are calls at once; idle ones wait for the next."""

    def __init__(self, variables: Variables) -> None:
        """Each call starts from these context variables, and what it sets in them ends with it."""
        self._variables = variables
        self._loop = asyncio.get_running_loop()
        self._idle: list[SimpleQueue[_Errand | None]] = []
        self._numbers = itertools.count(1)
        self._closed = False
        self.abandoned = 0  # running on after their attempts ended

    async def run(self, call: Callable[[Any], Any], argument: Any) -> Any:
        """Call in a thread. If this is cancelled the thread is left behind."""
        variables = self._variables.copy()
        errand = _Errand(lambda: variables.run(call, argument), self._loop.create_future())
        inbox = self._idle.pop() if self._idle else self._hire()
        inbox.put(errand)
        try:
            return await errand.done
        except asyncio.CancelledError:
            if errand.done.cancelled():
                errand.abandoned = True
                self.abandoned += 1
                log.warning("a task's thread cannot be stopped and is left behind; %d are", self.abandoned)
            raise

    def close(self) -> None:
        """End the idle threads; busy ones end after their call."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _hire(self) -> SimpleQueue[_Errand | None]:
        inbox: SimpleQueue[_Errand | None] = SimpleQueue()
        name = f"detent-task-{next(self._numbers)}"
        threading.Thread(target=self._serve, args=(inbox,), name=name, daemon=True).start()
        return inbox

    def _serve(self, inbox: SimpleQueue[_Errand | None]) -> None:
        while (errand := inbox.get()) is not None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = errand.call()
            except BaseException as raised:  # noqa: BLE001 - the border of an attempt, SystemExit included
                error = raised
            try:
                self._loop.call_soon_threadsafe(self._returned, inbox, errand, result, error)
            except RuntimeError:  # the loop is gone, and with it anyone who could care
                return
            del errand, result, error

    def _returned(
        self,
        inbox: SimpleQueue[_Errand | None],
        errand: _Errand,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if errand.abandoned:
            self.abandoned -= 1
            log.info("an abandoned thread ended; what it returned is ignored")
        if errand.abandoned or self._closed:
            inbox.put(None)
        else:
            self._idle.append(inbox)
        if errand.done.done():
            return
        # A future carries its error by raising it, and refuses StopIteration: hand over a pair instead.
        errand.done.set_result((result, error))
