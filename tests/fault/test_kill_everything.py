"""kill -9 in the middle of a stream of jobs, again and again; then every promise is checked.

DETENT_SEED chooses what is killed when. A failing run prints its seed; the same seed does the same again.
"""

from __future__ import annotations

import random
import sys

import pytest
from killing import Systems
from rig import PARTS, everything, everything_twice, torment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def test_nothing_is_lost_or_doubled_when_everything_is_killed(systems: Systems, dice: int) -> None:
    story = torment(systems, dice, [everything, everything_twice, everything])
    assert story.losses > 0, "nothing ran when everything was killed: this run proved nothing"


def test_nothing_is_lost_or_doubled_when_parts_are_killed_under_load(systems: Systems, dice: int) -> None:
    faults = list(PARTS)
    random.Random(dice).shuffle(faults)
    torment(systems, dice, faults)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("offset", range(1, 5))
def test_nothing_is_lost_or_doubled_over_many_whole_deaths(systems: Systems, dice: int, offset: int) -> None:
    torment(systems, dice + offset, [everything, everything_twice] * 5)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("offset", range(1, 5))
def test_nothing_is_lost_or_doubled_over_many_deaths(systems: Systems, dice: int, offset: int) -> None:
    torment(systems, dice + offset, random.Random(dice + offset).choices([*PARTS, everything], k=20))
