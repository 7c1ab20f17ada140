"""Paging by key, while others insert, close and move what is being listed.

Whatever happens between two pages: nothing is listed twice, nothing that was there from the first page to
the last is missing, and what is listed is newest first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from detent.model.execution import Execution
from detent.model.ids import execution_id, new_job_id
from detent.model.job import Job, JobSpec, PythonTask
from detent.store.executions import ExecutionFilter, list_executions
from detent.store.jobs import Draft, JobFilter, create_jobs, list_jobs
from detent.store.listing import Page, Stretch, fill_page
from stage import SECOND, Stage

# One stage for all examples of a test: each example has a tenant of its own, and sees nobody else's rows.
on_one_stage = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_tenants = count(2)
_keys = count()


async def new_tenant(stage: Stage) -> int:
    tenant = next(_tenants)
    await stage.db.execute("insert into detent.tenants (tenant, name) values ($1, $2)", tenant, f"t{tenant}")
    return tenant


async def add_jobs(
    stage: Stage, tenant: int, number: int, *, age: timedelta = timedelta(0), **fields: Any
) -> list[UUID]:
    now = stage.now() - age
    spec = JobSpec(name="job", task=PythonTask("noop"), **fields)
    drafts = [Draft(new_job_id(now), spec, "null", now + timedelta(days=1)) for _ in range(number)]
    await create_jobs(stage.db, tenant, drafts, now)
    return [draft.job_id for draft in drafts]


def newest_first(ids: list[UUID]) -> bool:
    return ids == sorted(ids, reverse=True)


@on_one_stage
@given(
    before=st.integers(0, 12),
    limits=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    between=st.lists(st.integers(0, 4), max_size=6),
    age=st.sampled_from([0, 1, 3600]),
)
@example(before=4, limits=[2], between=[], age=0)  # full pages up to the very end
async def test_pages_of_jobs_neither_repeat_nor_miss_while_others_are_made(
    stage: Stage, before: int, limits: list[int], between: list[int], age: int
) -> None:
    tenant = await new_tenant(stage)
    present = await add_jobs(stage, tenant, before)
    listed: list[UUID] = []
    at: UUID | None = None
    for turn in count():
        page = await list_jobs(stage.db, tenant, JobFilter(), before=at, limit=limits[turn % len(limits)])
        listed += [job.job_id for job in page.items]
        at = page.next_before
        if at is None:
            break
        # A clock that is behind makes ids in the middle of the list.
        await add_jobs(stage, tenant, between[turn % len(between)] if between else 0, age=age * SECOND)
        assert turn < 100
    assert len(listed) == len(set(listed))
    assert set(present) <= set(listed)
    assert newest_first(listed)


filters = st.sampled_from(
    [
        JobFilter(name="job"),
        JobFilter(tag="red"),
        JobFilter(pool="reports"),
        JobFilter(status="completed"),
        JobFilter(status="paused"),
        JobFilter(status="scheduled"),
        JobFilter(tag="red", pool="reports"),
        JobFilter(tag="red", status="paused"),
        JobFilter(pool="reports", status="completed"),
    ]
)


@on_one_stage
@given(
    wanted=filters,
    kinds=st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from("spc")), max_size=14),
    limit=st.integers(1, 4),
)
async def test_a_filtered_list_holds_exactly_the_jobs_that_match(
    stage: Stage, wanted: JobFilter, kinds: list[tuple[bool, bool, str]], limit: int
) -> None:
    tenant = await new_tenant(stage)
    matching: set[UUID] = set()
    for red, reports, state in kinds:
        pool = "reports" if reports else "default"
        [job_id] = await add_jobs(stage, tenant, 1, tags=("red",) if red else (), pool=pool)
        if state == "p":
            await stage.db.execute("update detent.timers set status = 'paused' where job_id = $1", job_id)
        if state == "c":
            await stage.db.execute(
                "insert into detent.job_ends (tenant, job_id, status) values ($1, $2, 'completed')",
                tenant,
                job_id,
            )
        status = {"s": "scheduled", "p": "paused", "c": "completed"}[state]
        if (
            wanted.tag in (None, "red" if red else "")
            and wanted.pool in (None, pool)
            and wanted.status in (None, status)
        ):
            matching.add(job_id)
    listed: list[UUID] = []
    at: UUID | None = None
    for turn in count():
        page = await list_jobs(stage.db, tenant, wanted, before=at, limit=limit)
        listed += [job.job_id for job in page.items]
        at = page.next_before
        if at is None:
            break
        assert turn < 100
    assert newest_first(listed)
    assert len(listed) == len(matching)
    assert set(listed) == matching


QUEUE = """
insert into detent.live (execution_id, job_id, scheduled_for, not_before, queued_at, rank, tenant, revision,
                         class, ends_job, state, cause, pool)
