"""What the server or the network does to a connection, and what the program makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from proxy import TERMINATED, Proxy, error_response

from detent.model.errors import StoreUnavailable
from detent.store.database import Database


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(database_url) as proxy:
        yield proxy


@pytest.fixture
async def through(proxy: Proxy) -> AsyncIterator[Database]:
    database = await Database.open(proxy.url, size=2, application_name="detent test")
    yield database
    proxy.cut()  # a goodbye would wait for an answer
    await database.close()


async def until_refused(database: Database) -> StoreUnavailable:
    """Ask until the answer is that the store is away; any other error fails the test."""
    async with asyncio.timeout(10):
        while True:
            try:
                await database.fetchval("select 1")
            except StoreUnavailable as error:
                return error
            await asyncio.sleep(0)


async def until_served(database: Database) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                assert await database.fetchval("select 2") == 2
                return
            except StoreUnavailable:
                await asyncio.sleep(0.01)


async def heard() -> None:
    """Let the loop turn until what was said has arrived: it only goes through the loopback."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_last_words_of_a_server_make_the_connection_a_lost_one(proxy: Proxy, through: Database) -> None:
    """They come when nobody asked, and before the end of the connection."""
    assert await through.fetchval("select 1") == 1
    proxy.last_words(error_response(TERMINATED))
    await heard()
    error = await until_refused(through)
    assert isinstance(error.__cause__, asyncpg.InternalClientError)
    await until_served(through)


async def test_a_connection_of_its_own_is_closed_by_the_servers_last_words(
    proxy: Proxy, through: Database
) -> None:
    alone = await through.dedicated()
    assert await alone.fetchval("select 1") == 1
    proxy.last_words(error_response(TERMINATED))
    await heard()
    with pytest.raises(StoreUnavailable):
        await alone.fetchval("select 1")
    assert alone.is_closed()
    await alone.close()


async def test_connections_that_are_cut_are_told_and_replaced(proxy: Proxy, through: Database) -> None:
    assert await through.fetchval("select 1") == 1
    proxy.cut()
    await until_refused(through)
    await until_served(through)
