"""What the server undid because of others is done again.

After a deadlock, a failed serialization or a lock that did not come in time, nothing of the transaction is
left: the same once more is safe, and mostly goes through. It is done a few times, with growing, jittered
pauses, and not for long: somebody waits for the answer. After that it is the caller's to go on: a loop ticks
again, a request is answered with 503. What was under way when a connection was lost is not repeated here: the
commit may have happened.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from detent.model.errors import StoreBusy

T = TypeVar("T")

TRIES = 6
WITHIN_SECONDS = 3.0
PAUSE_FIRST, PAUSE_CAP = 0.01, 0.5


async def repeated(attempt: Callable[[], Awaitable[T]]) -> T:
    """The answer of `attempt`, which is one whole transaction."""
    until = time.monotonic() + WITHIN_SECONDS
    for tries in range(1, TRIES):
        try:
            return await attempt()
        except StoreBusy:
            if time.monotonic() >= until:
                raise
        pause = min(PAUSE_CAP, PAUSE_FIRST * 2.0**tries)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - only spreads
    return await attempt()
