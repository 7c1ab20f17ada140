"""The proxy that the other tests break connections with: it counts what commits, and cuts where it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from proxy import Proxy, When

from detent.store.embedded import Embedded
from stage import a_database

LOST = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)


@pytest.fixture(scope="module")
def back(server: Embedded) -> str:
    """One database for all tests here."""
    return a_database(server, "template1")


@pytest.fixture
async def proxy(back: str) -> AsyncIterator[Proxy]:
    async with Proxy(back) as proxy:
        yield proxy


@pytest.fixture
async def direct(back: str) -> AsyncIterator[Any]:
    """A connection past the proxy, which has made a table for notes."""
    connection = await asyncpg.connect(back)
    await connection.execute("drop table if exists note; create table note (text text)")
    yield connection
    await connection.close()


async def notes(direct: Any) -> list[str]:
    return [row["text"] for row in await direct.fetch("select text from note order by text")]


async def add(connection: Any, text: str) -> None:
    await connection.execute("insert into note values ($1)", text)


async def add_simply(connection: Any, text: str) -> None:
    await connection.execute(f"insert into note values ('{text}')")


async def add_in_block(connection: Any, text: str) -> None:
    async with connection.transaction():
        await connection.execute("insert into note values ($1)", text)


async def add_committing_by_a_statement(connection: Any, text: str) -> None:
    await connection.execute("begin")
    await connection.execute("insert into note values ($1)", text)
    await connection.fetch("commit")


WAYS = [add, add_simply, add_in_block, add_committing_by_a_statement]


@pytest.mark.parametrize("way", WAYS)
async def test_each_way_to_commit_is_one_point(proxy: Proxy, direct: Any, way: Any) -> None:
    connection = await asyncpg.connect(proxy.url)
    proxy.count()
    for number in range(3):
        await way(connection, str(number))
    assert [point.number for point in proxy.points] == [1, 2, 3]
    assert await notes(direct) == ["0", "1", "2"]
    await connection.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_cut_decides_whether_the_commit_happened(
    proxy: Proxy, direct: Any, way: Any, when: When
) -> None:
    connection = await asyncpg.connect(proxy.url)
    await way(connection, "prepared by now")
    cut = proxy.cut_at(2, when)
    await way(connection, "one")
    assert not cut.is_set()
    with pytest.raises(LOST):
        await way(connection, "two")
    assert cut.is_set()
    assert connection.is_closed()
    await no_transaction_is_left(direct)
    expected = ["one", "prepared by now", *(["two"] if when == "after" else [])]
    assert await notes(direct) == expected


async def no_transaction_is_left(direct: Any) -> None:
    """The server has noticed the end of every other session."""
    others = (
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    )
    async with asyncio.timeout(5):
        while await direct.fetchval(others):
            await asyncio.sleep(0.005)


async def test_a_rolled_back_block_is_no_point(proxy: Proxy, direct: Any) -> None:
    connection = await asyncpg.connect(proxy.url)
    proxy.count()
    with pytest.raises(ZeroDivisionError):
        async with connection.transaction():
            await add(connection, "never")
            raise ZeroDivisionError
    assert proxy.points == []
    await connection.close()


async def test_a_point_says_which_statement_it_was(proxy: Proxy, direct: Any) -> None:
    connection = await asyncpg.connect(proxy.url)
    proxy.count()
    await connection.fetch("/* take_note */\nselect text from note where text = $1", "x")
    await add_simply(connection, "y")
    assert [point.label for point in proxy.points] == ["take_note", "insert into note values ('y')"]
    await connection.close()


async def test_points_are_counted_over_all_connections(proxy: Proxy, direct: Any) -> None:
    first, second = await asyncpg.connect(proxy.url), await asyncpg.connect(proxy.url)
    cut = proxy.cut_at(2, "after")
    await add(first, "one")
    with pytest.raises(LOST):
        await add(second, "two")
    assert cut.is_set()
    await add(first, "three")
    assert await notes(direct) == ["one", "three", "two"]
    await first.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_hook_is_called_at_the_instant_of_the_cut(proxy: Proxy, direct: Any, when: When) -> None:
    connection = await asyncpg.connect(proxy.url)
    called: list[bool] = []
    proxy.cut_at(1, when, lambda: called.append(connection.is_closed()))
    with pytest.raises(LOST):
        await add(connection, "one")
    assert called == [False]


async def test_large_answers_and_requests_pass_whole(proxy: Proxy, direct: Any) -> None:
    connection = await asyncpg.connect(proxy.url)
    text = "x" * 3_000_000
    assert await connection.fetchval("select $1::text", text) == text
    assert len(await connection.fetch("select generate_series(1, 50000)")) == 50_000
    await connection.close()


async def test_all_connections_can_be_cut(proxy: Proxy, direct: Any) -> None:
    connections = [await asyncpg.connect(proxy.url) for _ in range(3)]
    waiting = asyncio.create_task(connections[0].execute("select pg_sleep(60)"))
    await sleeping(direct)
    proxy.cut()
    with pytest.raises(LOST):
        await waiting
    for connection in connections[1:]:
        with pytest.raises(LOST):
            await connection.fetchval("select 1")
    again = await asyncpg.connect(proxy.url)
    assert await again.fetchval("select 1") == 1
    await again.close()


async def sleeping(direct: Any) -> None:
    async with asyncio.timeout(5):
        while not await direct.fetchval(
            "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
        ):
            await asyncio.sleep(0.005)


async def test_new_connections_can_be_refused_while_old_ones_live(proxy: Proxy, direct: Any) -> None:
    connection = await asyncpg.connect(proxy.url)
    await proxy.refuse()
    with pytest.raises(OSError):
        await asyncpg.connect(proxy.url, timeout=5)
    assert await connection.fetchval("select 1") == 1
    await proxy.accept()
    again = await asyncpg.connect(proxy.url)
    assert await again.fetchval("select 1") == 1
    await again.close()
    await connection.close()


async def test_swallowed_connections_are_accepted_and_never_answered(proxy: Proxy, direct: Any) -> None:
    connection = await asyncpg.connect(proxy.url)
    before = proxy.connections
    proxy.swallow()
    with pytest.raises(TimeoutError):
        await asyncpg.connect(proxy.url, timeout=0.2)
    assert proxy.connections == before + 1
    asked = asyncio.create_task(connection.fetchval("select 7"))
    done, _ = await asyncio.wait([asked], timeout=0.2)
    assert not done
    proxy.flow()
    assert await asked == 7
    await connection.close()


async def test_a_delay_holds_up_both_directions(proxy: Proxy, direct: Any) -> None:
    connection = await asyncpg.connect(proxy.url)
    await connection.fetchval("select 1")
    proxy.delay = 0.1
    started = asyncio.get_running_loop().time()
    await connection.fetchval("select 1")
    assert asyncio.get_running_loop().time() - started >= 0.2
    proxy.delay = 0.0
    await connection.close()


async def test_a_cancelled_statement_is_cancelled_through_the_proxy(proxy: Proxy, direct: Any) -> None:
    connection = await asyncpg.connect(proxy.url)
    with pytest.raises(TimeoutError):
        await connection.execute("select pg_sleep(60)", timeout=0.1)
    assert await connection.fetchval("select 1") == 1
    await connection.close()


async def test_it_listens_on_tcp_too(back: str, direct: Any) -> None:
    async with Proxy(back, tcp=True) as proxy:
        connection = await asyncpg.connect(proxy.url)
        cut = proxy.cut_at(1, "after")
        with pytest.raises(LOST):
            await add(connection, "one")
        assert cut.is_set()
        assert await notes(direct) == ["one"]
        await proxy.refuse()
        with pytest.raises(OSError):
            await asyncpg.connect(proxy.url, timeout=5)


async def test_a_wish_for_encryption_is_answered(back: str) -> None:
    """The server's answer is a single byte, before any message."""
    async with Proxy(back, tcp=True) as proxy:
        connection = await asyncpg.connect(proxy.url.replace("sslmode=disable", "sslmode=prefer"))
        assert await connection.fetchval("select 1") == 1
        await connection.close()


async def test_a_server_that_is_away_ends_the_connection(proxy: Proxy, direct: Any) -> None:
    async with Proxy(proxy.url) as broken:
        await proxy.refuse()
        with pytest.raises(LOST):
            await asyncpg.connect(broken.url, timeout=5)
