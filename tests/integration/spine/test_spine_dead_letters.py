"""Dead letters: listed and read with their context, settled once, replayed with lineage, alerted about."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from detent.cli.wiring import PostgresPort
from detent.model.errors import Conflict, NotFound
from detent.model.execution import ErrorInfo
from detent.model.ids import new_job_id
from detent.model.work import Claim, LogChunk
from detent.store import dead_letters
from detent.store.dead_letters import list_dead_letters, read_dead_letter, replay_of
from detent.store.executions import read_detail
from detent.store.jobs import KeyReused, RequestKey, Run, cancel_execution, cancel_job, read_job, run_job
from detent.store.sql import Queries
from stage import HOUR, SECOND, TENANT, Stage

queries = Queries.load()
STRANGER = TENANT + 1


async def die(stage: Stage, **fields: Any) -> Claim:
    """A one-time job whose only attempt failed."""
    _, claim = await stage.running(**{"max_retries": 0} | fields)
    await stage.record(stage.ended(claim, "failed"))
    return claim


async def deaths_of_a_recurring_job(stage: Stage, count: int) -> list[Claim]:
    """Executions by hand, newest first."""
    claims = await runs_of_a_recurring_job(stage, count)
    await stage.record(*(stage.ended(claim, "failed") for claim in claims))
    return claims


async def runs_of_a_recurring_job(stage: Stage, count: int) -> list[Claim]:
    due_at = stage.now() + HOUR
    job_id = await stage.job(due_at, armed_at=due_at - HOUR, every=3600.0, max_retries=0)
    for number in range(count):
        await run_job(stage.db, TENANT, job_id, str(number), stage.now() - SECOND, None)
    claims = await stage.claim(await stage.worker())
    return sorted(claims, key=lambda claim: claim.execution_id, reverse=True)


async def listed(
    stage: Stage, status: str = "waiting", job_id: UUID | None = None, **more: Any
) -> list[UUID]:
    asked = {"before": None, "limit": 100} | more
    page = await list_dead_letters(stage.db, TENANT, job_id=job_id, status=status, **asked)
    return [letter.execution_id for letter in page.items]


async def replay(
    stage: Stage,
    source: UUID,
    payload: str | None = None,
    key: RequestKey | None = None,
    note: str | None = None,
) -> Run:
    # A moment ago, so that a claim by the database's clock finds it due.
    return await dead_letters.replay(
        stage.db, TENANT, source, payload, note, stage.now() - timedelta(milliseconds=20), key
    )


async def discard(
    stage: Stage, execution: UUID, note: str | None = None, key: RequestKey | None = None
) -> None:
    await dead_letters.discard(stage.db, TENANT, execution, note, stage.now(), key)


async def alerts(stage: Stage, job_id: UUID) -> list[tuple[int, bool]]:
    """How often each alert about the job's letters was raised, and whether it is open."""
    rows = await stage.db.fetch(
        "select times, resolved_at is null as open from detent.alerts "
        "where kind = 'dead_letter' and subject = $1 order by alert_id",
        str(job_id),
    )
    return [(row["times"], row["open"]) for row in rows]


# Listing and reading


async def test_letters_are_listed_newest_first_by_status_and_by_job(stage: Stage) -> None:
    first, second, third = [await die(stage) for _ in range(3)]
    other = await die(stage)
    ids = sorted((c.execution_id for c in (first, second, third, other)), reverse=True)
    assert await listed(stage) == ids
    assert await listed(stage, job_id=other.job_id) == [other.execution_id]
    assert await listed(stage, job_id=new_job_id(stage.now())) == []

    await replay(stage, second.execution_id)
    await discard(stage, third.execution_id)
    assert await listed(stage, "replayed") == [second.execution_id]
    assert await listed(stage, "discarded") == [third.execution_id]
    assert set(await listed(stage)) == {first.execution_id, other.execution_id}
    assert await listed(stage, "replayed", job_id=first.job_id) == []


async def test_a_list_is_read_page_by_page_without_gaps_or_repeats(stage: Stage) -> None:
    claims = await deaths_of_a_recurring_job(stage, 5)
    job_id = claims[0].job_id
    await die(stage)
    for of_job in (job_id, None):
        found: list[UUID] = []
        before: UUID | None = None
        sizes = []
        while True:
            page = await list_dead_letters(
                stage.db, TENANT, job_id=of_job, status="waiting", before=before, limit=2
            )
            found += [letter.execution_id for letter in page.items]
            sizes.append(len(page.items))
            if (before := page.next_before) is None:
                break
        assert found == sorted(set(found), reverse=True)
        assert len(found) == (5 if of_job else 6)
        assert sizes == [2, 2, 1 if of_job else 2]


