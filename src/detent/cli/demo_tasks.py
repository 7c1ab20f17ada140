"""The Python tasks of `detent demo`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from detent.sdk.task import Context, task


@task("demo.greet")
async def greet(payload: Any, ctx: Context) -> dict[str, Any]:
    """An async task, on the worker's event loop."""
    ctx.log(f"greeting {payload['who']}")
    await asyncio.sleep(0.2)
    return {"said": f"Hello, {payload['who']}!"}


@task("demo.count_primes")
def count_primes(payload: Any) -> dict[str, int]:
    """A plain function, in a thread."""
    below = int(payload["below"])
    sieve = bytearray([1]) * below
    sieve[:2] = b"\0\0"
    for n in range(2, int(below**0.5) + 1):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, below, n)))
    time.sleep(0.1)
    return {"primes": sum(sieve)}


@task("demo.flaky")
def flaky(payload: Any, ctx: Context) -> str:
    """Fails twice, then succeeds: what retries are for."""
    if ctx.attempt < 3:
        ctx.log(f"attempt {ctx.attempt}: the network is down")
        raise ConnectionError("the network is down")
    return f"attempt {ctx.attempt} got through"
