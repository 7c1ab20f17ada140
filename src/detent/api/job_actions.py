"""/jobs/{id}/…: pausing, resuming and running a job; what it ran, what was decided, what comes next."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime
from itertools import islice

from litestar import get, post

from detent.api import decide, render
from detent.api.answer import Answer
from detent.api.body import AnyRequest, Query, path_id
from detent.api.executions import STATUSES
from detent.api.jobs import find
from detent.api.keys import action_key, request_key
from detent.api.paging import PARAMETERS, cursor_of, ledger_cursor_of, ledger_place_of, place_of
from detent.api.state import state_of
from detent.store.executions import ExecutionFilter, list_executions
from detent.store.jobs import Change, RunAsked, Standing, change_job, list_fires
from detent.when.of import rule_of
from detent.when.rule import fires
from detent.when.strange import hints
from detent.when.words import in_words

SHOWN_FIRES, MOST_FIRES = 5, 1_000


@post("/jobs/{job_id:str}/pause", status_code=200)
async def pause(request: AnyRequest) -> Answer:
    return await _change(request, "pause", lambda standing, now: decide.pause(standing))


@post("/jobs/{job_id:str}/resume", status_code=200)
async def resume(request: AnyRequest) -> Answer:
    return await _change(request, "resume", decide.resume)


async def _change(
    request: AnyRequest, verb: str, change: Callable[[Standing, datetime], Change | None]
) -> Answer:
    state = state_of(request)
    target = path_id(request.path_params["job_id"], "job")
    key = request_key(f"{verb}/{target}", await action_key(request), b"")
    now = state.clock.now()
    changed = await change_job(
        state.database, state.tenant, target, lambda standing: change(standing, now), now, key
    )
    if changed.changed:
        state.notifier.timers([target])
    return render.json_answer(render.job(changed.job))


@post("/jobs/{job_id:str}/run", status_code=202)
async def run(request: AnyRequest) -> Answer:
    state = state_of(request)
    target = path_id(request.path_params["job_id"], "job")
    key = await action_key(request)
    identity = key if key is not None else secrets.token_hex(16)
    asked = request_key(f"run/{target}", key, b"")
    started = await state.run_job(RunAsked(target, identity, state.clock.now(), asked))
    if started.new:
        state.notifier.queue([started.pool])
    headers = {"location": f"/api/v1/executions/{started.execution.execution_id}"}
    return render.json_answer(render.execution(started.execution), 202, headers)


@get("/jobs/{job_id:str}/executions")
async def executions(request: AnyRequest) -> Answer:
    state = state_of(request)
    query = Query(request, "status", *PARAMETERS)
    status = query.choice("status", STATUSES)
    place = place_of(query)
    query.done()
    standing = await find(state, request.path_params["job_id"])
    wanted = ExecutionFilter(standing.job.job_id, status)
    found = await list_executions(
        state.database, state.tenant, wanted, before=place.before, limit=place.limit, skip=place.skip
    )
    return render.json_answer(render.page(map(render.execution, found.items), cursor_of(found.next_before)))


@get("/jobs/{job_id:str}/fires")
async def ledger(request: AnyRequest) -> Answer:
    state = state_of(request)
    query = Query(request, "limit", "cursor")
    limit, before = ledger_place_of(query)
    query.done()
    standing = await find(state, request.path_params["job_id"])
    found = await list_fires(state.database, state.tenant, standing.job.job_id, before, limit + 1)
    shown = found[:limit]
    more = len(found) > limit
    cursor = ledger_cursor_of(shown[-1].nominal_at, shown[-1].generation) if more else None
    return render.json_answer(render.page(map(render.fire, shown), cursor))


@get("/jobs/{job_id:str}/next")
async def upcoming(request: AnyRequest) -> Answer:
    """The instants at which the job will fire: none while it is paused or over."""
    query = Query(request, "count")
    count = query.whole("count", SHOWN_FIRES, 1, MOST_FIRES)
    query.done()
    standing = await find(state_of(request), request.path_params["job_id"])
    job = standing.job
    rule = rule_of(job.spec, job.armed_at, job.job_id.int)
    instants = []
    if job.next_run_at is not None:
        instants = [job.next_run_at, *islice(fires(rule, job.next_run_at), count - 1)]
    body = {
        "fires": [render.instant(at) for at in instants],
        "description": in_words(rule),
        "hints": hints(job.spec.cron or ""),
    }
    return render.json_answer(body)
