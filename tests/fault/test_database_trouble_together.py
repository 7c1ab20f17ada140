"""A whole system in one process while its PostgreSQL is in trouble: it waits, says so, and goes on by itself.

After each trouble: no role has ended, readiness turned false and back, work resumed within ten seconds, no
attempt was lost or failed for it, no job was parked, and no loop met an error that it had no name for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from flaky import BUSY, FOR_GOOD, flaky
from proxy import Proxy
from together import LEASE, Together, together, until

from detent.execute import worker
from detent.fire import firer
from detent.store import repeat, session
from detent.store.database import Database
from detent.store.embedded import Embedded, discard, temporary_folder
from detent.store.migrate import migrate
from stage import apart

pytestmark = pytest.mark.timeout(90)


@pytest.fixture(scope="module")
def own_server() -> Iterator[Embedded]:
    """A PostgreSQL that nobody else uses."""
    folder = temporary_folder("detent-trouble-")
    server = Embedded(folder)
    try:
        server.start()
        apart(migrate(server.url))
        yield server
    finally:
        server.stop()
        discard(folder)


@pytest.fixture
async def system(
    own_server: Embedded, monkeypatch: pytest.MonkeyPatch, no_surprises: None
) -> AsyncIterator[Together]:
    async with together(own_server, monkeypatch) as system:
        yield system


@pytest.fixture
def no_surprises(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Trouble with the database has a name: no loop and no request may meet it as an unknown error."""
    yield
    records = [record for when in ("setup", "call") for record in caplog.get_records(when)]
    surprises = [r for r in records if r.exc_info and r.name.startswith("detent")]
    assert not surprises, "\n".join(f"{r.name}: {r.getMessage()} {r.exc_info}" for r in surprises)


async def test_a_restart(system: Together) -> None:
    job = await system.running(3)
    await asyncio.to_thread(system.server.stop)
    await system.becomes_unready()
    await asyncio.to_thread(system.server.start)
    await system.works()
    await system.completes(job)
    assert await system.outcomes(job) == ["succeeded"]


async def test_an_immediate_stop(system: Together) -> None:
    job = await system.running(2)
    assert system.server.pid is not None
    os.kill(system.server.pid, signal.SIGQUIT)
    await system.becomes_unready()
    await asyncio.to_thread(system.server.restart_if_dead)
    await system.works()
    await system.completes(job)
    assert await system.outcomes(job) == ["succeeded"]


async def test_the_end_of_one_session_after_another(system: Together) -> None:
    """Each of the connections is ended, whatever it is for, while everything runs."""
    job = await system.running(2)
    sessions = """select pid from pg_stat_activity
                  where application_name like 'detent %' and backend_type = 'client backend' order by pid"""
    connection = await system.direct()
    pids = [row["pid"] for row in await connection.fetch(sessions)]
    assert len(pids) >= 10
    for pid in pids:
        await connection.execute("select pg_terminate_backend($1)", pid)
        await asyncio.sleep(0.02)
    await connection.close()
    await system.works()
    await system.completes(job)
    assert await system.outcomes(job) == ["succeeded"]


async def test_no_connection_to_spare(system: Together) -> None:
    job = await system.running(1)
    connection = await system.direct()
    hoard: list[Any] = []
    ours = "from pg_stat_activity where application_name like 'detent %' and backend_type = 'client backend'"
    try:
        # Who is ended comes back at once and may find room again, until somebody else has all of it.
        async with asyncio.timeout(20):
            while await connection.fetchval(f"select count(*) {ours}"):
                await connection.execute(f"select pg_terminate_backend(pid) {ours}")
                await take_all(system.server.url, hoard)
        await system.becomes_unready()
        status, answer, headers = await system.call(
            "POST", "/api/v1/jobs", {"name": "x", "task": "trouble.work"}
        )
        assert (status, answer["code"]) == (503, "store_unavailable")
        assert headers["retry-after"]
    finally:
        for one in hoard:
            one.terminate()
        await connection.close()
    await system.works()
    await system.completes(job)
    assert await system.outcomes(job) == ["succeeded"]


async def take_all(url: str, hoard: list[Any]) -> None:
    """Connect until there is no connection to spare."""
    with contextlib.suppress(asyncpg.TooManyConnectionsError):
        while True:
            hoard.append(await asyncpg.connect(url))


