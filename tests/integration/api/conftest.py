"""Fixtures of the tests through HTTP.

One server, one database and one event loop carry all of them: starting these costs more than most tests do.
What a test finds is empty all the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from api_client import Api, Running

from detent.runtime.clock import Clock
from detent.store import timers
from detent.store.database import Database
from stage import Stage, stage, stage_url

__all__ = ["stage", "stage_url"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def door(stage_url: str) -> AsyncIterator[Api]:
    """The whole HTTP door; nothing fires unless a test says so."""
    db = await Database.open(stage_url, size=8, application_name="detent test")
    hot = await Database.open(stage_url, size=2, application_name="detent test", hot=True)
    clock = Clock()
    for _ in range(3):
        await clock.sample(lambda: timers.clock_us(hot))
    async with Running(Stage(db, hot, clock)) as served:
        yield served
    await hot.close()
    await db.close()


@pytest_asyncio.fixture(loop_scope="session")
async def api(door: Api) -> AsyncIterator[Api]:
    """The door with nothing behind it."""
    await door.stage.clear()
    yield door
    await door.stage.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever uses the one server runs on its loop."""
    for item in items:
        if "door" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
