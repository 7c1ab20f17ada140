"""Every path is cut before and after each of its commits, and everything promised still holds.

What its caller does next is its own business: it tries again. So what it is told in the end, and what is left
when all is worked off, must be the same as if nothing had happened; in between, no table may contradict
another. A commit that happened and was not heard of is found again by its identity, never done twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from proxy import Proxy
from sweep_paths import PATHS
from sweep_run import walked

from stage import Stage


@pytest.fixture
async def proxy(stage_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(stage_url) as proxy:
        yield proxy


@pytest.mark.parametrize("name", PATHS)
async def test_a_lost_connection_at_any_commit_changes_nothing_in_the_end(
    stage: Stage, proxy: Proxy, name: str
) -> None:
    path = PATHS[name]
    whole = await walked(stage, proxy, path)
    print(f"{name}: N = {len(whole.points)} ({', '.join(point.label for point in whole.points)})")
    assert whole.points
    for number in range(1, len(whole.points) + 1):
        for when in ("before", "after"):
            cut = await walked(stage, proxy, path, (number, when))  # type: ignore[arg-type]
            at = f"{name}, cut {when} commit {number} ({whole.points[number - 1].label})"
            assert cut.told == whole.told, at
            assert cut.left == whole.left, at
