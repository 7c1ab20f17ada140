"""The application, and the server that carries it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import socket
from collections.abc import Callable, Iterator

import uvicorn
from litestar import Litestar, Router, get
from litestar.datastructures import State

from detent.api import dead_letters, executions, fleet, job_actions, jobs, logs, openapi, schedules, stats
from detent.api.answer import Answer
from detent.api.body import AnyRequest
from detent.api.door import check
from detent.api.pages import routes as pages
from detent.api.problem import answer
from detent.api.render import json_answer
from detent.api.state import ApiState
from detent.model.errors import StartupError

__all__ = ["ApiState", "create_app", "serve"]

BASE = "/api/v1"
BODY_LIMIT = 1024 * 1024
STOP_SECONDS = 5
KEEP_ALIVE_SECONDS = 75
BACKLOG = 2048

API_HANDLERS = [
    jobs.create,
    jobs.create_batch,
    jobs.replace_by_name,
    jobs.list_all,
    jobs.read,
    jobs.edit,
    jobs.cancel,
    job_actions.pause,
    job_actions.resume,
    job_actions.run,
    job_actions.executions,
    job_actions.ledger,
    job_actions.upcoming,
    executions.list_all,
    executions.read,
    executions.cancel,
    logs.logs,
    schedules.preview,
    dead_letters.list_all,
    dead_letters.read,
    dead_letters.replay_one,
    dead_letters.discard_one,
    fleet.nodes,
    fleet.shards,
    fleet.workers,
    stats.overview,
]


@get("/openapi.json")
async def contract() -> Answer:
    return json_answer(openapi.document())


def create_app(state: ApiState) -> Litestar:
    async def let_in(request: AnyRequest) -> None:
        check(request)

    return Litestar(
        route_handlers=[
            Router(BASE, route_handlers=[*API_HANDLERS, contract]),
            stats.healthz,
            stats.readyz,
            *pages.HANDLERS,
        ],
        before_request=let_in,
        exception_handlers={Exception: answer},
        request_max_body_size=BODY_LIMIT,
        state=State({"detent": state}),
        openapi_config=None,
        logging_config=None,
    )


class _Server(uvicorn.Server):
    """Signals are the role's business, not the server's."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell()


async def serve(
    state: ApiState, host: str, port: int, ready: Callable[[str], None], stop: asyncio.Event
) -> None:
    """Answer on host:port until `stop`."""
    listening = _listen(host, port)
    config = uvicorn.Config(
        create_app(state),
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=True,
        http="httptools",
        ws="none",
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    server = _Server(config, lambda: ready(f"api: {address}"))

    async def end() -> None:
        await stop.wait()
        state.stopping.set()
        server.should_exit = True

    async with asyncio.TaskGroup() as group:
        ending = group.create_task(end())
        gc.collect()
        gc.freeze()  # what is here now stays: looking through it again would be a pause for everybody
        try:
            await server.serve(sockets=[listening])
        finally:
            ending.cancel()
            listening.close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise StartupError(
                f"port {port} of {host} is in use: name another with --port, or end what uses it"
            ) from error
        raise StartupError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listening