async def test_a_letter_is_read_with_all_its_context(stage: Stage) -> None:
    worker_id, claim = await stage.running(name="invoice", max_retries=1, retry_delay_seconds=0.0)
    port = PostgresPort(stage.hot, stage.clock, stage.notifier)
    await stage.record(stage.ended(claim, "timed_out"))
    await stage.retry_now()
    [last] = await stage.claim(worker_id)
    await port.log(
        [LogChunk(last.execution_id, 2, last.token, 0, "stderr", stage.now(), "no such customer\n")]
    )
    await stage.record(stage.ended(last, "failed"))

    opened = await read_dead_letter(stage.db, TENANT, claim.execution_id)
    assert opened is not None
    letter = opened.letter
    assert (letter.name, letter.job_id, letter.revision) == ("invoice", claim.job_id, 1)
    assert (letter.status, letter.reason, letter.replayed_as) == ("waiting", "out_of_attempts", None)
    assert letter.error == ErrorInfo("Trouble", "it failed")
    assert letter.died_at <= stage.now() and letter.settled_at is None
    assert (opened.spec.task, opened.payload) == (claim.spec.task, "null")

    detail = await read_detail(stage.db, TENANT, claim.execution_id, stage.now())
    assert detail is not None
    assert detail.execution.status == "dead_lettered"
    assert [(a.attempt, a.outcome) for a in detail.attempts] == [(1, "timed_out"), (2, "failed")]
    assert detail.attempts[0].error == ErrorInfo("Trouble", "it timed_out")
    assert detail.output.stderr == "no such customer\n"


async def test_a_letter_keeps_the_definition_that_it_died_with(stage: Stage) -> None:
    claim = await die(stage, name="before")
    await revise(stage, claim.job_id, name="after", payload="2")
    opened = await read_dead_letter(stage.db, TENANT, claim.execution_id)
    assert opened is not None
    assert (opened.spec.name, opened.payload, opened.letter.revision) == ("before", "null", 1)


async def revise(stage: Stage, job_id: UUID, *, name: str, payload: str) -> None:
    await stage.db.execute(
        "insert into detent.job_revisions (tenant, job_id, revision, spec, payload, armed_at) "
        "select tenant, job_id, 2, spec || jsonb_build_object('name', $2::text), $3, armed_at "
        "from detent.job_revisions where job_id = $1",
        job_id, name, payload,
    )  # fmt: skip
    await stage.db.execute("update detent.jobs set revision = 2 where job_id = $1", job_id)


async def test_the_letters_of_one_tenant_are_nobody_elses(stage: Stage) -> None:
    claim = await die(stage)
    page = await list_dead_letters(stage.db, STRANGER, job_id=None, status="waiting", before=None, limit=10)
    assert list(page.items) == []
    assert await read_dead_letter(stage.db, STRANGER, claim.execution_id) is None
    before = await stage.everything()
    with pytest.raises(NotFound):
        await dead_letters.replay(stage.db, STRANGER, claim.execution_id, None, None, stage.now(), None)
    with pytest.raises(NotFound):
        await dead_letters.discard(stage.db, STRANGER, claim.execution_id, None, stage.now(), None)
    assert await stage.everything() == before


async def test_an_execution_that_is_no_letter_cannot_be_settled(stage: Stage) -> None:
    _, claim = await stage.running()
    await stage.record(stage.ended(claim, "succeeded"))
    with pytest.raises(NotFound):
        await replay(stage, claim.execution_id)
    with pytest.raises(NotFound):
        await discard(stage, claim.execution_id)


# Discarding


async def test_a_discarded_letter_rests_with_its_note_and_stays_readable(stage: Stage) -> None:
    claim = await die(stage)
    await discard(stage, claim.execution_id, note="the customer is gone")
    opened = await read_dead_letter(stage.db, TENANT, claim.execution_id)
    assert opened is not None
    assert (opened.letter.status, opened.letter.note) == ("discarded", "the customer is gone")
    assert opened.letter.settled_at is not None
    assert await stage.rows("live") == []
    assert (await stage.row("job_ends", claim.job_id))["status"] == "failed"


