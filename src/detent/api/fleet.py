"""/fleet: who is there. Scheduler nodes, shard leases, workers."""

from __future__ import annotations

from litestar import get

from detent.api import render
from detent.api.answer import Answer
from detent.api.body import AnyRequest, Query
from detent.api.state import state_of
from detent.store.fleet import list_nodes, list_shards, list_workers

LIMIT, MOST = 50, 500


@get("/fleet/nodes")
async def nodes(request: AnyRequest) -> Answer:
    """Those that live first, then those that ended of late."""
    state = state_of(request)
    limit = _limit(request)
    found = await list_nodes(state.database, state.tenant, limit)
    return render.json_answer(render.page(map(render.node, found), None))


@get("/fleet/shards")
async def shards(request: AnyRequest) -> Answer:
    """All 256, with their owner, its epoch, and how far behind the shard is."""
    state = state_of(request)
    Query(request).done()
    now = state.clock.now()
    found = await list_shards(state.database, state.tenant)
    return render.json_answer(render.page((render.shard(one, now) for one in found), None))


@get("/fleet/workers")
async def workers(request: AnyRequest) -> Answer:
    """Those that live first, then those that ended of late."""
    state = state_of(request)
    limit = _limit(request)
    found = await list_workers(state.database, state.tenant, limit)
    return render.json_answer(render.page(map(render.worker, found), None))


def _limit(request: AnyRequest) -> int:
    query = Query(request, "limit")
    limit = query.whole("limit", LIMIT, 1, MOST)
    query.done()
    return limit
