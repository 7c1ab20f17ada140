"""How an attempt ended, before anyone writes it down.

Everything here is bounded and can be stored: user code decides what is in a message or a traceback, so NUL
bytes, lone surrogates and megabytes of text are met here and not in a batch that others share.
"""

from __future__ import annotations

import traceback
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from detent.model.execution import ErrorInfo, Outcome
from detent.model.job import RESULT_LIMIT

MESSAGE_LIMIT = 4 * 1024
TRACEBACK_LIMIT = 16 * 1024
TRACEBACK_FRAMES = 60

_OURS = str(Path(__file__).parent)
_encode = msgspec.json.Encoder().encode


class NonRetryable(Exception):
    """Raised by a task for which trying again would not help."""


class Ending(NamedTuple):
    """The outcome of one attempt as its worker saw it."""

    outcome: Outcome
    result: str | None = None
    error: ErrorInfo | None = None
    retryable: bool = True


SUCCEEDED = Ending("succeeded")
CANCELLED = Ending("cancelled")
RELEASED = Ending("released")
LOST = Ending("worker_lost")


def failed(kind: str, message: str, *, retryable: bool = True, exit_code: int | None = None) -> Ending:
    return Ending("failed", None, ErrorInfo(kind, clean(message), None, exit_code), retryable)


def timed_out(seconds: float, deadline_at: datetime | None = None) -> Ending:
    message = f"still running after its timeout of {seconds:g} s"
    if deadline_at is not None:
        message += f", or past its deadline at {deadline_at:%Y-%m-%dT%H:%M:%S}Z"
    return Ending("timed_out", None, ErrorInfo("Timeout", message))


def returned(value: Any) -> Ending:
    """A task returned. A result that cannot be kept fails the attempt, and would fail every other one."""
    if value is None:
        return SUCCEEDED
    try:
        encoded = _encode(value)
    except Exception as error:  # noqa: BLE001 - a user's object may raise anything
        message = f"the task returned {type(value).__qualname__}, which is not JSON: {say(error)}"
        return failed("ResultNotJson", message, retryable=False)
    if len(encoded) > RESULT_LIMIT:
        message = (
            f"the result has {len(encoded):,} bytes as JSON, {RESULT_LIMIT:,} are allowed;"
            " store it elsewhere and return where"
        )
        return failed("ResultTooLarge", message, retryable=False)
    return Ending("succeeded", encoded.decode())


def raised(error: BaseException) -> Ending:
    """A task raised."""
    info = ErrorInfo(type(error).__qualname__, clean(say(error)), _traceback(error))
    return Ending("failed", None, info, not isinstance(error, NonRetryable))


def say(error: BaseException) -> str:
    """What an error says of itself; its `__str__` is user code too."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - it may raise anything
        return f"<{type(error).__qualname__} whose message cannot be shown>"


def clean(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """Text that PostgreSQL takes: no NUL, no lone surrogates, bounded with both ends kept."""
    text = text.replace("\x00", "\ufffd")
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= limit:
        return text
    head = limit // 4
    return f"{text[:head]}\n… {len(text) - limit:,} characters left out …\n{text[head - limit :]}"


def _traceback(error: BaseException) -> str | None:
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_OURS):
        frame = frame.tb_next
    try:
        told = traceback.TracebackException(type(error), error, frame, limit=-TRACEBACK_FRAMES, compact=True)
        return clean("".join(told.format()), TRACEBACK_LIMIT)
    except Exception:  # noqa: BLE001 - a hostile __str__ or __cause__; the error's name still stands
        return None
