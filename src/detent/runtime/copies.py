"""Several worker processes under one command, one for each core as a rule.

A Python process runs on one core. Each copy is a worker of its own, with its own slots, and is started again
when it dies; the parent only watches and passes a signal on. A second signal means hurry. If the parent is
killed, its copies end as the children of `detent up` do.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from detent.runtime.child import Child, all_ready
from detent.runtime.config import Config, environment_of
from detent.runtime.supervisor import SIGNALS, START_PATIENCE, STOP_MARGIN


async def run_copies(config: Config, database: str, ready: Callable[[str], None]) -> None:
    """Run as many workers as the configuration says, until a signal."""
    loop = asyncio.get_running_loop()
    stop, hurry = asyncio.Event(), asyncio.Event()

    def asked() -> None:
        if stop.is_set():
            hurry.set()
        stop.set()

    for sign in SIGNALS:
        loop.add_signal_handler(sign, asked)
    command = (sys.executable, "-m", "detent", "worker")
    environment = environment_of(config, database)
    children = [
        Child("worker", f"worker-{number}", command, environment, config.grace + STOP_MARGIN)
        for number in range(1, config.workers + 1)
    ]
    lives = [child.start() for child in children]
    starting = asyncio.create_task(all_ready(children, lives, START_PATIENCE))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            pools = ", ".join(config.pools)
            ready(f"worker: {config.workers} processes, {config.slots} slots each in {pools}")
            await stop.wait()
    finally:
        starting.cancel()
        stopping.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)
        for child in children:
            child.stop()
        await asyncio.gather(*(child.ended(hurry) for child in children))
