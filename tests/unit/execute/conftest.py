"""What touches the event loop closely is tested on both: a worker runs on uvloop, user code on either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

ON_BOTH = ("test_shell_programs", "test_staged_claims", "test_worker_loop")


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.stem in ON_BOTH:
        factories["uvloop"] = uvloop.new_event_loop
    return factories
