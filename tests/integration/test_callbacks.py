"""Callbacks, from the closing of an execution to the receiver: real PostgreSQL, a real HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web

from detent.finish.callbacks import LEASE, MOST_TRIES, PER_ORIGIN, SENDING, CallbackSender
from detent.model.ids import execution_id, new_incarnation_id, new_job_id
from detent.store import callbacks, work
from detent.store.callbacks import PutOff
from detent.store.database import Database, Record
from detent.store.work import Closing

WEEK = timedelta(days=7)


@dataclass
class Receiver:
    """A server that remembers what it was told. What it answers, and when, is up to the test."""

    url: str = ""
    status: int = 200
    heard: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    under_way: int = 0
    most: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.open.set()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.paths.append(request.path)
        self.heard.append((dict(request.headers), await request.json()))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.open.wait()
        finally:
            self.under_way -= 1
        if request.path == "/endless":
            return await _endless(request)
        headers = {"Location": "/elsewhere"} if 300 <= self.status < 400 else {}
        return web.Response(status=self.status, headers=headers)


async def _endless(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await response.write(b"x" * 65536)
    return response


@contextlib.asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    runner = web.ServerRunner(web.Server(receiver.answer), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    receiver.url = f"http://{host}:{port}"
    try:
        yield receiver
    finally:
        receiver.open.set()
        await runner.cleanup()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as one:
        yield one


@contextlib.asynccontextmanager
async def running(sender: CallbackSender) -> AsyncIterator[CallbackSender]:
    task = asyncio.create_task(sender.run())
    try:
        yield sender
    finally:
        sender.stop()
        await task


async def until(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds:g} s"
        await asyncio.sleep(0.01)


async def close_one(db: Database, url: str, *, key: str = "1", result: str | None = '{"rows": 3}') -> UUID:
    """Close an execution of a job with this callback_url, as its worker's finish does."""
    now = datetime.now(UTC)
    job = new_job_id(now)
    execution = execution_id(now, job, "manual", key)
    worker = new_incarnation_id()
    await db.execute(
        "insert into detent.jobs (tenant, job_id, name, pool, revision)"
        " values (1, $1, 'now called other', 'default', 2)",
        job,
    )
    await db.execute(
        "insert into detent.job_revisions (tenant, job_id, revision, spec, payload, armed_at)"
        " values (1, $1, 1, '{\"name\": \"report\"}', 'null', $2)",
        job, now,
    )  # fmt: skip
    await db.execute(
        "insert into detent.live (execution_id, job_id, scheduled_for, not_before, queued_at, rank, token,"
        " worker_id, tenant, revision, attempt, class, ends_job, state, cause, pool)"
        " values ($1, $2, $3, $3, $3, detent.rank($3, 1::smallint), 7,"
        " $4, 1, 1, 1, 1, false, 'running', 'manual', 'default')",
        execution, job, now, worker,
    )  # fmt: skip
    closing = Closing(
        execution, 1, 7, "succeeded", "succeeded", now, now + timedelta(seconds=2), result, None, url, 0, None
    )
    assert await work.close(db, [closing]) == {(execution, 1)}
    return execution


async def row_of(db: Database, execution: UUID) -> Record | None:
    return await db.fetchrow(
        "select *, not_before - clock_timestamp() as wait from detent.callbacks where execution_id = $1",
        execution,
    )


async def settled(db: Database, execution: UUID) -> Record | None:
    """The callback once its try is written down: gone, or with a reason."""

    async def written() -> bool:
        row = await row_of(db, execution)
        return row is None or row["last_error"] is not None

    await until(written, "settling")
    return await row_of(db, execution)


async def make_due(db: Database) -> None:
    await db.execute("update detent.callbacks set not_before = clock_timestamp()")


def sender(db: Database, **more: Any) -> CallbackSender:
    return CallbackSender(db, allow_private=True, **more)


async def test_a_closed_execution_is_told_once_and_forgotten(db: Database, receiver: Receiver) -> None:
    execution = await close_one(db, f"{receiver.url}/done?token=1")
    async with running(sender(db)):
        assert await settled(db, execution) is None
    ((headers, body),) = receiver.heard
    assert headers["Detent-Delivery"] == str(execution)
    assert headers["Detent-Try"] == "1"
    assert headers["Content-Type"] == "application/json"
    assert body["execution_id"] == str(execution)
    assert (body["name"], body["status"], body["cause"], body["attempt"]) == (
        "report",
        "succeeded",
        "manual",
        1,
    )
    assert body["result"] == {"rows": 3}
    assert body["error"] is None
    assert body["duration_ms"] == 2000
    assert body["finished_at"].endswith("Z")