async def test_discarding_twice_changes_nothing_more(stage: Stage) -> None:
    claim = await die(stage)
    await discard(stage, claim.execution_id, note="first")
    before = await stage.everything()
    await discard(stage, claim.execution_id, note="second")
    assert await stage.everything() == before


async def test_what_was_replayed_cannot_be_discarded_nor_the_other_way_round(stage: Stage) -> None:
    replayed, discarded = await die(stage), await die(stage)
    run = await replay(stage, replayed.execution_id)
    await discard(stage, discarded.execution_id)
    before = await stage.everything()
    with pytest.raises(Conflict, match="was replayed: there is nothing to discard") as refusal:
        await discard(stage, replayed.execution_id)
    assert refusal.value.code == "wrong_state"
    with pytest.raises(Conflict, match="was discarded"):
        await replay(stage, discarded.execution_id)
    with pytest.raises(Conflict, match=f"was replayed as {run.execution.execution_id}"):
        await replay(stage, replayed.execution_id)
    assert await stage.everything() == before


# Replaying


async def test_a_replay_names_its_source_and_the_letter_its_replay(stage: Stage) -> None:
    claim = await die(stage)
    run = await replay(stage, claim.execution_id, note="the bank is back")
    new_id = run.execution.execution_id
    assert run.new and new_id != claim.execution_id
    assert (run.execution.cause, run.execution.source_id) == ("replay", claim.execution_id)
    assert (run.execution.status, run.execution.attempt) == ("queued", 0)
    opened = await read_dead_letter(stage.db, TENANT, claim.execution_id)
    assert opened is not None
    assert (opened.letter.status, opened.letter.replayed_as) == ("replayed", new_id)
    assert opened.letter.note == "the bank is back"
    assert await replay_of(stage.db, TENANT, claim.execution_id) == new_id
    assert await replay_of(stage.db, TENANT, new_id) is None


async def test_the_lineage_outlives_the_end_of_the_replay(stage: Stage) -> None:
    claim = await die(stage)
    run = await replay(stage, claim.execution_id)
    [again] = await stage.claim(await stage.worker())
    await stage.record(stage.ended(again, "succeeded"))
    detail = await read_detail(stage.db, TENANT, run.execution.execution_id, stage.now())
    assert detail is not None
    assert (detail.execution.status, detail.execution.source_id) == ("succeeded", claim.execution_id)


async def test_the_failed_one_time_job_of_a_replay_lives_again_and_completes(stage: Stage) -> None:
    claim = await die(stage)
    assert await job_status(stage, claim.job_id) == "failed"
    await replay(stage, claim.execution_id)
    assert await job_status(stage, claim.job_id) == "running"
    assert await stage.rows("job_ends") == []
    [again] = await stage.claim(await stage.worker())
    await stage.record(stage.ended(again, "succeeded"))
    assert await job_status(stage, claim.job_id) == "completed"


async def job_status(stage: Stage, job_id: UUID) -> str:
    standing = await read_job(stage.db, TENANT, job_id)
    assert standing is not None
    return standing.job.status


async def test_a_replay_that_dies_too_is_a_letter_of_its_own_that_can_be_replayed(stage: Stage) -> None:
    claim = await die(stage)
    second = await replay(stage, claim.execution_id, payload='{"n": 2}')
    [again] = await stage.claim(await stage.worker())
    await stage.record(stage.ended(again, "failed"))
    assert await job_status(stage, claim.job_id) == "failed"
    assert await listed(stage) == [second.execution.execution_id]
    third = await replay(stage, second.execution.execution_id)
    assert third.execution.source_id == second.execution.execution_id
    [last] = await stage.claim(await stage.worker())
    assert msgspec.json.decode(last.payload) == {"n": 2}  # that of the letter, not that of the job


async def test_the_worker_gets_the_payload_that_the_letter_died_with(stage: Stage) -> None:
    claim = await die(stage)
    await revise(stage, claim.job_id, name="after", payload='"another"')
    await replay(stage, claim.execution_id)
    [again] = await stage.claim(await stage.worker())
    assert again.payload == "null"
    assert (again.spec.name, again.revision) == ("after", 2)  # the job as it is now


