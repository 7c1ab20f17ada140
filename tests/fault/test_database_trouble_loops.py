"""Loops that keep a connection or an intention of their own: trouble half way through leaves neither half done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from flaky import FOR_GOOD, SERIALIZATION, flaky
from proxy import Proxy
from sweep_place import queued

from detent.cli.wiring import PostgresPort
from detent.dispatch.claimer import Claimer
from detent.fire.node import Node
from detent.model.errors import StoreBusy, StoreUnavailable
from detent.runtime import notify
from detent.runtime.notify import TIMERS, Listener, Notifier
from detent.store.database import Database, Dedicated
from detent.store.sql import Queries
from stage import Stage, unreliable

queries = Queries.load()


@pytest.fixture
async def node(stage: Stage) -> AsyncIterator[Node]:
    node = Node(stage.hot, stage.clock, changed=lambda _: None)
    yield node
    await node.closed()


async def holds_its_lock(stage: Stage, node: Node) -> bool:
    locks = """select count(*) from pg_locks where locktype = 'advisory' and granted
               and (classid::bigint << 32 | objid::bigint) = $1"""
    return bool(await stage.db.fetchval(locks, node._lock_key))


async def test_a_node_that_could_not_register_does_so_at_the_next_tick(stage: Stage, node: Node) -> None:
    async with flaky(stage.db, SERIALIZATION, 1, ["nodes"]):
        with pytest.raises(StoreBusy):
            await node.run_once()
        await node.run_once()
    assert await stage.db.fetchval("select count(*) from detent.nodes") == 1
    assert await holds_its_lock(stage, node)
    assert len(node.epochs) == 256


async def test_a_node_takes_its_lock_once_its_last_connection_is_gone(
    stage: Stage, stage_url: str, node: Node
) -> None:
    """Until the server notices, the leases are renewed all the same."""
    last = await asyncpg.connect(stage_url)
    await last.fetchval("select pg_advisory_lock($1)", node._lock_key)
    await node.run_once()
    assert len(node.epochs) == 256
    await last.close()
    async with asyncio.timeout(5):
        while await holds_its_lock(stage, node):  # the other's
            await asyncio.sleep(0.005)
    await node.run_once()
    assert await holds_its_lock(stage, node)


async def test_a_node_that_cannot_say_goodbye_leaves_all_the_same(stage: Stage, node: Node) -> None:
    await node.run_once()
    async with flaky(stage.db, SERIALIZATION, FOR_GOOD, ["shard_leases"]):
        with pytest.raises(StoreUnavailable):
            await node.closed()
    assert not await holds_its_lock(stage, node)


async def test_a_firer_that_could_not_load_loads_at_the_next_tick(stage: Stage) -> None:
    await stage.once()
    firer = await stage.firer(database=unreliable(stage.hot, queries.due_timers))
    with pytest.raises(StoreUnavailable):
        await firer.run_once()
    assert firer._reload
    await firer.run_once()
    assert firer.fired == 1


class Ear:
    """A listener and what it heard."""

    def __init__(self, database: Database) -> None:
        self.heard: list[str] = []
        self.lost = 0
        self.listener = Listener(database, {TIMERS: self.heard.append}, self._lost)

    def _lost(self) -> None:
        self.lost += 1

    async def hears(self, database: Database) -> None:
        notifier = Notifier(database)
        notifier.timers([UUID(int=7)])
        before = len(self.heard)
        await notifier.run_once()
        async with asyncio.timeout(5):
            while len(self.heard) == before:
                await asyncio.sleep(0.005)


async def test_a_connection_that_does_not_listen_is_not_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear, listen = Ear(stage.db), Dedicated.listen

    async def fails(*_: Any) -> None:
        raise StoreBusy("not now")

    monkeypatch.setattr(Dedicated, "listen", fails)
    with pytest.raises(StoreBusy):
        await ear.listener.run_once()
    monkeypatch.setattr(Dedicated, "listen", listen)
    await ear.listener.run_once()
    await ear.hears(stage.db)
    await ear.listener.closed()


async def test_a_listener_on_a_silent_line_hangs_up_and_calls_again(
    stage: Stage, stage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "PEER_SECONDS", 0.1)
    async with Proxy(stage_url) as proxy:
        database = await Database.open(proxy.url, size=1)
        ear = Ear(database)
        await ear.listener.run_once()
        await ear.listener.run_once()
        assert ear.lost == 1
        proxy.swallow()
        with pytest.raises(StoreUnavailable):
            await ear.listener.run_once()
        proxy.flow()
        await ear.listener.run_once()
        assert ear.lost == 2  # whatever was said in between is unknown
        await ear.hears(stage.db)
        await ear.listener.closed()
        await database.close()


async def test_a_claim_that_failed_in_the_middle_leaves_nothing_behind(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is no trouble with the database: the rows are taken by then."""
    await queued(stage, "a", "b")
    worker = await stage.worker()
    port = PostgresPort(stage.hot, stage.clock, stage.notifier)
    look_up = Claimer._look_up

    async def fails(*_: Any) -> Any:
        raise KeyError("no such definition")

    monkeypatch.setattr(Claimer, "_look_up", fails)
    with pytest.raises(KeyError):
        await port.claim(worker, ("default",), 10)
    assert {row["state"] for row in await stage.rows("live")} == {"running"}
    monkeypatch.setattr(Claimer, "_look_up", look_up)
    claims = await port.claim(worker, ("default",), 10)
    assert [claim.attempt for claim in claims] == [2, 2]
    assert [row["outcome"] for row in await stage.rows("attempts")] == ["released", "released"]


async def test_a_worker_that_still_has_something_is_not_stopped(stage: Stage) -> None:
    """It could not say how an attempt ended: its lease has to run out, and the rescuer to see to it."""
    worker, claim = await stage.running()
    port = PostgresPort(stage.hot, stage.clock, stage.notifier)
    await port.stop(worker)
    assert await stage.db.fetchval("select status from detent.workers") == "live"
    await stage.record(stage.ended(claim, "succeeded"))
    await port.stop(worker)
    assert await stage.db.fetchval("select status from detent.workers") == "stopped"
