"""Where a peer is installed: a folder of the user's cache, named after the versions that it must have.

Made once, under another name, and renamed when whole. Nothing in the repository changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from bench.packages import finish
from bench.step import Skipped

PINS = Path(__file__).with_name("pins")
_turn = asyncio.Lock()


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "detent-bench"


async def python_of(peer: str) -> str:
    """The interpreter of a virtual environment with the pinned versions of a peer."""
    pins = PINS / f"{peer}.txt"
    place = cache() / f"{peer}-{_mark(pins, sys.version)}"
    async with _made(place) as fresh:
        if fresh:
            await finish(sys.executable, "-m", "venv", str(fresh))
            await finish(
                str(fresh / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                "--no-deps", "-r", str(pins),
            )  # fmt: skip
    return str(place / "bin" / "python")


async def modules() -> Path:
    """A folder with the pinned packages of those peers that run on Node."""
    for program in ("node", "npm"):
        if not shutil.which(program):
            raise Skipped(f"{program} is not installed")
    pins = PINS / "package.json"
    place = cache() / f"node-{_mark(pins, '')}"
    async with _made(place) as fresh:
        if fresh:
            fresh.mkdir()
            shutil.copy(pins, fresh)
            await finish(
                "npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts",
                "--loglevel=error", cwd=str(fresh),
            )  # fmt: skip
    return place


@contextlib.asynccontextmanager
async def _made(place: Path) -> AsyncIterator[Path | None]:
    """Another name to make it under, if it is not there yet."""
    async with _turn:
        if place.exists():
            yield None
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_name(f"{place.name}.new-{os.getpid()}")
        try:
            yield fresh
            fresh.rename(place)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise


def _mark(pins: Path, besides: str) -> str:
    return hashlib.sha256(pins.read_bytes() + besides.encode()).hexdigest()[:12]
