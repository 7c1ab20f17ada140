"""Figures, and whether this server lives and can work."""

from __future__ import annotations

import msgspec
from litestar import Response, get

from detent.api import render
from detent.api.answer import Answer
from detent.api.body import AnyRequest, Query
from detent.api.problem import problem
from detent.api.state import state_of
from detent.model.errors import StoreUnavailable
from detent.store.stats import read_fleet, read_overview, schema_problem


@get("/stats/overview")
async def overview(request: AnyRequest) -> Answer:
    state = state_of(request)
    Query(request).done()
    found = await read_overview(state.database, state.tenant, state.clock.now())
    return render.json_answer(render.overview(found))


@get("/healthz")
async def healthz() -> Answer:
    """This process answers; nothing else is asked."""
    return render.json_answer({"status": "ok"})


@get("/readyz")
async def readyz(request: AnyRequest) -> Response[bytes]:
    """The store can be read and written with this program; says too who else is there."""
    state = state_of(request)
    try:
        wrong = await schema_problem(state.database)
        fleet = await read_fleet(state.database, state.tenant)
    except StoreUnavailable as error:
        return _not_ready(str(error))
    if wrong is None and fleet.read_only:
        wrong = "the database takes no writes: it is a replica, or it was set read-only"
    if wrong is not None:
        return _not_ready(wrong)
    body = {
        "status": "ready",
        "scheduler": fleet.shards_leased > 0,
        "workers": fleet.workers_live > 0,
        "fleet": render.fleet(fleet),
    }
    return Response(msgspec.json.encode(body), status_code=200, media_type="application/json")


def _not_ready(why: str) -> Response[bytes]:
    return problem(503, "not_ready", why, headers={"retry-after": "1"})