select name, $2, at, at, at, detent.rank(at, 2::smallint), $4, 1, 2, false, 'queued', 'manual', 'default'
from unnest($1::uuid[], $3::timestamptz[]) as g (name, at)
"""
CLOSE = """
with gone as (
    delete from detent.live where execution_id in (
        select execution_id from detent.live where tenant = $1 order by md5(execution_id::text) limit $2)
    returning *
)
insert into detent.executions (execution_id, job_id, scheduled_for, queued_at, finished_at, tenant, revision,
                               attempt, failures, losses, class, status, cause, pool)
select execution_id, job_id, scheduled_for, queued_at, clock_timestamp(), tenant, revision,
       1, 0, 0, class, $3, cause, pool
from gone
"""


async def queue(stage: Stage, tenant: int, job_id: UUID, ages: list[int]) -> list[UUID]:
    """Executions as they come: the id follows the instant, so a late fire lands in the middle of the list."""
    now = stage.now()
    instants = [now - age * SECOND for age in ages]
    names = [execution_id(at, job_id, "manual", str(next(_keys))) for at in instants]
    await stage.db.execute(QUEUE, names, job_id, instants, tenant)
    return names


async def close_some(stage: Stage, tenant: int, number: int, status: str) -> None:
    """Move open executions to the history, from anywhere in the list."""
    await stage.db.execute(CLOSE, tenant, number, status)


ages = st.lists(st.sampled_from([0, 1, 60, 3600, 86_400, 3 * 86_400]), max_size=12)


@on_one_stage
@given(
    before=ages,
    closed=st.integers(0, 8),
    limits=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    between=st.lists(st.tuples(ages, st.integers(0, 4)), min_size=1, max_size=4),
    by_job=st.booleans(),
)
async def test_pages_of_executions_neither_repeat_nor_miss_while_others_start_and_close(
    stage: Stage,
    before: list[int],
    closed: int,
    limits: list[int],
    between: list[tuple[list[int], int]],
    by_job: bool,
) -> None:
    tenant = await new_tenant(stage)
    [job_id] = await add_jobs(stage, tenant, 1)
    present = await queue(stage, tenant, job_id, before)
    await close_some(stage, tenant, closed, "succeeded")
    wanted = ExecutionFilter(job_id=job_id if by_job else None)
    listed: list[UUID] = []
    at: UUID | None = None
    for turn in count():
        page = await list_executions(stage.db, tenant, wanted, before=at, limit=limits[turn % len(limits)])
        listed += [one.execution_id for one in page.items]
        at = page.next_before
        if at is None:
            break
        more, closing = between[turn % len(between)] if turn < 30 else ([], 0)
        await queue(stage, tenant, job_id, more)
        await close_some(stage, tenant, closing, "succeeded")
        assert turn < 300
    assert len(listed) == len(set(listed))
    assert set(present) <= set(listed)
    assert newest_first(listed)


@on_one_stage
@given(
    open_ages=ages,
    status=st.sampled_from(["queued", "succeeded", "dead_lettered", "cancelled"]),
    closings=st.lists(
        st.tuples(ages, st.sampled_from(["succeeded", "dead_lettered", "cancelled"])), max_size=4
    ),
    limit=st.integers(1, 4),
)
async def test_a_list_of_one_status_holds_exactly_those(
    stage: Stage, open_ages: list[int], status: str, closings: list[tuple[list[int], str]], limit: int
) -> None:
    tenant = await new_tenant(stage)
    [job_id] = await add_jobs(stage, tenant, 1)
    made: dict[str, set[UUID]] = {}
    for batch, end in closings:
        made.setdefault(end, set()).update(await queue(stage, tenant, job_id, batch))
        await close_some(stage, tenant, 100, end)
    made["queued"] = set(await queue(stage, tenant, job_id, open_ages))
    listed: list[Execution] = []
    at: UUID | None = None
    for turn in count():
        page = await list_executions(stage.db, tenant, ExecutionFilter(status=status), before=at, limit=limit)
        listed += page.items
        at = page.next_before
        if at is None:
            break
        assert turn < 300
    ids = [one.execution_id for one in listed]
    assert newest_first(ids)
    assert len(ids) == len(set(ids))
    assert set(ids) == made.get(status, set())
    assert {one.status for one in listed} <= {status}


async def test_pages_hold_while_many_write_at_the_same_moment(stage: Stage) -> None:
    tenant = await new_tenant(stage)
    jobs = await add_jobs(stage, tenant, 60)
    executions = await queue(stage, tenant, jobs[0], [n % 50 for n in range(60)])
    stop = asyncio.Event()

    async def disturb() -> int:
        rounds = 0
        while not stop.is_set():
            await add_jobs(stage, tenant, 2)
            await queue(stage, tenant, jobs[0], [0, 30])
            await close_some(stage, tenant, 3, "succeeded")
            rounds += 1
        return rounds

    disturbing = asyncio.create_task(disturb())
    try:
        seen_jobs = await all_pages(
            lambda at: list_jobs(stage.hot, tenant, JobFilter(), before=at, limit=7), lambda job: job.job_id
        )
        seen = await all_pages(
            lambda at: list_executions(stage.hot, tenant, ExecutionFilter(), before=at, limit=7),
            lambda one: one.execution_id,
        )
    finally:
        stop.set()
    assert await disturbing > 0
    for ids, present in ((seen_jobs, jobs), (seen, executions)):
        assert len(ids) == len(set(ids))
        assert set(present) <= set(ids)
        assert newest_first(ids)


async def all_pages(page_before: Callable[[UUID | None], Any], key: Callable[[Any], UUID]) -> list[UUID]:
    ids: list[UUID] = []
    page: Page[Job] | Page[Execution] = await page_before(None)
    while True:
        ids += [key(one) for one in page.items]
        if page.next_before is None:
            return ids
        page = await page_before(page.next_before)


@given(
    numbers=st.sets(st.integers(1, 200), max_size=40),
    every=st.integers(1, 5),
    limit=st.integers(1, 7),
    scan=st.integers(1, 9),
    looks=st.integers(1, 4),
    skip=st.integers(0, 6),
)
def test_a_page_that_runs_out_of_budget_says_where_to_go_on(
    numbers: set[int], every: int, limit: int, scan: int, looks: int, skip: int
) -> None:
    """However short the looks are, following the cursor to the end gives every match once."""
    ordered = sorted(numbers, reverse=True)

    async def look(before: UUID, scan: int, limit: int, skip: int) -> Stretch[int]:
        candidates = [n for n in ordered if n < before.int][:scan]
        matching = [n for n in candidates if n % every == 0]
        end = UUID(int=candidates[-1]) if len(candidates) >= scan else None
        return Stretch(matching[skip : skip + limit], len(matching), end)

    async def walk() -> list[int]:
        found: list[int] = []
        at: UUID | None = None
        left = skip
        for _ in range(1000):
            page = await fill_page(
                look, key=lambda n: UUID(int=n), exact=False, before=at, limit=limit, skip=left,
                scan=scan, looks=looks,
            )  # fmt: skip
            assert len(page.items) <= limit
            found += page.items
            left, at = 0, page.next_before
            if at is None:
                return found
        raise AssertionError("the list has no end")

    # A first page whose budget ends within what is to be skipped starts later; all else is exact.
    found = asyncio.run(walk())
    matching = [n for n in ordered if n % every == 0]
    if skip == 0:
        assert found == matching
    else:
        assert found == matching[len(matching) - len(found) :]


@pytest.mark.parametrize("skip", [0, 1, 5, 9, 10, 11])
async def test_skipping_gives_what_paging_gives_later(stage: Stage, skip: int) -> None:
    tenant = await new_tenant(stage)
    jobs = sorted(await add_jobs(stage, tenant, 10), reverse=True)
    page = await list_jobs(stage.db, tenant, JobFilter(), before=None, limit=4, skip=skip)
    assert [job.job_id for job in page.items] == jobs[skip : skip + 4]
    executions = sorted(await queue(stage, tenant, jobs[0], list(range(10))), reverse=True)
    await close_some(stage, tenant, 5, "succeeded")
    shown = await list_executions(stage.db, tenant, ExecutionFilter(), before=None, limit=4, skip=skip)
    assert [one.execution_id for one in shown.items] == executions[skip : skip + 4]
