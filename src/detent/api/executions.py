"""/executions: what ran, what is running, what waits."""

from __future__ import annotations

from litestar import get, post

from detent.api import render
from detent.api.answer import Answer
from detent.api.body import AnyRequest, Query, path_id
from detent.api.keys import action_key, request_key
from detent.api.paging import PARAMETERS, cursor_of, place_of
from detent.api.state import state_of
from detent.model.errors import NotFound
from detent.model.ids import parse_id
from detent.store.dead_letters import replay_of
from detent.store.executions import ExecutionFilter, list_executions
from detent.store.jobs import cancel_execution

STATUSES = (
    "held", "queued", "running", "retrying",
    "succeeded", "failed", "timed_out", "cancelled", "skipped", "dead_lettered",
)  # fmt: skip


@get("/executions")
async def list_all(request: AnyRequest) -> Answer:
    state = state_of(request)
    query = Query(request, "status", "job_id", *PARAMETERS)
    status = query.choice("status", STATUSES)
    place = place_of(query)
    of_job = query.text("job_id")
    job_id = None if of_job is None else parse_id(of_job)
    query.done()
    if of_job is not None and job_id is None:  # like an unknown one: it has none
        return render.json_answer(render.page([], None))
    found = await list_executions(
        state.database,
        state.tenant,
        ExecutionFilter(job_id, status),
        before=place.before,
        limit=place.limit,
        skip=place.skip,
    )
    return render.json_answer(render.page(map(render.execution, found.items), cursor_of(found.next_before)))


@get("/executions/{execution_id:str}")
async def read(request: AnyRequest) -> Answer:
    state = state_of(request)
    wanted = path_id(request.path_params["execution_id"], "execution")
    found = await state.read_detail(wanted)
    if found is None:
        raise NotFound("no such execution")
    body = render.detail(found)
    if found.execution.status == "dead_lettered":
        body["replayed_as"] = await replay_of(state.database, state.tenant, wanted)
    return render.json_answer(body)


@post("/executions/{execution_id:str}/cancel", status_code=200)
async def cancel(request: AnyRequest) -> Answer:
    """What no worker has is cancelled at once; what a worker has is asked to stop."""
    state = state_of(request)
    target = path_id(request.path_params["execution_id"], "execution")
    key = request_key(f"cancel/{target}", await action_key(request), b"")
    cancelled = await cancel_execution(state.database, state.tenant, target, state.clock.now(), key)
    state.notifier.orders(cancelled.workers)
    return render.json_answer(render.execution(cancelled.execution))
