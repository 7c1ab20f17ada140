"""One role in this process, from opening its connections to closing them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from detent.cli.wiring import PostgresPort, PostgresPulse
from detent.dispatch.sweeper import Sweeper
from detent.execute.port import Pulse
from detent.execute.worker import Worker
from detent.finish.rescuer import Rescuer
from detent.finish.timeouts import TimeoutKeeper
from detent.fire.firer import Firer
from detent.fire.node import Node
from detent.model.errors import StoreUnavailable
from detent.observe.clockwatch import ClockWatch
from detent.observe.fleet import FleetSweeper
from detent.observe.keys import KeySweeper
from detent.observe.partitions import PartitionKeeper
from detent.runtime.clock import Clock
from detent.runtime.config import Config, inherited
from detent.runtime.notify import ORDERS, QUEUE, TIMERS, Listener, Notifier
from detent.runtime.service import Service, run_services
from detent.store import timers
from detent.store.database import Database
from detent.store.migrate import check

log = logging.getLogger("detent.roles")

Ready = Callable[[str], None]

OPEN_PATIENCE = 30.0
SAMPLES = 3  # of the clock before anything starts: the first one is slow, because it opens and prepares


async def run_scheduler(config: Config, url: str, ready: Ready) -> None:
    async with _role(url, "scheduler", size=3, hot=True) as (database, clock, notifier):
        node = Node(
            database,
            clock,
            lambda gained: firer.shards_gained(gained),
            standby=config.standby,
            lag_ms=lambda: firer.lag_ms,
        )
        firer = Firer(database, clock, node, notifier, lambda: watch.wake())
        watch = ClockWatch(database, clock, firer.clock_jumped)
        listener = Listener(database, {TIMERS: firer.hear}, firer.reload)
        await node.run_once()
        ready(f"scheduler: owns {len(node.epochs)} shards")
        services = [watch, notifier, node, listener, firer]
        await _serve(services, node.hand_over)


async def run_worker(config: Config, url: str, ready: Ready) -> None:
    async with _role(url, "worker", size=3, hot=True) as (database, clock, notifier):

        async def pulse() -> Pulse:
            return PostgresPulse(await database.dedicated())

        port = PostgresPort(database, clock, notifier)
        worker = Worker(port, pulse, clock, config, environ=inherited())
        heard = {QUEUE: lambda pool: worker.wake(), ORDERS: lambda who: _orders(worker, who)}
        listener = Listener(database, heard, worker.wake)
        ready(f"worker: {config.slots} slots in {', '.join(config.pools)}")
        sweeper = Sweeper(port.claimer, config.pools, worker.wake)
        await _serve([ClockWatch(database, clock), notifier, listener, sweeper, worker])


def _orders(worker: Worker, who: str) -> None:
    if who == str(worker.worker_id):
        worker.orders_wait()


async def run_keeper(config: Config, url: str, ready: Ready) -> None:
    from detent.finish.callbacks import CallbackSender  # here, as only a keeper needs the HTTP client

    async with _role(url, "keeper", size=3) as (database, clock, notifier):
        ready("keeper: watching")
        await _serve(
            [
                ClockWatch(database, clock),
                notifier,
                Rescuer(database, clock, notifier),
                TimeoutKeeper(database, clock, notifier),
                PartitionKeeper(database, clock, config.retention_days),
                KeySweeper(database, clock),
                FleetSweeper(database),
                CallbackSender(database, allow_private=config.allow_private_callbacks),
            ]
        )


async def run_api(config: Config, url: str, ready: Ready) -> None:
    from detent.api.app import ApiState, serve

    async with _role(url, "api", size=8) as (database, clock, notifier):
        stop = _stop_on_signals()
        async with asyncio.TaskGroup() as group:
            group.create_task(run_services([ClockWatch(database, clock), notifier], stop))
            group.create_task(
                serve(ApiState(database, clock, notifier), config.host, config.port, ready, stop)
            )


@contextlib.asynccontextmanager
async def _role(
    url: str, name: str, *, size: int, hot: bool = False
) -> AsyncIterator[tuple[Database, Clock, Notifier]]:
    until = time.monotonic() + OPEN_PATIENCE
    database = await Database.open(
        url, size=size, application_name=f"detent {name}", hot=hot, wait_until=until
    )
    try:
        await check(url)
        clock = Clock()
        for _ in range(SAMPLES):
            await clock.sample(lambda: timers.clock_us(database))
        yield database, clock, Notifier(database)
    finally:
        await database.close()


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _serve(services: Sequence[Service], first: Callable[[], Awaitable[None]] | None = None) -> None:
    """Run services until a signal; `first` is what is done while they still run."""
    asked = _stop_on_signals()
    if first is None:
        await run_services(services, asked)
        return
    stop = asyncio.Event()

    async def end() -> None:
        await asked.wait()
        try:
            await first()
        except StoreUnavailable as error:
            log.warning("stopping without a hand-over: %s", error)
        stop.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(end())
        group.create_task(run_services(services, stop))
