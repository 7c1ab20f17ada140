"""Lists: filters, and pages that lead through everything once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from api_client import Api

POOLS = ("default", "reports", "etl")
NAMES = ("a", "b", "c", "ünïcode/x y")


def ids(items: list[dict[str, Any]], name: str = "job_id") -> list[str]:
    return [item[name] for item in items]


async def many_jobs(api: Api) -> list[dict[str, Any]]:
    """Forty-two jobs of every kind, as they stand when all is said and done."""
    specs = [
        {
            "name": NAMES[i % 4],
            "tags": [tag for tag, every in (("even", 2), ("third", 3), ("a,b&c", 5)) if i % every == 0],
            "pool": POOLS[i % 3],
            **({"delay": 0} if i % 6 == 5 else {"cron": "0 0 1 1 *"}),
        }
        for i in range(42)
    ]
    made = (await api.post("/jobs/batch", {"jobs": specs})).body["items"]
    for i, job in enumerate(made):
        if i % 7 == 1:
            await api.post(f"/jobs/{job['job_id']}/pause")
        if i % 7 == 2:
            await api.delete(f"/jobs/{job['job_id']}")
    await api.stage.fire()
    claims = await api.stage.claim(await api.stage.worker(pools=POOLS), pools=POOLS)
    for claim, outcome in zip(claims, ("succeeded", "failed", None) * 9, strict=False):
        if outcome is not None:
            await api.stage.record(api.stage.ended(claim, outcome, retryable=False))
    return [await api.read(job) for job in made]


FILTERS: list[dict[str, str]] = [
    {},
    {"tag": "even"},
    {"tag": "a,b&c"},
    {"tag": "none"},
    {"name": "b"},
    {"name": "ünïcode/x y"},
    {"pool": "default"},
    {"pool": "etl"},
    *(
        {"status": status}
        for status in ("scheduled", "paused", "running", "completed", "failed", "cancelled")
    ),
    {"tag": "even", "status": "scheduled"},
    {"name": "a", "status": "paused"},
    {"pool": "reports", "status": "cancelled"},
    {"tag": "third", "pool": "default", "status": "running"},
    {"tag": "even", "name": "c", "pool": "etl", "status": "scheduled"},
]


def passes(job: dict[str, Any], wanted: dict[str, str]) -> bool:
    return all(
        value in job["tags"] if field == "tag" else job[field] == value for field, value in wanted.items()
    )


async def test_every_filter_finds_what_it_should_on_pages_of_every_size(api: Api) -> None:
    jobs = sorted(await many_jobs(api), key=lambda job: UUID(job["job_id"]), reverse=True)
    seen = {job["status"] for job in jobs}
    assert seen == {"scheduled", "paused", "running", "completed", "failed", "cancelled"}
    for wanted in FILTERS:
        expected = [job for job in jobs if passes(job, wanted)]
        query = "&".join(f"{name}={_quoted(value)}" for name, value in wanted.items())
        for limit in (4, 500):
            found = await api.pages(f"/jobs?{query}&limit={limit}")
            assert found == expected, (wanted, limit)
        by_page: list[dict[str, Any]] = []
        for page in range(1, 5):
            by_page += (await api.get(f"/jobs?{query}&limit=14&page={page}")).body["items"]
        assert by_page == expected, wanted


def _quoted(value: str) -> str:
    return quote(value, safe="")


async def test_a_page_has_fifty_items_unless_asked_otherwise(api: Api) -> None:
    await api.post("/jobs/batch", {"jobs": [{"name": "n"}] * 51})
    first = (await api.get("/jobs")).body
    assert len(first["items"]) == 50
    assert first["next_cursor"] is not None
    rest = (await api.get(f"/jobs?cursor={first['next_cursor']}")).body
    assert (len(rest["items"]), rest["next_cursor"]) == (1, None)
    exact = (await api.get("/jobs?limit=51")).body
    assert (len(exact["items"]), exact["next_cursor"]) == (51, None)


async def test_newest_come_first(api: Api) -> None:
    made = [await api.job(name=str(n)) for n in range(5)]
    assert ids((await api.get("/jobs")).body["items"]) == ids(made)[::-1]


async def test_what_is_created_meanwhile_does_not_shift_the_pages(api: Api) -> None:
    made = [await api.job(name=str(n)) for n in range(6)]
    first = (await api.get("/jobs?limit=3")).body
    await asyncio.gather(*(api.job(name="new") for _ in range(5)))
    rest = (await api.get(f"/jobs?limit=3&cursor={first['next_cursor']}")).body
    assert ids([*first["items"], *rest["items"]]) == ids(made)[::-1]


@pytest.mark.parametrize("listed", ["/jobs", "/executions"])
async def test_a_wrong_place_is_refused_by_its_name(api: Api, listed: str) -> None:
    for limit in ("0", "501", "-1", "x", "1.5", "1e2", "%D9%A3", "9" * 30):
        (await api.get(f"{listed}?limit={limit}")).refuses("limit", "out_of_range", "500")
    for cursor in ("x", "AAAA", "!!!!", "A" * 23, "%00", "ä", "QUJD" * 20):
        (await api.get(f"{listed}?cursor={_quoted(cursor) if cursor == 'ä' else cursor}")).refuses("cursor")
    for page in ("0", "-1", "x", "10001"):
        (await api.get(f"{listed}?page={page}")).refuses("page")
    (await api.get(f"{listed}?limit=500&page=22")).refuses("page", "out_of_range", "cursor")
    assert (await api.get(f"{listed}?limit=500&page=21")).body["items"] == []
    place = "AAAAAAAAAAAAAAAAAAAAAA"
    (await api.get(f"{listed}?cursor={place}&page=2")).refuses("page", "conflicting_fields")
    assert (await api.get(f"{listed}?cursor={place}")).body == {"items": [], "next_cursor": None}
    (await api.get(f"{listed}?status=happy")).refuses("status", "invalid", "running")


async def test_a_parameter_sent_empty_was_not_filled_in(api: Api) -> None:
    job = await api.job()
    answer = await api.get("/jobs?tag=&status=&name=&pool=&cursor=&limit=&page=")
    assert answer.body["items"] == [job]


async def many_executions(api: Api) -> tuple[list[dict[str, Any]], list[str]]:
    """Executions in every state there is so far, of two jobs, newest first."""
    jobs = [await api.job(name=str(n), max_retries=1) for n in range(2)]
    for i in range(36):
        await api.post(f"/jobs/{jobs[i % 2]['job_id']}/run")
    claims = await api.stage.claim(await api.stage.worker(), 24)
    for i, claim in enumerate(claims):
        outcome = ("succeeded", "failed", "dead", None)[i % 4]
        if outcome is not None:
            told = "failed" if outcome == "dead" else outcome
            await api.stage.record(api.stage.ended(claim, told, retryable=outcome != "dead"))
    open_ones = (await api.get("/executions?status=queued&limit=500")).body["items"]
    for one in open_ones[:4]:
        await api.post(f"/executions/{one['execution_id']}/cancel")
    items = (await api.get("/executions?limit=500")).body["items"]
    return items, ids(jobs)


async def test_executions_are_found_by_status_and_job_on_pages_of_every_size(api: Api) -> None:
    items, jobs = await many_executions(api)
    assert len(items) == 36
    assert all(UUID(a["execution_id"]) > UUID(b["execution_id"]) for a, b in pairwise(items))
    statuses = {item["status"] for item in items}
    assert statuses == {"queued", "running", "retrying", "succeeded", "dead_lettered", "cancelled"}
    for status in (None, *sorted(statuses), "held", "failed", "timed_out", "skipped"):
        for job_id in (None, *jobs):
            expected = [
                item
                for item in items
                if (status is None or item["status"] == status)
                and (job_id is None or item["job_id"] == job_id)
            ]
            query = "&".join(f"{k}={v}" for k, v in (("status", status), ("job_id", job_id)) if v)
            for limit in (3, 500):
                assert await api.pages(f"/executions?{query}&limit={limit}") == expected, (query, limit)
            if job_id is not None:
                of_job = f"/jobs/{job_id}/executions?limit=7" + (f"&status={status}" if status else "")
                assert await api.pages(of_job) == expected
            pages = [
                (await api.get(f"/executions?{query}&limit=12&page={n}")).body["items"] for n in range(1, 4)
            ]
            assert [item for page in pages for item in page] == expected


async def test_executions_of_an_unknown_job_are_none(api: Api) -> None:
    await many_executions(api)
    for job_id in ("nonsense", "01890000-0000-7000-8000-000000000000"):
        assert (await api.get(f"/executions?job_id={job_id}")).body == {"items": [], "next_cursor": None}


async def test_the_ledger_is_read_page_by_page(api: Api) -> None:
    first = api.stage.now().replace(microsecond=0) - timedelta(minutes=30)
    job_id = await api.stage.job(first, armed_at=first - timedelta(minutes=1), every=60)
    for _ in range(4):
        await api.post(f"/jobs/{job_id}/pause")
        await api.post(f"/jobs/{job_id}/resume")
        await api.stage.db.execute(
            "update detent.timers set due_at = $2, decided_through = null, generation = generation + 1"
            " where job_id = $1",
            job_id,
            first,
        )
    whole = (await api.get(f"/jobs/{job_id}/fires")).body["items"]
    assert [fire["generation"] for fire in whole] == [4, 3, 2, 1]
    assert await api.pages(f"/jobs/{job_id}/fires?limit=1") == whole
    assert await api.pages(f"/jobs/{job_id}/fires?limit=3") == whole
    for cursor in ("x", "AAAA", "AAAAAAAAAAAAAAAAAAAAAA", "f_________8AAAAB"):
        (await api.get(f"/jobs/{job_id}/fires?cursor={cursor}")).refuses("cursor")
    (await api.get(f"/jobs/{job_id}/fires?limit=501")).refuses("limit")
    (await api.get(f"/jobs/{job_id}/fires?page=2")).refuses("page", "unknown_field")