async def test_an_answer_other_than_2xx_is_tried_again_under_the_same_name(
    db: Database, receiver: Receiver
) -> None:
    receiver.status = 503
    execution = await close_one(db, receiver.url)
    async with running(sender(db)):
        row = await settled(db, execution)
        assert row is not None
        assert (row["tries"], row["failed_at"]) == (1, None)
        assert row["last_error"] == "the receiver answered 503"
        assert timedelta(seconds=8) < row["wait"] < timedelta(seconds=12)
        receiver.status = 204
        await make_due(db)

        async def gone() -> bool:
            return await row_of(db, execution) is None

        await until(gone, "the second try")
    first, second = (headers for headers, _ in receiver.heard)
    assert first["Detent-Delivery"] == second["Detent-Delivery"]
    assert (first["Detent-Try"], second["Detent-Try"]) == ("1", "2")


async def test_the_last_try_gives_up_with_a_warning_and_its_reason(
    db: Database, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = 500
    execution = await close_one(db, f"{receiver.url}/hook?token=secret")
    await db.execute("update detent.callbacks set tries = $1", MOST_TRIES - 1)
    with caplog.at_level(logging.INFO, "detent.callbacks"):
        async with running(sender(db)):
            row = await settled(db, execution)
            assert row is not None and row["failed_at"] is not None
            assert (row["tries"], row["last_error"]) == (MOST_TRIES, "the receiver answered 500")
            await make_due(db)  # given up is given up
            again = await close_one(db, receiver.url)
            assert await settled(db, again) is not None
    assert len(receiver.heard) == 2
    (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert f"{execution} to {receiver.url} is given up after 32 tries" in warning.getMessage()
    assert "secret" not in caplog.text


async def test_a_callback_whose_keepers_died_at_every_try_ends_as_well(
    db: Database, receiver: Receiver
) -> None:
    execution = await close_one(db, receiver.url)
    await db.execute("update detent.callbacks set tries = $1", MOST_TRIES)
    async with running(sender(db)):
        row = await settled(db, execution)
    assert row is not None and row["failed_at"] is not None
    assert receiver.heard == []


async def test_a_redirect_is_not_followed(db: Database, receiver: Receiver) -> None:
    receiver.status = 307
    execution = await close_one(db, f"{receiver.url}/done")
    async with running(sender(db)):
        row = await settled(db, execution)
    assert row is not None and row["last_error"] == "the receiver answered 307"
    assert receiver.paths == ["/done"]


async def test_an_endless_answer_is_not_read(db: Database, receiver: Receiver) -> None:
    execution = await close_one(db, f"{receiver.url}/endless")
    async with running(sender(db)):
        assert await settled(db, execution) is None


async def test_a_silent_receiver_is_left_after_the_timeout(db: Database, receiver: Receiver) -> None:
    receiver.open.clear()
    execution = await close_one(db, receiver.url)
    async with running(sender(db, timeout=0.2)):
        row = await settled(db, execution)
    assert row is not None and row["last_error"] == "no answer within 0.2 s"


async def test_a_receiver_that_is_not_there_is_tried_again(db: Database) -> None:
    async with receiving() as gone:
        url = gone.url
    execution = await close_one(db, url)
    async with running(sender(db)):
        row = await settled(db, execution)
    assert row is not None and row["failed_at"] is None
    assert "Cannot connect" in row["last_error"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "me:pw@127.0.0.1"]
)
async def test_private_addresses_are_refused_at_once_unless_allowed(
    db: Database, receiver: Receiver, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    execution = await close_one(db, receiver.url.replace("127.0.0.1", host))
    async with running(CallbackSender(db)):
        row = await settled(db, execution)
    assert row is not None and row["failed_at"] is not None
    assert row["tries"] == 1
    assert row["last_error"].startswith("refused: ")
    if "127.0.0.1" in host.strip("[]") and "@" not in host:
        assert "a loopback address; the setting allow_private_callbacks permits it" in row["last_error"]
    assert "given up" in caplog.text
    assert receiver.heard == []


async def test_a_second_keeper_takes_what_the_first_has_not(db: Database, receiver: Receiver) -> None:
    for number in range(60):
        await close_one(db, receiver.url, key=str(number))
    async with running(sender(db)), running(sender(db)):

        async def empty() -> bool:
            return await db.fetchval("select count(*) from detent.callbacks") == 0

        await until(empty, "delivering all")
    told = [headers["Detent-Delivery"] for headers, _ in receiver.heard]
    assert len(told) == len(set(told)) == 60


async def test_a_taken_callback_is_not_taken_again_until_its_lease_is_over(db: Database) -> None:
    execution = await close_one(db, "http://example.org/")
    (due,) = await callbacks.take(db, 10, {}, 8, LEASE)
    assert due.execution_id == execution
    assert await callbacks.take(db, 10, {}, 8, LEASE) == []
    row = await row_of(db, execution)
    assert row is not None and LEASE - timedelta(seconds=5) < row["wait"] <= LEASE


async def test_two_keepers_at_the_same_instant_share_the_due_ones(db: Database) -> None:
    for number in range(20):
        await close_one(db, f"http://{number}.example/", key=str(number))
    shares = await asyncio.gather(*(callbacks.take(db, 20, {}, 8, LEASE) for _ in range(4)))
    taken = [due.execution_id for share in shares for due in share]
    assert len(taken) == len(set(taken))


async def test_a_row_that_another_keeper_has_locked_is_passed_over(db: Database) -> None:
    locked = await close_one(db, "http://a.example/", key="a")
    free = await close_one(db, "http://b.example/", key="b")
    async with db.transaction() as other:
        await other.fetch("select from detent.callbacks where execution_id = $1 for update", locked)
        assert [due.execution_id for due in await callbacks.take(db, 10, {}, 8, LEASE)] == [free]


async def test_a_keeper_that_dies_after_taking_only_delays_the_callback(
    db: Database, receiver: Receiver
) -> None:
    execution = await close_one(db, receiver.url)
    await callbacks.take(db, 10, {}, 8, LEASE)  # and then it dies
    await make_due(db)  # the lease is over
    async with running(sender(db)):
        assert await settled(db, execution) is None
    assert [headers["Detent-Try"] for headers, _ in receiver.heard] == ["2"]


async def test_a_late_failure_changes_nothing_once_another_keeper_has_it(db: Database) -> None:
    execution = await close_one(db, "http://example.org/")
    (first,) = await callbacks.take(db, 10, {}, 8, LEASE)
    await make_due(db)
    (second,) = await callbacks.take(db, 10, {}, 8, LEASE)
    late = PutOff(execution, first.tries, None, "late")
    assert await callbacks.put_off(db, [late]) == set()
    row = await row_of(db, execution)
    assert row is not None and (row["last_error"], row["failed_at"], row["tries"]) == (None, None, 2)
    assert await callbacks.put_off(db, [PutOff(execution, second.tries, WEEK, "in time")]) == {execution}


async def test_a_late_delivery_is_a_delivery(db: Database) -> None:
    execution = await close_one(db, "http://example.org/")
    await callbacks.take(db, 10, {}, 8, LEASE)
    await make_due(db)
    (second,) = await callbacks.take(db, 10, {}, 8, LEASE)
    await callbacks.drop(db, [execution])
    assert await callbacks.put_off(db, [PutOff(execution, second.tries, WEEK, "failed")]) == set()
    assert await row_of(db, execution) is None


async def test_a_slow_receiver_does_not_hold_up_the_others(db: Database, receiver: Receiver) -> None:
    receiver.open.clear()
    for number in range(SENDING + 10):
        await close_one(db, receiver.url, key=str(number))
    async with receiving() as quick, running(sender(db)):
        execution = await close_one(db, quick.url)
        assert await settled(db, execution) is None
        assert receiver.most == PER_ORIGIN
        receiver.open.set()


async def test_an_execution_gone_from_history_ends_its_callback(db: Database, receiver: Receiver) -> None:
    execution = await close_one(db, receiver.url)
    await db.execute("delete from detent.executions")
    async with running(sender(db)):
        row = await settled(db, execution)
    assert row is not None and row["failed_at"] is not None
    assert row["last_error"] == "its execution is no longer in the history"
    assert receiver.heard == []


async def test_stopping_waits_for_posts_under_way_and_writes_them_down(
    db: Database, receiver: Receiver
) -> None:
    receiver.open.clear()
    execution = await close_one(db, receiver.url)
    async with running(sender(db)) as one:

        async def asked() -> bool:
            return receiver.under_way == 1

        await until(asked, "the post")
        one.stop()
        receiver.open.set()
    assert await row_of(db, execution) is None


async def test_a_reason_that_the_store_cannot_take_is_made_one_that_it_can(db: Database) -> None:
    execution = await close_one(db, "http://broken.example/")

    async def look_up(host: str, port: int, family: int) -> list[tuple[Any, ...]]:
        raise OSError(5, "nul \0 and half a pair \ud800 " + "x" * 1000)

    async with running(sender(db, look_up=look_up)):
        row = await settled(db, execution)
    assert row is not None and "nul \ufffd and half a pair ?" in row["last_error"]
    assert len(row["last_error"]) == 500


async def test_the_keeper_role_sends_callbacks(database_url: str, db: Database, receiver: Receiver) -> None:
    execution = await close_one(db, receiver.url, result=json.dumps("ü"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DETENT_")}
    keeper = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "detent", "keeper",
        env={**kept, "DETENT_DATABASE": database_url, "DETENT_ALLOW_PRIVATE_CALLBACKS": "true"},
        stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:

        async def gone() -> bool:
            return await row_of(db, execution) is None

        await until(gone, "the callback", 40)
        keeper.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(keeper.wait(), 15) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            keeper.kill()
        await keeper.wait()
    assert [body["result"] for _, body in receiver.heard] == ["ü"]
