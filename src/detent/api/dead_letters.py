"""/dead-letters: executions out of attempts, with all their context, waiting for a person."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import get, post

from detent.api import render
from detent.api.answer import Answer
from detent.api.body import AnyRequest, Fields, Query, header_key, headers_of, path_id, read_object, value_of
from detent.api.job_fields import read_payload
from detent.api.keys import body_hash, request_key
from detent.api.paging import cursor_of, place_of
from detent.api.refusals import Refusals
from detent.api.state import ApiState, state_of
from detent.api.values import text
from detent.api.vocabulary import refuse_unknown
from detent.model.errors import InvalidInput, NotFound
from detent.model.ids import parse_id
from detent.store.dead_letters import OpenedLetter, discard, list_dead_letters, read_dead_letter, replay
from detent.store.executions import read_detail

STATUSES = ("waiting", "replayed", "discarded")
LONGEST_NOTE = 1_000


@get("/dead-letters")
async def list_all(request: AnyRequest) -> Answer:
    state = state_of(request)
    query = Query(request, "status", "job_id", "limit", "cursor")
    status = query.choice("status", STATUSES) or "waiting"
    place = place_of(query)
    of_job = query.text("job_id")
    job_id = None if of_job is None else parse_id(of_job)
    query.done()
    if of_job is not None and job_id is None:
        return render.json_answer(render.page([], None))
    found = await list_dead_letters(
        state.database, state.tenant, job_id=job_id, status=status, before=place.before, limit=place.limit
    )
    return render.json_answer(render.page(map(render.dead_letter, found.items), cursor_of(found.next_before)))


@get("/dead-letters/{execution_id:str}")
async def read(request: AnyRequest) -> Answer:
    state = state_of(request)
    return render.json_answer(await _whole(state, await _find(state, request.path_params["execution_id"])))


@post("/dead-letters/{execution_id:str}/replay", status_code=202)
async def replay_one(request: AnyRequest) -> Answer:
    """A new execution that names its source, with the payload of this one or an edited one."""
    state = state_of(request)
    header = header_key(headers_of(request))
    source = path_id(request.path_params["execution_id"], "dead letter")
    fields = await read_object(request, optional=True)
    refusals = Refusals()
    refuse_unknown(fields, ("payload", "reason"), refusals)
    payload = read_payload("payload", fields["payload"], refusals) if "payload" in fields else None
    note = _note(fields, refusals)
    refusals.raise_any()
    key = request_key(f"replay/{source}", header, _meaning(note, payload))
    now = state.clock.now()
    started = await replay(state.database, state.tenant, source, payload, note, now, key)
    if started.new:
        state.notifier.queue([started.pool])
    headers = {"location": f"/api/v1/executions/{started.execution.execution_id}"}
    return render.json_answer(render.execution(started.execution), 202, headers)


@post("/dead-letters/{execution_id:str}/discard", status_code=200)
async def discard_one(request: AnyRequest) -> Answer:
    state = state_of(request)
    header = header_key(headers_of(request))
    target = path_id(request.path_params["execution_id"], "dead letter")
    fields = await read_object(request, optional=True)
    refusals = Refusals()
    refuse_unknown(fields, ("reason",), refusals)
    note = _note(fields, refusals)
    refusals.raise_any()
    key = request_key(f"discard/{target}", header, _meaning(note))
    await discard(state.database, state.tenant, target, note, state.clock.now(), key)
    return render.json_answer(await _whole(state, await _find(state, request.path_params["execution_id"])))


async def _find(state: ApiState, execution_id: str) -> OpenedLetter:
    found = await read_dead_letter(state.database, state.tenant, path_id(execution_id, "dead letter"))
    if found is None:
        raise NotFound("no such dead letter")
    return found


async def _whole(state: ApiState, opened: OpenedLetter) -> dict[str, Any]:
    detail = await read_detail(state.database, state.tenant, opened.letter.execution_id, state.clock.now())
    return {
        **render.dead_letter(opened.letter),
        "task": render.task(opened.spec.task),
        "payload": msgspec.Raw(opened.payload.encode()),
        "execution": None
        if detail is None
        else {**render.detail(detail), "replayed_as": opened.letter.replayed_as},
    }


def _note(fields: Fields, refusals: Refusals) -> str | None:
    if "reason" not in fields:
        return None
    value = value_of(fields["reason"], "reason", refusals)
    if value is None:
        return None
    try:
        return text("reason", value, LONGEST_NOTE, one_line=False)
    except InvalidInput as refusal:
        refusals.take(refusal)
        return None


def _meaning(note: str | None, payload: str | None = None) -> bytes:
    """The same for two requests that say the same, whatever their blanks and the order of their fields."""
    said: dict[str, Any] = {"reason": note}
    if payload is not None:  # none was given, which is not the payload null
        said["payload"] = msgspec.json.decode(payload)
    return body_hash(said)
