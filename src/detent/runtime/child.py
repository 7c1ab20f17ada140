"""One role in a process of its own, as its supervisor sees it.

A child that ends before it was ever ready has failed to start, and would fail again: that is told, not
retried. One that ends later is started again, with pauses that grow while it does not hold; after an end in
order, at once.

It has a session of its own, so that Ctrl-C in a terminal reaches only the supervisor. It shares the
supervisor's standard error, so that its last words are not lost in a pipe that nobody reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from detent.model.errors import StartupError
from detent.runtime.bond import Word

log = logging.getLogger("detent")

PAUSE_FIRST, PAUSE_CAP = 0.2, 10.0
STEADY_AFTER = 30.0  # one that ran this long starts its pauses from the beginning
LAST_WORDS = 1.0
HURRY_PATIENCE = 1.0


class Child:
    """Runs a command from `start` to `stop`."""

    def __init__(
        self, role: str, label: str, command: Sequence[str], environment: Mapping[str, str], patience: float
    ) -> None:
        self.role = role
        self.label = label
        self.ready = asyncio.Event()
        self._command = tuple(command)
        self._environment = environment
        self._patience = patience
        self._stop = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._failure: Word | None = None
        self._life: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """The task ends with `stop`, or with a StartupError if the child was never ready."""
        self._life = asyncio.create_task(self._live(), name=self.label)
        return self._life

    def stop(self) -> None:
        """Ask it to end; it is not started again."""
        self._stop.set()
        self._signal(signal.SIGTERM)

    async def ended(self, hurry: asyncio.Event) -> None:
        """Wait for the end of a stopped child. Out of patience, or in a hurry, insist."""
        if self._life is None:
            return
        hurried = asyncio.create_task(hurry.wait())
        await asyncio.wait({self._life, hurried}, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not self._life.done():
            self._signal(signal.SIGTERM)
            await asyncio.wait({self._life}, timeout=HURRY_PATIENCE)
        if not self._life.done():
            log.warning("%s does not stop, and is killed", self.label)
            self._signal(signal.SIGKILL)
        await asyncio.wait({self._life})
        self._life.exception()  # one of several children that cannot start is told; the others are the same

    async def _live(self) -> None:
        pause = PAUSE_FIRST
        while not self._stop.is_set():
            born = time.monotonic()
            reason = await self._run_once()
            if self._stop.is_set():
                return
            if not self.ready.is_set():
                raise StartupError(reason)
            if time.monotonic() - born > STEADY_AFTER or self._left_in_order:
                pause = PAUSE_FIRST
            log.warning("%s; starting it again in %.1f s", reason, pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stop.wait()
            pause = min(pause * 2, PAUSE_CAP)

    @property
    def _left_in_order(self) -> bool:
        """Somebody asked it to stop, as one does to replace it: no reason to wait."""
        return self._process is not None and self._process.returncode == 0

    async def _run_once(self) -> str:
        """One process from its start to its end; answers how it ended."""
        self._failure = None
        ours, theirs = socket.socketpair()
        bond = f"{self.label}:{theirs.fileno()}:{os.getpid()}"
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**self._environment, "DETENT_SUPERVISED": bond},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            return f"{self.label} cannot be started: {error.strerror}"
        finally:
            theirs.close()
        if self._stop.is_set():  # asked while it was being born
            self._signal(signal.SIGTERM)
        reader, writer = await asyncio.open_connection(sock=ours)
        hearing = asyncio.create_task(self._hear(reader))
        try:
            code = await self._process.wait()
            await asyncio.wait({hearing}, timeout=LAST_WORDS)
        finally:
            hearing.cancel()
            writer.close()
        return self._reason(code)

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                word = Word.decode(line)
                if word.kind == "failed":
                    self._failure = word
                    continue
                if self.ready.is_set():
                    log.info("%s is running again", self.label)
                self.ready.set()

    def _reason(self, code: int) -> str:
        if self._failure is not None:
            return f"{self.label}: {self._failure.text}"
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"{self.label} {how}"

    def _signal(self, sign: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(sign)


async def all_ready(children: Sequence[Child], lives: Sequence[asyncio.Task[None]], patience: float) -> None:
    """Wait until each of these that were started is ready. Raises what keeps one of them from it."""
    ready = asyncio.gather(*(child.ready.wait() for child in children))
    either: set[asyncio.Future[Any]] = {ready, *lives}
    try:
        done, _ = await asyncio.wait(either, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            ended.result()  # a life that ended before it was ready says why
        if not ready.done():
            late = ", ".join(child.label for child in children if not child.ready.is_set())
            raise StartupError(f"not ready after {patience:g} s: {late}")
    finally:
        ready.cancel()
        await asyncio.gather(ready, return_exceptions=True)
