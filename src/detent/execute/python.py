"""Runs registered Python functions.

A coroutine function is awaited where it stands, in the lane that took the attempt: one that never suspends
costs no task and no trip through the loop. A plain function runs in a thread.
"""

from __future__ import annotations

import inspect
from typing import Any

from detent.execute.context import Context
from detent.execute.registry import RegisteredTask
from detent.execute.threads import Threads


async def call_in_thread(task: RegisteredTask, context: Context, threads: Threads) -> Any:
    """Call a plain function in a thread and answer, or raise, what it did."""
    result, error = await threads.run(task.call, context)
    if error is not None:
        raise error
    if inspect.isawaitable(result):  # a wrapper that hides a coroutine function: it still belongs on the loop
        return await result
    return result
