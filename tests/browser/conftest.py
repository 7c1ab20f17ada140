"""A whole system, and a real Chromium to look at it with."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from detent.store.embedded import discard, temporary_folder

sys.path.append(str(Path(__file__).parents[1] / "integration"))

from systems import Up, until


@pytest.fixture(scope="module")
def system() -> Iterator[Up]:
    folder = temporary_folder("detent-browser-")
    up = Up(folder)
    try:
        yield up.ready()
    finally:
        up.end()
        until(lambda: discard(folder) is None, 30, "the end of everything in the data folder")


@pytest.fixture
def browser(need: Callable[[str], str]) -> Iterator[Browser]:
    """One for each test: its event loop must not outlive the test, or no other loop can run."""
    found = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    program = next(found, None) or need("chromium")
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=program)
        yield started
        started.close()
