"""Runs every role as a child process, over an embedded PostgreSQL or an outside one.

Start: look at the port, take the data folder, serve the database, migrate, start the roles. It is up when
each role said that it is ready and the server says that it can make progress. Whatever fails until then
undoes all of it and is told in one line. After that nothing is final: a role that ends is started again,
and so is PostgreSQL.

Stop: workers first, because they have work to finish or to hand back; then the roles that make work, then
the door, then PostgreSQL. A second signal means hurry: no more patience with anyone, which costs the
attempts that run now a retry and loses nothing.
"""

from __future__ import annotations

import asyncio
import errno
import http.client
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from detent.model.errors import StartupError
from detent.runtime.child import Child, all_ready
from detent.runtime.config import Config, environment_of
from detent.store.embedded import Embedded, find_running
from detent.store.migrate import migrate

log = logging.getLogger("detent")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
START_PATIENCE = 60.0
DATABASE_PATIENCE = 5.0
STOP_PATIENCE = 10.0  # for a role without work to hand back
STOP_MARGIN = 17.0  # beyond a worker's own grace: stubborn attempts, and what is left to say to the store
WATCH_EVERY = 0.5
READY_EVERY = 0.03

START_ORDER = ("api", "scheduler", "keeper", "worker")
STOP_ORDER = ("worker", "scheduler", "keeper", "api")


@dataclass(frozen=True, slots=True)
class Up:
    """What is running now, for the one who announces it."""

    config: Config
    seconds: float


class Supervisor:
    """The whole system on one machine, from `run` until a signal, or `stop`."""

    def __init__(self, config: Config, announce: Callable[[Up], None]) -> None:
        self._config = config
        self._announce = announce
        self._embedded = Embedded(config.data) if config.database is None else None
        self._children: list[Child] = []
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    def stop(self) -> None:
        """Stop everything in order; asked again, without patience."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def run(self) -> None:
        """Raises what kept the system from starting, or what nothing here can mend."""
        loop = asyncio.get_running_loop()
        for sign in SIGNALS:
            loop.add_signal_handler(sign, self.stop)
        serving = asyncio.create_task(self._serve())
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            serving.cancel()
            stopped.cancel()
            await asyncio.gather(serving, stopped, return_exceptions=True)
            await self._close()
            for sign in SIGNALS:
                loop.remove_signal_handler(sign)

    async def _serve(self) -> None:
        began = time.monotonic()
        config = replace(self._config, port=self._free_port())
        database = config.database
        if self._embedded is not None:
            database = await asyncio.to_thread(self._embedded.start)
        assert database is not None
        for migration in await migrate(database, wait_until=time.monotonic() + DATABASE_PATIENCE):
            log.info("applied migration %s", migration)
        await self._start_roles(config, database)
        await _until_ready(config)
        self._announce(Up(config, time.monotonic() - began))
        while True:
            await asyncio.sleep(WATCH_EVERY)
            await self._mend_database()

    def _free_port(self) -> int:
        host, port = self._config.host, self._config.port
        try:
            return free_port(host, port)
        except StartupError:
            if self._embedded is not None and find_running(self._config.data):
                folder = Path(os.path.realpath(self._config.data))
                raise StartupError(f"the data folder {folder} is in use: Detent runs there already") from None
            raise

    async def _start_roles(self, config: Config, database: str) -> None:
        """Start a process for each role (several for workers and schedulers) and wait until each is ready."""
        environment = environment_of(config, database)
        lives: list[asyncio.Task[None]] = []
        for role in START_ORDER:
            copies = {"worker": config.workers, "scheduler": config.schedulers}.get(role, 1)
            patience = config.grace + STOP_MARGIN if role == "worker" else STOP_PATIENCE
            for number in range(1, copies + 1):
                label = role if copies == 1 else f"{role}-{number}"
                child = Child(role, label, (sys.executable, "-m", "detent", role), environment, patience)
                self._children.append(child)
                lives.append(child.start())
        await all_ready(self._children, lives, START_PATIENCE)

    async def _mend_database(self) -> None:
        if self._embedded is None:
            return
        try:
            if await asyncio.to_thread(self._embedded.restart_if_dead):
                log.info("PostgreSQL is running again")
        except StartupError as error:
            log.error("%s", error)  # the next look tries again

    async def _close(self) -> None:
        for role in STOP_ORDER:
            stage = [child for child in self._children if child.role == role]
            for child in stage:
                child.stop()
            await asyncio.gather(*(child.ended(self._hurry) for child in stage))
        if self._embedded is not None:
            await asyncio.to_thread(self._embedded.stop)


def free_port(host: str, port: int) -> int:
    """The port if a server could listen on it now; any free one for 0."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
            return int(probe.getsockname()[1])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why = f"port {port} on {host} is in use: stop what listens there, or choose another with --port"
        else:
            why = f"cannot listen on {host} port {port}: {error.strerror or error}"
        raise StartupError(why) from None


async def _until_ready(config: Config) -> None:
    deadline = time.monotonic() + START_PATIENCE
    while True:
        answer = await asyncio.to_thread(_ask_ready, config)
        if answer is None:
            return
        if time.monotonic() > deadline:
            raise StartupError(f"the server is not ready after {START_PATIENCE:g} s: {answer}")
        await asyncio.sleep(READY_EVERY)


def _ask_ready(config: Config) -> str | None:
    """None if the server can make progress, else what it said."""
    connection = http.client.HTTPConnection(config.host, config.port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        body = response.read(2000).decode(errors="replace")
        return None if response.status == 200 else f"{response.status} {body}"
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    finally:
        connection.close()
