"""Rescue: a worker that fell silent loses its work, once and for good."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest

from detent.cli.wiring import PostgresPort, PostgresPulse
from detent.finish import rescuer as rescuer_module
from detent.finish.rescuer import Rescuer
from detent.model.errors import StoreUnavailable
from detent.model.work import Beat, Claim, LogChunk
from detent.store import work
from detent.store.jobs import cancel_job
from detent.store.sql import Queries
from stage import SECOND, TENANT, Stage, unreliable

queries = Queries.load()


class Monotonic:
    """The rescuer's own clock, moved by the test."""

    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at

    async def watch(self, rescuer: Rescuer, seconds: int) -> None:
        """So many seconds with a look in each."""
        for _ in range(seconds):
            self.at += 1
            await rescuer.run_once()


@pytest.fixture
def monotonic(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    clock = Monotonic()
    monkeypatch.setattr(rescuer_module, "time", clock)
    return clock


async def silence(stage: Stage, worker_id: UUID) -> None:
    """Its lease is over on the database's clock."""
    await stage.db.execute(
        "update detent.workers set beat_at = clock_timestamp() - interval '1 hour' where worker_id = $1",
        worker_id,
    )


async def lose(stage: Stage, monotonic: Monotonic, worker_id: UUID) -> None:
    await silence(stage, worker_id)
    rescuer = stage.rescuer()
    await rescuer.run_once()
    await monotonic.watch(rescuer, 30)


async def status_of(stage: Stage, worker_id: UUID) -> str:
    status: str = await stage.db.fetchval("select status from detent.workers where worker_id = $1", worker_id)
    return status


async def test_the_work_of_a_lost_worker_goes_back_to_the_queue_uncounted(
    stage: Stage, monotonic: Monotonic
) -> None:
    worker_id, claim = await stage.running(max_retries=0)
    await lose(stage, monotonic, worker_id)
    assert await status_of(stage, worker_id) == "lost"
    live = await stage.row("live", claim.job_id)
    assert (live["state"], live["worker_id"], live["token"]) == ("queued", None, None)
    assert (live["attempt"], live["failures"], live["losses"]) == (1, 0, 1)
    [attempt] = await stage.rows("attempts")
    assert (attempt["outcome"], attempt["worker_id"], attempt["token"]) == (
        "worker_lost",
        worker_id,
        claim.token,
    )

    [again] = await stage.claim(await stage.worker())
    assert (again.execution_id, again.attempt, again.failures) == (claim.execution_id, 2, 0)
    assert again.token > claim.token


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "cancelled", "released"])
@pytest.mark.parametrize("meanwhile", ["queued", "running", "closed"])
async def test_late_finish_after_rescue_changes_nothing(
    stage: Stage, monotonic: Monotonic, outcome: str, meanwhile: str
) -> None:
    worker_id, claim = await stage.running()
    await lose(stage, monotonic, worker_id)
    if meanwhile != "queued":
        [again] = await stage.claim(await stage.worker())
        if meanwhile == "closed":
            await stage.record(stage.ended(again, "succeeded"))
    before = await stage.everything()
    assert await stage.record(stage.ended(claim, outcome)) == set()
    assert await stage.everything() == before


async def test_a_zombie_writes_no_logs_and_is_told_to_stop(stage: Stage, monotonic: Monotonic) -> None:
    worker_id, claim = await stage.running()
    port = PostgresPort(stage.hot, stage.clock, stage.notifier)
    line = log_line(stage, claim)
    assert await port.log([line]) == set()
    await lose(stage, monotonic, worker_id)
    assert await port.log([log_line(stage, claim, seq=1)]) == {(claim.execution_id, claim.attempt)}
    assert await stage.db.fetchval("select count(*) from detent.logs") == 1
    pulse = PostgresPulse(await stage.hot.dedicated())
    try:
        assert (await pulse.beat(worker_id, Beat())).alive is False
    finally:
        await pulse.close()
    assert await status_of(stage, worker_id) == "lost"


def log_line(stage: Stage, claim: Claim, seq: int = 0) -> LogChunk:
    return LogChunk(claim.execution_id, claim.attempt, claim.token, seq, "stdout", stage.now(), "hello")


async def test_work_that_was_asked_to_cancel_is_not_run_again(stage: Stage, monotonic: Monotonic) -> None:
    worker_id, claim = await stage.running()
    await cancel_job(stage.db, TENANT, claim.job_id, stage.now(), None)
    await lose(stage, monotonic, worker_id)
    assert await stage.rows("live") == []
    assert (await stage.row("executions", claim.job_id))["status"] == "cancelled"
    assert [row["outcome"] for row in await stage.rows("attempts")] == ["worker_lost"]
    assert (await stage.row("job_ends", claim.job_id))["status"] == "cancelled"


async def test_all_that_a_lost_worker_had_goes_back_and_nothing_of_the_others(
    stage: Stage, monotonic: Monotonic
) -> None:
    await stage.jobs([stage.now() - SECOND] * 12, scheduled_at=stage.now())
    await stage.fire()
    lost, alive = await stage.worker(), await stage.worker()
    theirs = await stage.claim(lost, 5)
    ours = await stage.claim(alive, 4)
    cancelled = theirs[2]
    await cancel_job(stage.db, TENANT, cancelled.job_id, stage.now(), None)
    await lose(stage, monotonic, lost)
    states = {row["execution_id"]: row["state"] for row in await stage.rows("live")}
    assert {states[claim.execution_id] for claim in ours} == {"running"}
    assert {states.get(claim.execution_id) for claim in theirs if claim is not cancelled} == {"queued"}
    assert [row["execution_id"] for row in await stage.rows("executions")] == [cancelled.execution_id]
    assert await status_of(stage, alive) == "live"


