"""Every kind of fault, one after the other, as the seed decides; then every promise is checked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from killing import Systems
from rig import for_minutes, role, torment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture
def systems(tmp_path: Path) -> Iterator[Systems]:
    """Several of what there can be several of."""
    with Systems(tmp_path, schedulers=3, workers=2) as running:
        yield running


@pytest.mark.timeout(480)
def test_nothing_is_lost_or_doubled_through_three_minutes_of_faults(systems: Systems, dice: int) -> None:
    torment(systems, dice, for_minutes(2.2, dice))


@pytest.mark.long
@pytest.mark.timeout(480)
@pytest.mark.parametrize("part", ["worker", "scheduler", "keeper", "api"])
def test_one_fault_that_comes_again_and_again_is_survived(systems: Systems, dice: int, part: str) -> None:
    torment(systems, dice, for_minutes(1.5, dice, [role(part)]))
