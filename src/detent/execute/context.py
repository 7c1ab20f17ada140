"""What a running task may know and say about its attempt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from detent.execute.ending import clean
from detent.execute.output import Output
from detent.model.work import Claim, Progress

_decode = msgspec.json.Decoder().decode
_opening = threading.Lock()
_UNREAD = object()
MESSAGE_LIMIT = 1024


class Interruption(Enum):
    """Why a worker ends an attempt that has not ended by itself."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    SHUTDOWN = "shutdown"
    LOST = "lost"


class Context:
    """Given to a task that asks for it. All of it may be used from any thread.

    `token` fences: a system outside that remembers the highest token it has seen can refuse the writes of
    an attempt that was given up on. `interruption`, `ended` and `output` belong to the worker; a task reads
    `cancelled`.
    """

    __slots__ = ("_claim", "_open_output", "_payload", "_tell", "_trusted", "ended", "interruption", "output")

    def __init__(
        self,
        claim: Claim,
        open_output: Callable[[Claim], Output],
        trusted: Callable[[], bool],
        tell: Callable[[Progress], None],
    ) -> None:
        self._claim = claim
        self._open_output = open_output
        self._trusted = trusted
        self._tell = tell
        self._payload: Any = _UNREAD
        self.interruption: Interruption | None = None
        self.output: Output | None = None
        self.ended = False

    @property
    def execution_id(self) -> UUID:
        return self._claim.execution_id

    @property
    def job_id(self) -> UUID:
        return self._claim.job_id

    @property
    def attempt(self) -> int:
        """1 for the first try."""
        return self._claim.attempt

    @property
    def token(self) -> int:
        return self._claim.token

    @property
    def scheduled_for(self) -> datetime:
        """The nominal instant, which a late or repeated attempt should compute with."""
        return self._claim.scheduled_for

    @property
    def payload(self) -> Any:
        if self._payload is _UNREAD:
            self._payload = _decode(self._claim.payload)
        return self._payload

    @property
    def cancelled(self) -> bool:
        """Whether this attempt should stop: cancelled, out of time, or its worker is going away."""
        return self.interruption is not None

    def still_mine(self) -> bool:
        """Whether, as far as this process knows, this attempt is still the one that counts."""
        return self.interruption is None and self._trusted()

    def progress(self, pct: float, message: str | None = None) -> None:
        """Say how far this attempt is, from 0 to 100, and perhaps at what.

        It is shown a second or two later; of several in one second the last counts.
        """
        share = float(pct)
        if not 0 <= share <= 100:
            raise ValueError(f"progress goes from 0 to 100, not {pct!r}")
        if not self.ended:
            claim = self._claim
            text = None if message is None else clean(str(message), MESSAGE_LIMIT)
            self._tell(Progress(claim.execution_id, claim.attempt, claim.token, share, text))

    def log(self, message: object) -> None:
        """Write a line to the execution's logs. A thread that was left behind writes nothing any more."""
        if not self.ended:
            self.writer().write("log", f"{message}\n")

    def writer(self) -> Output:
        """The attempt's output, opened by the first that writes."""
        output = self.output
        if output is None:
            with _opening:
                output = self.output
                if output is None:
                    output = self.output = self._open_output(self._claim)
        return output