async def test_a_lease_that_is_over_alone_condemns_nobody(stage: Stage, monotonic: Monotonic) -> None:
    worker_id, _ = await stage.running()
    await silence(stage, worker_id)
    before = await stage.everything()
    rescuer = stage.rescuer()
    await rescuer.run_once()  # the first look: it may be the rescuer that slept
    await monotonic.watch(rescuer, 29)
    assert await status_of(stage, worker_id) == "live"
    assert await stage.everything() == before


async def test_a_rescuer_that_slept_condemns_nobody(stage: Stage, monotonic: Monotonic) -> None:
    worker_id, _ = await stage.running()
    await silence(stage, worker_id)
    rescuer = stage.rescuer()
    await monotonic.watch(rescuer, 20)
    monotonic.at += 1000  # a machine that stood still: its workers could not beat either
    await rescuer.run_once()
    assert await status_of(stage, worker_id) == "live"


async def test_a_rescuer_that_slept_condemns_nobody_however_short_the_lease(
    stage: Stage, monotonic: Monotonic
) -> None:
    worker_id = await stage.worker(lease_seconds=1.0)
    await silence(stage, worker_id)
    rescuer = stage.rescuer()
    await rescuer.run_once()
    monotonic.at += 1000
    await rescuer.run_once()
    assert await status_of(stage, worker_id) == "live"
    await monotonic.watch(rescuer, 1)
    assert await status_of(stage, worker_id) == "lost"


async def test_a_rescue_makes_the_partition_that_it_needs(stage: Stage, monotonic: Monotonic) -> None:
    worker_id, claim = await stage.running()
    other = await stage.once()
    await stage.fire()
    await stage.claim(worker_id)
    await cancel_job(stage.db, TENANT, other, stage.now(), None)
    await stage.drop_partitions_of(stage.now())
    await lose(stage, monotonic, worker_id)
    assert await status_of(stage, worker_id) == "lost"
    assert (await stage.row("live", claim.job_id))["state"] == "queued"
    assert (await stage.row("executions", other))["status"] == "cancelled"


async def test_a_rescue_that_fails_does_not_hold_up_the_others(stage: Stage, monotonic: Monotonic) -> None:
    lost = [await stage.running() for _ in range(3)]
    _, stuck = lost[1]
    await stage.db.execute(
        "insert into detent.attempts (execution_id, attempt, day, tenant, token, worker_id, finished_at, outcome)"
        " values ($1, 1, (clock_timestamp() at time zone 'UTC')::date, 1, 1, $2, clock_timestamp(), 'failed')",
        stuck.execution_id,
        lost[1][0],
    )
    for worker_id, _ in lost:
        await silence(stage, worker_id)
    rescuer = stage.rescuer()
    await rescuer.run_once()
    await monotonic.watch(rescuer, 30)
    assert [await status_of(stage, worker_id) for worker_id, _ in lost] == ["lost", "live", "lost"]


async def test_a_database_that_was_away_condemns_nobody(stage: Stage, monotonic: Monotonic) -> None:
    worker_id, _ = await stage.running()
    await silence(stage, worker_id)
    rescuer = stage.rescuer()
    await monotonic.watch(rescuer, 20)
    rescuer._database = unreliable(stage.db, queries.present_workers)
    with pytest.raises(StoreUnavailable):
        await rescuer.run_once()
    await monotonic.watch(rescuer, 30)
    assert await status_of(stage, worker_id) == "live"
    await monotonic.watch(rescuer, 1)
    assert await status_of(stage, worker_id) == "lost"


async def test_our_own_clock_alone_condemns_nobody(stage: Stage, monotonic: Monotonic) -> None:
    worker_id, _ = await stage.running()
    rescuer = stage.rescuer()
    for _ in range(3):
        await rescuer.run_once()
        monotonic.at += 1000
    assert await status_of(stage, worker_id) == "live"


async def test_a_beat_in_between_starts_the_wait_again(stage: Stage, monotonic: Monotonic) -> None:
    worker_id, _ = await stage.running()
    rescuer = stage.rescuer()
    for _ in range(4):
        await stage.db.execute("update detent.workers set beat = beat + 1 where worker_id = $1", worker_id)
        await silence(stage, worker_id)
        await rescuer.run_once()
        await monotonic.watch(rescuer, 29)
    assert await status_of(stage, worker_id) == "live"
    await monotonic.watch(rescuer, 1)
    assert await status_of(stage, worker_id) == "lost"


async def test_a_draining_worker_can_be_lost_and_a_stopped_one_cannot(
    stage: Stage, monotonic: Monotonic
) -> None:
    draining, stopped = await stage.worker(), await stage.worker()
    await stage.db.execute("update detent.workers set status = 'draining' where worker_id = $1", draining)
    await work.stop(stage.db, stopped)
    await silence(stage, stopped)
    await lose(stage, monotonic, draining)
    assert await status_of(stage, draining) == "lost"
    assert await status_of(stage, stopped) == "stopped"


async def test_an_execution_survives_any_number_of_lost_workers(stage: Stage, monotonic: Monotonic) -> None:
    job_id = await stage.once(max_retries=0)
    await stage.fire()
    for losses in itertools.count(1):
        worker_id = await stage.worker()
        [claim] = await stage.claim(worker_id)
        if losses == 4:
            break
        await lose(stage, monotonic, worker_id)
        assert (await stage.row("live", job_id))["losses"] == losses
    await stage.record(stage.ended(claim, "succeeded"))
    closed = await stage.row("executions", job_id)
    assert (closed["status"], closed["attempt"], closed["failures"], closed["losses"]) == (
        "succeeded",
        4,
        0,
        3,
    )