async def test_the_worker_gets_the_edited_payload_and_nobody_else_does(stage: Stage) -> None:
    claims = await deaths_of_a_recurring_job(stage, 2)
    worker_id = await stage.worker()
    await replay(stage, claims[0].execution_id, payload='{"to": "right@example.org"}')
    await replay(stage, claims[1].execution_id)
    got = {claim.execution_id: claim.payload for claim in await stage.claim(worker_id)}
    by_source = {row["source_id"]: got[row["execution_id"]] for row in await stage.rows("live")}
    assert by_source == {
        claims[0].execution_id: '{"to": "right@example.org"}',
        claims[1].execution_id: "null",
    }


async def test_a_retry_of_a_replay_keeps_the_edited_payload(stage: Stage) -> None:
    claim = await die(stage, max_retries=1, retry_delay_seconds=0.0, dead_letter=True)
    await stage.retry_now()
    [last] = await stage.claim(await stage.worker())
    await stage.record(stage.ended(last, "failed"))
    await replay(stage, claim.execution_id, payload="[1]")
    worker_id = await stage.worker()
    [first] = await stage.claim(worker_id)
    await stage.record(stage.ended(first, "failed"))
    await stage.retry_now()
    [second] = await stage.claim(worker_id)
    assert (first.payload, second.payload) == ("[1]", "[1]")
    assert (second.attempt, second.failures) == (2, 1)


async def test_a_replay_has_a_deadline_of_its_own(stage: Stage) -> None:
    claim = await die(stage, deadline_seconds=600.0)
    asked = stage.now()
    run = await replay(stage, claim.execution_id)
    live = await stage.row("live", claim.job_id)
    assert live["execution_id"] == run.execution.execution_id
    assert timedelta(seconds=599) < live["deadline_at"] - asked < timedelta(seconds=601)


async def test_a_cancelled_job_replays_nothing(stage: Stage) -> None:
    [claim] = await deaths_of_a_recurring_job(stage, 1)
    await cancel_job(stage.db, TENANT, claim.job_id, stage.now(), None)
    before = await stage.everything()
    with pytest.raises(Conflict, match="the job was cancelled") as refusal:
        await replay(stage, claim.execution_id)
    assert refusal.value.code == "wrong_state"
    assert await stage.everything() == before
    await discard(stage, claim.execution_id)


async def test_a_replay_of_a_recurring_job_leaves_its_schedule_alone(stage: Stage) -> None:
    [claim] = await deaths_of_a_recurring_job(stage, 1)
    timer = await stage.row("timers", claim.job_id)
    await replay(stage, claim.execution_id)
    [again] = await stage.claim(await stage.worker())
    await stage.record(stage.ended(again, "succeeded"))
    assert await stage.row("timers", claim.job_id) == timer
    assert await job_status(stage, claim.job_id) == "scheduled"
    assert await stage.rows("job_ends") == []


async def test_cancelling_the_replay_of_a_one_time_job_cancels_the_job(stage: Stage) -> None:
    claim = await die(stage)
    run = await replay(stage, claim.execution_id)
    await cancel_execution(stage.db, TENANT, run.execution.execution_id, stage.now(), None)
    assert await job_status(stage, claim.job_id) == "cancelled"


# Two at once


@pytest.mark.parametrize("payloads", [(None, None), ("1", "2")])
async def test_of_two_replays_at_once_one_counts(
    stage: Stage, payloads: tuple[str | None, str | None]
) -> None:
    claim = await die(stage)
    async with stage.db.transaction() as lock:
        await lock.fetchval(queries.lock_timer, TENANT, claim.job_id)
        both = [asyncio.create_task(replay(stage, claim.execution_id, payload)) for payload in payloads]
        await stage.until_blocked(2)
    answers = await asyncio.gather(*both, return_exceptions=True)
    [run] = [answer for answer in answers if isinstance(answer, Run)]
    [refusal] = [answer for answer in answers if isinstance(answer, Conflict)]
    assert refusal.code == "wrong_state"
    live = await stage.row("live", claim.job_id)
    assert live["execution_id"] == run.execution.execution_id
    assert (await stage.row("dead_letters", claim.job_id))["replayed_as"] == run.execution.execution_id


