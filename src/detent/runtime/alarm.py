"""Waiting for an instant of the monotonic clock, exactly.

An event loop counts its timers in milliseconds. A timer of the kernel that the loop reads like a socket rings
within some 50 microseconds of its instant, and never before it. Where there is none (not on Linux, or no file
descriptor to spare), the loop's own timer has to do: it is late by up to a millisecond or two.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable

_ABSOLUTE = 1


class _Spec(ctypes.Structure):
    """How often, and when: seconds and nanoseconds each."""

    _fields_ = (
        ("every_s", ctypes.c_long), ("every_ns", ctypes.c_long),
        ("at_s", ctypes.c_long), ("at_ns", ctypes.c_long),
    )  # fmt: skip


class Alarm:
    """Calls `ring` on the running loop at one instant at a time."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._fd = _kernel_timer()
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._read)

    @property
    def exact(self) -> bool:
        return self._fd is not None

    def set(self, at_ns: int) -> None:
        """Ring at this monotonic nanosecond instead of whatever was set before; at once if it has passed."""
        if self._fd is not None:
            at = max(1, at_ns)  # zero would mean never
            spec = _Spec(0, 0, at // 1_000_000_000, at % 1_000_000_000)
            _libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(spec), None)
            return
        if self._timer is not None:
            self._timer.cancel()
        # Loops may count time in whole milliseconds: a little late, never early.
        wait = max(0.0, (at_ns - time.monotonic_ns()) / 1e9)
        self._timer = self._loop.call_later(wait + 0.001 if wait else 0.0, self._ring)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _read(self) -> None:
        assert self._fd is not None
        with contextlib.suppress(BlockingIOError):  # it was set anew meanwhile
            os.read(self._fd, 8)
            self._ring()


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else ctypes.CDLL(None)


def _kernel_timer() -> int | None:
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    fd: int = _libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    return fd if fd >= 0 else None
