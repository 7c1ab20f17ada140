"""The wall between tenants: what belongs to another one is not there."""

from __future__ import annotations

from uuid import UUID

from api_client import Api

OTHER = 2


async def strangers_job(api: Api) -> tuple[UUID, UUID]:
    """A paused job of another tenant, with the name, tag and pool of one of ours, and an execution."""
    await api.stage.db.execute(
        "insert into detent.tenants (tenant, name) values ($1, 'stranger') on conflict do nothing", OTHER
    )
    job_id = await api.stage.once(tenant=OTHER, name="same", tags=("t",), pool="p")
    assert await api.stage.fire() == 1
    await api.stage.db.execute("update detent.timers set status = 'paused' where job_id = $1", job_id)
    row = await api.stage.row("live", job_id)
    return job_id, row["execution_id"]


async def test_another_tenants_job_is_not_found_by_anything(api: Api) -> None:
    job_id, execution_id = await strangers_job(api)
    before = await api.stage.everything()
    for path in ("", "/executions", "/fires", "/next"):
        assert (await api.get(f"/jobs/{job_id}{path}")).status == 404, path
    for verb in ("pause", "resume", "run"):
        assert (await api.post(f"/jobs/{job_id}/{verb}")).status == 404, verb
    assert (await api.patch(f"/jobs/{job_id}", {"priority": "high"})).status == 404
    assert (await api.delete(f"/jobs/{job_id}")).status == 404
    for path in ("", "/logs", "/logs?follow=true"):
        assert (await api.get(f"/executions/{execution_id}{path}")).status == 404
    assert (await api.post(f"/executions/{execution_id}/cancel")).status == 404
    assert await api.stage.everything() == before


async def test_lists_and_figures_leave_out_other_tenants(api: Api) -> None:
    job_id, _ = await strangers_job(api)
    queries = (
        "",
        "?name=same",
        "?tag=t",
        "?pool=p",
        "?status=paused",
        "?status=running",
        "?status=scheduled",
    )
    for query in queries:
        assert (await api.get(f"/jobs{query}")).body["items"] == [], query
    for query in ("", "?status=queued", f"?job_id={job_id}", "?status=dead_lettered"):
        assert (await api.get(f"/executions{query}")).body["items"] == [], query
    overview = (await api.get("/stats/overview")).body
    assert set(overview["jobs"].values()) == {0}
    assert overview["executions"] == {"open": {}, "closed_last_hour": {}, "closed_last_day": {}}
    assert overview["due"] == {"next_minute": 0, "next_hour": 0}


async def test_names_and_keys_belong_to_a_tenant(api: Api) -> None:
    job_id, _ = await strangers_job(api)
    db = api.stage.db
    await db.execute("update detent.jobs set by_name = true where job_id = $1", job_id)
    await db.execute(
        "insert into detent.request_keys (tenant, scope, key, body_hash, subject)"
        " values ($1, 'jobs', 'k', '', $2)",
        OTHER,
        job_id,
    )
    assert (await api.put("/jobs/by-name/same", {"every": 60})).status == 201
    assert (await api.post("/jobs", {"name": "n", "idempotency_key": "k"})).status == 201
