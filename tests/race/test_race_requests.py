"""Requests that share a statement: each is done or refused for itself, and repeats meet what they repeat."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

from detent.model.errors import Conflict, NotFound
from detent.model.ids import new_job_id
from detent.model.job import JobSpec, PythonTask
from detent.store.jobs import (
    Draft,
    KeyReused,
    Made,
    RequestKey,
    Run,
    RunAsked,
    cancel_job,
    create_each,
    run_each,
)
from detent.store.sql import Queries
from stage import MINUTE, TENANT, Stage

queries = Queries.load()


def draft(stage: Stage, name: str, key: str | None = None, body: bytes = b"the body") -> Draft:
    now = stage.now()
    spec = JobSpec(name=name, task=PythonTask("noop"), every=60.0, tags=(name, "all"))
    asked = None if key is None else RequestKey("jobs", key, body)
    return Draft(new_job_id(now), spec, "null", now + MINUTE, key, asked, armed_at=now)


def asked(stage: Stage, job_id: UUID, key: str | None = None) -> RunAsked:
    identity = key or new_job_id(stage.now()).hex
    named = None if key is None else RequestKey(f"run/{job_id}", key, b"")
    return RunAsked(job_id, identity, stage.now(), named)


async def count(stage: Stage, table: str) -> int:
    found: int = await stage.db.fetchval(f"select count(*) from detent.{table}")
    return found


async def test_jobs_made_together_each_have_their_own_rows_and_instants(stage: Stage) -> None:
    drafts = [draft(stage, name) for name in ("a", "b")]
    drafts[1] = Draft(
        drafts[1].job_id, drafts[1].spec, "7", None, armed_at=drafts[0].armed_at + timedelta(seconds=5)
    )
    made = await create_each(stage.db, TENANT, drafts)
    for one, wanted in zip(made, drafts, strict=True):
        assert isinstance(one, Made)
        assert one.new
        row = await stage.db.fetchrow(
            "select j.created_at, r.armed_at, r.payload, t.due_at, t.status from detent.jobs j "
            "join detent.job_revisions r using (job_id) join detent.timers t using (job_id) where job_id = $1",
            wanted.job_id,
        )
        assert row is not None
        status = "idle" if wanted.due_at is None else "scheduled"
        assert tuple(row) == (wanted.armed_at, wanted.armed_at, wanted.payload, wanted.due_at, status)
        assert one.job.armed_at == wanted.armed_at
    assert await count(stage, "job_tags") == 4


async def test_two_of_one_statement_with_the_same_key_are_one_job(stage: Stage) -> None:
    drafts = [
        draft(stage, "a", "k"),
        draft(stage, "b"),
        draft(stage, "a", "k"),
        draft(stage, "a", "k", b"other"),
    ]
    first, second, third, fourth = await create_each(stage.db, TENANT, drafts)
    assert isinstance(first, Made)
    assert isinstance(second, Made)
    assert isinstance(third, Made)
    assert (first.job.job_id == third.job.job_id, {first.new, third.new}) == (True, {True, False})
    assert isinstance(fourth, KeyReused)
    for table in ("jobs", "timers", "job_revisions"):
        assert await count(stage, table) == 2
    assert await count(stage, "request_keys") == 1


async def test_a_key_that_somebody_else_is_using_is_waited_for(stage: Stage) -> None:
    mine, other = draft(stage, "a", "k"), draft(stage, "b")
    async with stage.db.connection() as somebody:
        using = somebody.transaction()
        await using.start()
        await somebody.fetch(queries.claim_request_keys, TENANT, ["jobs"], ["k"], [b"x"], [other.job_id])
        waiting = asyncio.create_task(create_each(stage.db, TENANT, [mine, other]))
        await stage.until_blocked(1)
        await using.rollback()
    assert [isinstance(one, Made) and one.new for one in await waiting] == [True, True]


async def test_runs_asked_for_together_are_each_queued_or_refused(stage: Stage) -> None:
    good, gone = await stage.jobs([None, None], priority="high", deadline_seconds=60.0, pool="reports")
    await cancel_job(stage.db, TENANT, gone, stage.now(), None)
    unknown = new_job_id(stage.now())
    questions = [asked(stage, one) for one in (good, gone, unknown, good)]
    first, refused, missing, again = await run_each(stage.db, TENANT, questions)
    assert isinstance(refused, Conflict)
    assert isinstance(missing, NotFound)
    assert isinstance(first, Run)
    assert isinstance(again, Run)
    assert first.execution.execution_id != again.execution.execution_id
    rows = await stage.db.fetch(
        "select job_id, class, pool, state, cause, deadline_at - queued_at as patience from detent.live"
    )
    wanted = (good, 1, "reports", "queued", "manual", timedelta(seconds=60))
    assert [tuple(row) for row in rows] == [wanted, wanted]
    assert first.pool == "reports"


async def test_a_run_is_answered_as_it_stands(stage: Stage) -> None:
    job_id = await stage.job(None)
    [run] = await run_each(stage.db, TENANT, [asked(stage, job_id)])
    assert isinstance(run, Run)
    row = await stage.db.fetchrow(queries.read_execution, TENANT, run.execution.execution_id)
    assert row is not None
    for field in run.execution.__struct_fields__:
        assert getattr(run.execution, field) == row[field], field


async def test_runs_with_one_key_are_one_execution(stage: Stage) -> None:
    job_id = await stage.job(None)
    questions = [asked(stage, job_id, "k"), asked(stage, job_id, "k")]
    first, second = await run_each(stage.db, TENANT, questions)
    assert isinstance(first, Run)
    assert isinstance(second, Run)
    assert first.execution.execution_id == second.execution.execution_id
    assert {first.new, second.new} == {True, False}
    assert await count(stage, "live") == 1


async def test_a_run_beside_a_cancel_waits_for_it_and_holds_up_no_other(stage: Stage) -> None:
    held, free = await stage.jobs([None, None])
    async with stage.db.transaction() as cancelling:
        await cancelling.fetchval(queries.lock_timer, TENANT, held)
        runs = asyncio.create_task(run_each(stage.db, TENANT, [asked(stage, held), asked(stage, free)]))
        await stage.until_blocked(1)
        assert await count(stage, "live") == 1  # the other one is queued by now
        await cancelling.execute(queries.change_timer, TENANT, held, "done", None, None, 1, stage.now())
        await cancelling.execute(queries.end_job, TENANT, held, "cancelled", stage.now())
    refused, queued = await runs
    assert isinstance(refused, Conflict)
    assert isinstance(queued, Run)