async def test_a_database_that_takes_no_writes(system: Together) -> None:
    job = await system.running(2)
    connection = await system.direct()
    await connection.execute("set default_transaction_read_only = off")
    await connection.execute("alter system set default_transaction_read_only = on")
    await connection.execute("select pg_reload_conf()")
    try:
        await system.becomes_unready()
        status, answer, _ = await system.call("POST", "/api/v1/jobs", {"name": "x", "task": "trouble.work"})
        assert status == 503, answer
        await asyncio.sleep(LEASE / 2)  # its attempt ends meanwhile, and cannot be recorded
    finally:
        await connection.execute("alter system reset default_transaction_read_only")
        await connection.execute("select pg_reload_conf()")
        await connection.close()
    await system.works()
    await system.completes(job)
    assert await system.outcomes(job) == ["succeeded"]


@pytest.mark.parametrize("code", BUSY)
async def test_transactions_that_are_undone(system: Together, code: str) -> None:
    """For a while every write is undone: nothing is lost, requests are told to come again."""
    job = await system.running(0.5)
    db = await Database.open(system.server.url, size=1)
    async with flaky(db, code, FOR_GOOD, ["live", "attempts", "jobs", "timers"]):
        status, answer, headers = await system.call(
            "POST", "/api/v1/jobs", {"name": "x", "task": "trouble.work"}
        )
        assert (status, answer["code"]) == (503, "store_unavailable")
        assert headers["retry-after"]
        await asyncio.sleep(0.5)
    await db.close()
    await system.works()
    await system.completes(job)
    assert await system.outcomes(job) == ["succeeded"]


async def test_rows_that_somebody_keeps_locked(
    own_server: Embedded, monkeypatch: pytest.MonkeyPatch, no_surprises: None
) -> None:
    """Only what is locked waits, and not for good."""
    monkeypatch.setitem(session.session.__kwdefaults__, "lock_seconds", 0.3)
    monkeypatch.setattr(repeat, "WITHIN_SECONDS", 0.5)
    monkeypatch.setattr(firer, "PASS_OVER", timedelta(seconds=1))
    async with together(own_server, monkeypatch) as system:
        locked = await system.create({"delay": 0.5})
        connection = await system.direct()
        async with connection.transaction():
            await connection.execute("select from detent.timers where job_id = $1::uuid for update", locked)
            await until(lambda: blocked(system), 10, "the wait of the scheduler")
            await system.works()
            status, _, headers = await system.call("POST", f"/api/v1/jobs/{locked}/pause")
            assert status == 503
            assert headers["retry-after"]
        await connection.close()
        await system.completes(locked)


async def blocked(system: Together) -> int:
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    return int(await system.ask(waiting))


async def test_heartbeats_do_not_wait_for_claims(system: Together) -> None:
    """All that a worker claims and records with is stuck for more than its lease; it is not given up on."""
    job = await system.running(1)
    before, beat = await system.present_worker()
    connection = await system.direct()
    async with connection.transaction():
        await connection.execute("lock table detent.live in share mode")  # it may be read, and not written
        waiting = await system.create()
        await asyncio.sleep(LEASE + 1)
        assert await blocked(system)
        still, later = await system.present_worker()
        assert still == before
        assert later >= beat + 3
    await connection.close()
    await system.completes(job)
    await system.completes(waiting)
    assert await system.outcomes(job) == ["succeeded"]
    await system.works()


async def test_a_network_that_swallows_everything(
    own_server: Embedded, monkeypatch: pytest.MonkeyPatch, no_surprises: None
) -> None:
    """Connections that are neither answered nor ended; then they end, and everything is back."""
    async with Proxy(own_server.url) as proxy, together(own_server, monkeypatch, url=proxy.url) as system:
        job = await system.running(1)
        proxy.swallow()
        await asyncio.sleep(2.0)
        proxy.flow()
        await system.works()
        await system.completes(job)
        proxy.swallow()
        await asyncio.sleep(1.0)
        await proxy.refuse()
        proxy.cut()
        await system.becomes_unready()
        proxy.flow()
        await proxy.accept()
        await system.works()
        assert await system.outcomes(job) == ["succeeded"]


async def test_a_stop_while_the_database_is_away_is_in_order(
    own_server: Embedded, monkeypatch: pytest.MonkeyPatch, no_surprises: None
) -> None:
    monkeypatch.setattr(worker, "STORE_PATIENCE", 1.0)
    async with Proxy(own_server.url) as proxy:
        async with together(own_server, monkeypatch, url=proxy.url) as system:
            await system.works()
            await proxy.refuse()
            proxy.cut()
            await system.becomes_unready()
        assert all(role.done() and role.exception() is None for role in system.roles.values())
    db = await Database.open(own_server.url, size=1)
    await db.execute(
        "update detent.workers set status = 'stopped' where status = 'live'"
    )  # as a rescue would
    await db.close()