@pytest.mark.parametrize("first", ["replay", "discard"])
async def test_of_a_replay_and_a_discard_at_once_one_wins(stage: Stage, first: str) -> None:
    claim = await die(stage)
    steps = {"replay": replay(stage, claim.execution_id), "discard": discard(stage, claim.execution_id)}
    async with stage.db.transaction() as lock:
        await lock.fetchrow(queries.lock_dead_letter, TENANT, claim.execution_id)
        winner = asyncio.create_task(steps.pop(first))  # type: ignore[arg-type]
        await stage.until_blocked(1)
        loser = asyncio.create_task(steps.popitem()[1])  # type: ignore[arg-type]
        await stage.until_blocked(2)
    await winner
    with pytest.raises(Conflict):
        await loser
    letter = await stage.row("dead_letters", claim.job_id)
    assert letter["status"] == f"{first}ed"
    assert len(await stage.rows("live")) == (1 if first == "replay" else 0)
    assert await job_status(stage, claim.job_id) == ("running" if first == "replay" else "failed")


@pytest.mark.parametrize("first", ["replay", "cancel"])
async def test_of_a_replay_and_a_cancel_of_its_job_at_once_nothing_runs_on(stage: Stage, first: str) -> None:
    [claim] = await deaths_of_a_recurring_job(stage, 1)
    steps: dict[str, Any] = {
        "replay": replay(stage, claim.execution_id),
        "cancel": cancel_job(stage.db, TENANT, claim.job_id, stage.now(), None),
    }
    async with stage.db.transaction() as lock:
        await lock.fetchval(queries.lock_timer, TENANT, claim.job_id)
        winner = asyncio.create_task(steps.pop(first))
        await stage.until_blocked(1)
        loser = asyncio.create_task(steps.popitem()[1])
        await stage.until_blocked(2)
    answers = await asyncio.gather(winner, loser, return_exceptions=True)
    assert await stage.rows("live") == []
    assert await job_status(stage, claim.job_id) == "cancelled"
    letter = await stage.row("dead_letters", claim.job_id)
    if first == "replay":
        assert letter["status"] == "replayed"
        closed = {row["execution_id"]: row["status"] for row in await stage.rows("executions", claim.job_id)}
        assert closed[letter["replayed_as"]] == "cancelled"
    else:
        assert isinstance(answers[1], Conflict)
        assert letter["status"] == "waiting"


# Keys


async def test_a_repeat_under_the_same_key_is_answered_with_the_same_replay(stage: Stage) -> None:
    claim = await die(stage)
    key = RequestKey(f"replay/{claim.execution_id}", "k", b"body")
    first = await replay(stage, claim.execution_id, "1", key)
    before = await stage.everything()
    again = await replay(stage, claim.execution_id, "1", key)
    assert (first.new, again.new) == (True, False)
    assert again.execution.execution_id == first.execution.execution_id
    assert await stage.everything() == before
    with pytest.raises(KeyReused):
        await replay(stage, claim.execution_id, "2", RequestKey(key.scope, key.key, b"another"))
    with pytest.raises(Conflict, match="was replayed"):
        await replay(stage, claim.execution_id, "1", RequestKey(key.scope, "another", b"body"))


async def test_a_repeat_is_answered_after_the_replay_has_ended_too(stage: Stage) -> None:
    claim = await die(stage)
    key = RequestKey(f"replay/{claim.execution_id}", "k", b"body")
    first = await replay(stage, claim.execution_id, key=key)
    [again] = await stage.claim(await stage.worker())
    await stage.record(stage.ended(again, "succeeded"))
    repeated = await replay(stage, claim.execution_id, key=key)
    assert repeated.execution.execution_id == first.execution.execution_id
    assert repeated.execution.status == "succeeded"


async def test_two_equal_replays_under_one_key_at_once_are_one(stage: Stage) -> None:
    claim = await die(stage)
    key = RequestKey(f"replay/{claim.execution_id}", "k", b"body")
    async with stage.db.transaction() as lock:
        await lock.fetchval(queries.lock_timer, TENANT, claim.job_id)
        both = [asyncio.create_task(replay(stage, claim.execution_id, key=key)) for _ in range(2)]
        await stage.until_blocked(2)
    runs = await asyncio.gather(*both)
    assert len({run.execution.execution_id for run in runs}) == 1
    assert sorted(run.new for run in runs) == [False, True]
    assert len(await stage.rows("live")) == 1


async def test_a_refused_replay_leaves_its_key_unused(stage: Stage) -> None:
    claim = await die(stage)
    await discard(stage, claim.execution_id)
    key = RequestKey(f"replay/{claim.execution_id}", "k", b"body")
    for _ in range(2):
        with pytest.raises(Conflict, match="was discarded"):
            await replay(stage, claim.execution_id, key=key)
    assert await stage.db.fetchval("select count(*) from detent.request_keys") == 0


