"""Commands in this process are typed as `detent`, whatever runs the tests."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def typed_as_detent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["detent"])
