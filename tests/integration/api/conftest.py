"""Fixtures of the tests through HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from api_client import Api, Running

from stage import Stage, stage, stage_url

__all__ = ["api", "stage", "stage_url"]


@pytest.fixture
async def api(stage: Stage) -> AsyncIterator[Api]:
    """The whole HTTP door on an empty stage; nothing fires unless the test says so."""
    async with Running(stage) as served:
        yield served
