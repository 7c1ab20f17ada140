"""Whole systems that are killed. They are run by the same means as those of the integration tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "integration"))

from killing import Systems  # noqa: E402 - its way of running systems lies on the path set above

from stage import stage, stage_url  # noqa: E402

__all__ = ["stage", "stage_url"]

DEFAULT_SEED = 20_260


@pytest.fixture(scope="session")
def dice() -> int:
    """What decides when and what is killed: DETENT_SEED."""
    return int(os.environ.get("DETENT_SEED", DEFAULT_SEED))


@pytest.fixture(autouse=True)
def printed(dice: int) -> None:
    """With every failure, so that it can be had again."""
    print(f"DETENT_SEED={dice}")


@pytest.fixture
def systems(tmp_path: Path) -> Iterator[Systems]:
    """Starts systems over one data folder; at the end nothing of them is left, or the test fails."""
    with Systems(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systems]:
    """The same for all tests of a module, which kill one part of it after another."""
    with Systems(tmp_path_factory.mktemp("lasting")) as running:
        yield running
