"""Claiming: under a token, by a worker that the store knows to be alive, best class first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from detent.cli.wiring import PostgresPort
from detent.model.ids import new_incarnation_id
from detent.store import work
from detent.store.jobs import cancel_job
from stage import MINUTE, SECOND, TENANT, Stage


async def queue(stage: Stage, count: int = 1, **fields: Any) -> None:
    await stage.jobs([stage.now() - SECOND] * count, scheduled_at=stage.now(), **fields)
    assert await stage.fire() == count


async def test_a_claim_makes_the_row_running_under_a_token(stage: Stage) -> None:
    await queue(stage)
    worker_id = await stage.worker()
    [claim] = await stage.claim(worker_id)
    [live] = await stage.rows("live")
    assert (live["state"], live["worker_id"], live["token"]) == ("running", worker_id, claim.token)
    assert (claim.attempt, live["attempt"]) == (1, 1)
    assert live["claimed_at"] is not None
    assert (claim.spec.name, claim.payload) == ("job", "null")


async def test_what_one_worker_has_no_other_gets(stage: Stage) -> None:
    await queue(stage, 10)
    first, second = await stage.worker(), await stage.worker()
    mine = {claim.execution_id for claim in await stage.claim(first, 6)}
    theirs = {claim.execution_id for claim in await stage.claim(second, 10)}
    assert (len(mine), len(theirs), mine & theirs) == (6, 4, set())
    assert await stage.claim(first) == []


async def test_a_worker_that_never_registered_gets_nothing(stage: Stage) -> None:
    await queue(stage)
    before = await stage.everything()
    assert await stage.claim(new_incarnation_id()) == []
    assert await stage.everything() == before


@pytest.mark.parametrize("status", ["draining", "stopped", "lost"])
async def test_a_worker_that_is_not_live_gets_nothing(stage: Stage, status: str) -> None:
    await queue(stage)
    worker_id = await stage.worker()
    await stage.db.execute("update detent.workers set status = $2 where worker_id = $1", worker_id, status)
    before = await stage.everything()
    assert await stage.claim(worker_id) == []
    assert await stage.everything() == before


async def test_a_worker_that_stopped_gets_nothing_more(stage: Stage) -> None:
    await queue(stage)
    worker_id = await stage.worker()
    await work.stop(stage.db, worker_id)
    assert await stage.claim(worker_id) == []


async def test_higher_classes_come_first_and_equals_in_the_order_they_were_queued(stage: Stage) -> None:
    for priority in ("low", "normal", "critical", "normal", "high"):
        await queue(stage, 1, priority=priority, name=priority)
    worker_id = await stage.worker()
    claims = await stage.claim(worker_id, 4) + await stage.claim(worker_id, 4)
    assert [claim.spec.priority for claim in claims] == ["critical", "high", "normal", "normal", "low"]
    normal = [claim.scheduled_for for claim in claims if claim.spec.priority == "normal"]
    assert normal == sorted(normal)


async def test_a_worker_gets_only_work_of_its_pools(stage: Stage) -> None:
    await queue(stage, 2, pool="default")
    await queue(stage, 3, pool="reports")
    worker_id = await stage.worker(pools=("reports",))
    claims = await stage.claim(worker_id, pools=("reports",))
    assert {claim.spec.pool for claim in claims} == {"reports"}
    assert len(claims) == 3
    assert len(await stage.claim(worker_id, 4, pools=("nothing", "default", "reports"))) == 2


async def test_what_is_not_due_yet_is_not_claimed(stage: Stage) -> None:
    await queue(stage, 3)
    await stage.db.execute("update detent.live set not_before = clock_timestamp() + interval '1 hour'")
    worker_id = await stage.worker()
    assert await stage.claim(worker_id) == []
    await stage.retry_now()
    assert len(await stage.claim(worker_id)) == 3


async def test_a_claim_gives_the_definition_of_the_revision_that_was_fired(stage: Stage) -> None:
    job_id = await stage.every(60, first_ago=timedelta(seconds=1))
    await stage.fire()
    await stage.db.execute(
        "insert into detent.job_revisions (tenant, job_id, revision, spec, payload, armed_at) "
        "select tenant, job_id, 2, spec || '{\"name\": \"newer\"}', '2', armed_at "
        "from detent.job_revisions where job_id = $1",
        job_id,
    )
    await stage.db.execute("update detent.jobs set revision = 2 where job_id = $1", job_id)
    [claim] = await stage.claim(await stage.worker())
    assert (claim.revision, claim.spec.name, claim.payload) == (1, "job", "null")


async def test_tokens_grow(stage: Stage) -> None:
    await queue(stage, 3)
    worker_id = await stage.worker()
    tokens = [(await stage.claim(worker_id, 1))[0].token for _ in range(3)]
    assert tokens == sorted(set(tokens))


async def test_an_instant_that_is_late_is_claimed_with_its_own_instant(stage: Stage) -> None:
    await stage.once(ago=MINUTE)
    await stage.fire()
    [claim] = await stage.claim(await stage.worker())
    [live] = await stage.rows("live")
    assert claim.scheduled_for == live["scheduled_for"]
    assert live["claimed_at"] - claim.scheduled_for >= MINUTE


@pytest.mark.parametrize("trouble", ["unknown kind of task", "no such revision"])
async def test_a_definition_that_cannot_be_read_harms_its_own_execution_only(
    stage: Stage, trouble: str
) -> None:
    await queue(stage, 3)
    bad = await stage.once()
    await stage.fire()
    if trouble == "no such revision":
        await stage.db.execute("update detent.live set revision = 9 where job_id = $1", bad)
    else:
        await stage.db.execute(
            "update detent.job_revisions set spec = jsonb_set(spec, '{task,kind}', '\"newer\"') "
            "where job_id = $1",
            bad,
        )
    worker_id = await stage.worker()
    claims = await stage.claim(worker_id)
    assert len(claims) == 3
    assert bad not in {claim.job_id for claim in claims}
    live = await stage.row("live", bad)
    assert (live["state"], live["failures"], live["worker_id"]) == ("queued", 0, None)
    assert live["not_before"] > stage.now() + SECOND
    assert "cannot read its definition" in live["reason"]
    assert await stage.claim(worker_id) == []


async def test_handing_back_makes_the_partition_that_it_needs(stage: Stage) -> None:
    await queue(stage, 2)
    worker_id = await stage.worker()
    port = PostgresPort(stage.hot, stage.clock, stage.notifier)
    kept, cancelled = await port.claim(worker_id, ("default",), 2)
    await cancel_job(stage.db, TENANT, cancelled.job_id, stage.now(), None)
    await stage.drop_partitions_of(stage.now())
    await port.release(worker_id, [kept, cancelled])
    assert (await stage.row("live", kept.job_id))["state"] == "queued"
    assert (await stage.row("executions", cancelled.job_id))["status"] == "cancelled"


async def test_setting_aside_what_cannot_be_read_makes_the_partition_that_it_needs(stage: Stage) -> None:
    await queue(stage)
    await stage.db.execute("update detent.live set revision = 9")
    await stage.drop_partitions_of(stage.now())
    assert await stage.claim(await stage.worker()) == []
    [live] = await stage.rows("live")
    assert live["state"] == "queued"
