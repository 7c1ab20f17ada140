from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from crowd import crowd, leave_statistics_alone, vacuum

from detent.store.database import Database
from detent.store.embedded import Embedded
from stage import a_database, apart

CROWD = 100_000


@pytest.fixture(scope="session")
def crowded_url(server: Embedded, template: str) -> str:
    """A hundred thousand waiting timers, queued executions and closed ones, with fresh statistics."""
    url = a_database(server, template)
    apart(leave_statistics_alone(url))
    apart(crowd(url, CROWD))
    apart(vacuum(url))
    return url


@pytest.fixture
async def hot(crowded_url: str) -> AsyncIterator[Database]:
    """As schedulers and workers connect."""
    database = await Database.open(crowded_url, size=1, application_name="detent test", hot=True)
    yield database
    await database.close()


@pytest.fixture
async def plain(crowded_url: str) -> AsyncIterator[Database]:
    """As the HTTP door connects."""
    database = await Database.open(crowded_url, size=2, application_name="detent test")
    yield database
    await database.close()
