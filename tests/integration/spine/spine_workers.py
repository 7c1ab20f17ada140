"""A real worker on a stage: its port, its pulse and its listener on the real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from detent.cli.roles import _orders
from detent.cli.wiring import PostgresPort, PostgresPulse
from detent.execute.port import Pulse
from detent.execute.registry import Registry
from detent.execute.worker import Worker
from detent.runtime.config import Config
from detent.runtime.notify import ORDERS, QUEUE, Listener
from detent.runtime.service import run_services
from stage import Stage


@asynccontextmanager
async def at_work(stage: Stage, registry: Registry, **settings: Any) -> AsyncIterator[Worker]:
    """A worker that is in the fleet and hears wake-ups, stopped in order at the end."""

    async def pulse() -> Pulse:
        return PostgresPulse(await stage.hot.dedicated())

    config = Config(**{"slots": 4, "heartbeat": 60.0, "lease": 180.0, "grace": 5.0} | settings)
    port = PostgresPort(stage.hot, stage.clock, stage.notifier)
    worker = Worker(port, pulse, stage.clock, config, registry=registry, environ={"PATH": "/usr/bin:/bin"})
    heard = {QUEUE: lambda pool: worker.wake(), ORDERS: lambda who: _orders(worker, who)}
    listening = asyncio.Event()
    listener = Listener(stage.hot, heard, listening.set)
    stop = asyncio.Event()
    running = asyncio.create_task(run_services([listener, worker], stop))
    try:
        async with asyncio.timeout(20):
            await listening.wait()
            while worker.worker_id is None:
                await asyncio.sleep(0.005)
        yield worker
    finally:
        stop.set()
        async with asyncio.timeout(40):
            await running


async def until(stage: Stage, count: str, least: int, seconds: float = 20.0) -> None:
    """Wait until a count in the store is as high as that."""
    async with asyncio.timeout(seconds):
        while await stage.db.fetchval(count) < least:
            await asyncio.sleep(0.01)