async def test_a_discard_repeats_under_its_key(stage: Stage) -> None:
    claim = await die(stage)
    key = RequestKey(f"discard/{claim.execution_id}", "k", b"body")
    await discard(stage, claim.execution_id, "why", key)
    before = await stage.everything()
    await discard(stage, claim.execution_id, "why", key)
    assert await stage.everything() == before
    with pytest.raises(KeyReused):
        await discard(stage, claim.execution_id, "why", RequestKey(key.scope, "k", b"another"))


# The alert


async def test_the_letters_of_a_job_raise_one_alert_that_counts_them(stage: Stage) -> None:
    claims = await deaths_of_a_recurring_job(stage, 3)
    other = await die(stage)
    assert await alerts(stage, claims[0].job_id) == [(3, True)]
    assert await alerts(stage, other.job_id) == [(1, True)]


async def test_a_batch_with_many_letters_of_a_job_raises_one_alert(stage: Stage) -> None:
    claims = await deaths_of_a_recurring_job(stage, 3)
    for claim in claims:
        await replay(stage, claim.execution_id)
    assert await alerts(stage, claims[0].job_id) == [(3, False)]
    again = await stage.claim(await stage.worker())
    await stage.record(*(stage.ended(claim, "failed") for claim in again))
    assert await alerts(stage, claims[0].job_id) == [(3, False), (3, True)]


async def test_the_alert_is_resolved_with_the_jobs_last_letter_and_raised_anew_by_the_next(
    stage: Stage,
) -> None:
    first, second = await deaths_of_a_recurring_job(stage, 2)
    await discard(stage, first.execution_id)
    assert await alerts(stage, first.job_id) == [(2, True)]
    await replay(stage, second.execution_id)
    assert await alerts(stage, first.job_id) == [(2, False)]
    [again] = await stage.claim(await stage.worker())
    await stage.record(stage.ended(again, "failed"))
    assert await alerts(stage, first.job_id) == [(2, False), (1, True)]


async def test_a_job_without_letters_has_no_alert(stage: Stage) -> None:
    claim = await die(stage, dead_letter=False)
    assert await stage.rows("dead_letters") == []
    assert await alerts(stage, claim.job_id) == []


async def test_the_last_two_letters_settled_at_once_resolve_the_alert(stage: Stage) -> None:
    first, second = await deaths_of_a_recurring_job(stage, 2)
    async with stage.db.transaction() as lock:
        await lock.execute("select from detent.alerts for update")
        both = [asyncio.create_task(discard(stage, one.execution_id)) for one in (first, second)]
        await stage.until_blocked(2)
    await asyncio.gather(*both)
    assert await alerts(stage, first.job_id) == [(2, False)]


@pytest.mark.parametrize("first", ["death", "discard"])
async def test_a_letter_laid_down_while_the_last_one_is_settled_has_an_open_alert(
    stage: Stage, first: str
) -> None:
    dead, dying = await runs_of_a_recurring_job(stage, 2)
    job_id = dead.job_id
    await stage.record(stage.ended(dead, "failed"))
    steps: dict[str, Any] = {
        "death": stage.record(stage.ended(dying, "failed")),
        "discard": discard(stage, dead.execution_id),
    }
    async with stage.db.transaction() as lock:
        await lock.execute("select from detent.alerts for update")
        one = asyncio.create_task(steps.pop(first))
        await stage.until_blocked(1)
        other = asyncio.create_task(steps.popitem()[1])
        await stage.until_blocked(2)
    await asyncio.gather(one, other)
    assert await listed(stage) == [dying.execution_id]
    assert [is_open for _, is_open in await alerts(stage, job_id)][-1] is True
    await discard(stage, dying.execution_id)
    assert not any(is_open for _, is_open in await alerts(stage, job_id))


async def test_a_replay_makes_the_partition_of_its_payload_on_the_spot(stage: Stage) -> None:
    claim = await die(stage)
    for day in {stage.now().date(), (stage.now() + timedelta(days=1)).date()}:
        await stage.db.execute(f"drop table detent.inputs_{day:%Y%m%d}")
    await replay(stage, claim.execution_id, payload="3")
    [again] = await stage.claim(await stage.worker())
    assert again.payload == "3"
