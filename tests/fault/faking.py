"""Clocks that are wrong: a PostgreSQL whose time can be set, and processes that live in another hour."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from story import ask
from systems import until

from detent.store.binaries import locate, usable_by
from detent.store.cluster import command
from detent.store.embedded import Embedded, discard, temporary_folder
from detent.store.folder import find_place

PLACES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1")


def library() -> Path | None:
    """libfaketime, if this machine has it."""
    for pattern in PLACES:
        for found in Path("/").glob(pattern.lstrip("/")):
            return found
    return None


def in_another_hour(offset: str) -> dict[str, str]:
    """The environment of a process whose wall clock is off; its monotonic clock is not."""
    return {"LD_PRELOAD": str(library()), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


class FakedServer:
    """A PostgreSQL of its own whose clock the test sets."""

    def __init__(self) -> None:
        self.folder = temporary_folder("detent-clock-")
        self._offset = self.folder / "offset"

    def __enter__(self) -> Self:
        embedded = Embedded(self.folder)
        self.url = embedded.start()
        embedded.stop()
        place = find_place(self.folder)
        words = command(place, usable_by(locate(), place.user))
        user = place.user.uid if place.user else None
        self._offset = place.home / "offset"
        self.step(0)
        environment = {
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C",
            "TZ": "UTC",
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self._process = subprocess.Popen(
            words, env=environment, user=user, group=user, extra_groups=[] if user else None, cwd="/"
        )
        until(self._answers, 30, "the start of PostgreSQL")
        return self

    def _answers(self) -> bool:
        try:
            return bool(ask(self.url, "select 1") == 1)
        except OSError:
            return False
        except Exception as error:
            if "starting up" in str(error):
                return False
            raise

    def step(self, seconds: int) -> None:
        """From now on its clock is so far ahead of the true one."""
        new = self._offset.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.chmod(0o644)
        new.replace(self._offset)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        discard(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
