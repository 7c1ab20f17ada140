"""/executions/{id}/logs: what an execution wrote, as text, or as it goes on, as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
from litestar import Response, get
from litestar.response import Stream

from detent.api import render
from detent.api.body import AnyRequest, Query, path_id
from detent.api.state import ApiState, state_of
from detent.model.errors import NotFound, StoreUnavailable
from detent.model.execution import CLOSED, Execution
from detent.store.executions import START, LogPiece, all_logs, read_execution, read_logs

LOOK_EVERY = 0.25
ALIVE_EVERY = 10.0


@get("/executions/{execution_id:str}/logs")
async def logs(request: AnyRequest) -> Response[bytes] | Stream:
    state = state_of(request)
    query = Query(request, "follow")
    follow = query.flag("follow")
    query.done()
    found = await read_execution(
        state.database, state.tenant, path_id(request.path_params["execution_id"], "execution")
    )
    if found is None:
        raise NotFound("no such execution")
    if not follow:
        pieces = all_logs(state.database, state.tenant, found, state.clock.now())
        whole = "".join([piece.text async for piece in pieces])
        return Response(whole.encode(), media_type="text/plain")
    after = _place(request.headers.get("last-event-id"))
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return Stream(_follow(state, found, after), media_type="text/event-stream", headers=headers)


async def _follow(state: ApiState, found: Execution, after: tuple[int, int]) -> AsyncIterator[bytes]:
    """Pieces as they come, then `end` with the status. A server that stops ends it without: ask anew."""
    quiet = 0.0
    yield b": following\n\n"
    while not state.stopping.is_set():
        try:
            # Read in this order, nothing is missed: what is over writes no more.
            latest = await read_execution(state.database, state.tenant, found.execution_id)
            found = latest or found
            pieces = await read_logs(state.database, state.tenant, found, after, state.clock.now())
        except StoreUnavailable:
            pieces, latest = [], found
        for piece in pieces:
            after = (piece.attempt, piece.seq)
            yield _event("log", _piece(piece), f"{piece.attempt}.{piece.seq}")
        if latest is None or (not pieces and found.status in CLOSED):
            yield _event("end", {"status": found.status})
            return
        if pieces:
            quiet = 0.0
            continue
        quiet += LOOK_EVERY
        if quiet >= ALIVE_EVERY:
            quiet = 0.0
            yield b": alive\n\n"
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(state.stopping.wait(), LOOK_EVERY)


def _event(name: str, data: object, place: str | None = None) -> bytes:
    mark = f"id: {place}\n" if place else ""
    return f"event: {name}\n{mark}data: ".encode() + msgspec.json.encode(data) + b"\n\n"


def _piece(piece: LogPiece) -> dict[str, object]:
    return {
        "attempt": piece.attempt,
        "seq": piece.seq,
        "stream": piece.stream,
        "logged_at": render.instant(piece.logged_at),
        "text": piece.text,
    }


def _place(text: str | None) -> tuple[int, int]:
    """Where a client that lost its connection was; an odd one starts over."""
    attempt, _, seq = (text or "").partition(".")
    short = len(attempt) < 9 and len(seq) < 9
    return (int(attempt), int(seq)) if short and attempt.isdecimal() and seq.isdecimal() else START
