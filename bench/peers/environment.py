"""Where a peer is installed: a folder of the user's cache, named after the versions that it must have.

Made once, under another name, and renamed when whole. Nothing in the repository changes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

from bench.packages import finish
from bench.step import Skipped

PINS = Path(__file__).with_name("pins")


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "detent-bench"


async def python_of(peer: str) -> str:
    """The interpreter of a virtual environment with the pinned versions of a peer."""
    pins = PINS / f"{peer}.txt"
    place = cache() / f"{peer}-{_mark(pins, sys.version)}"
    if not place.exists():
        fresh = place.with_name(f"{place.name}.new-{os.getpid()}")
        try:
            await finish(sys.executable, "-m", "venv", str(fresh))
            await finish(
                str(fresh / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                "--no-deps", "-r", str(pins),
            )  # fmt: skip
            fresh.rename(place)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    return str(place / "bin" / "python")


async def modules() -> Path:
    """A folder with the pinned packages of those peers that run on Node."""
    for program in ("node", "npm"):
        if not shutil.which(program):
            raise Skipped(f"{program} is not installed")
    pins = PINS / "package.json"
    place = cache() / f"node-{_mark(pins, '')}"
    if not place.exists():
        fresh = place.with_name(f"{place.name}.new-{os.getpid()}")
        fresh.mkdir(parents=True)
        try:
            shutil.copy(pins, fresh)
            await finish(
                "npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts",
                "--loglevel=error", cwd=str(fresh),
            )  # fmt: skip
            fresh.rename(place)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    return place


def _mark(pins: Path, besides: str) -> str:
    return hashlib.sha256(pins.read_bytes() + besides.encode()).hexdigest()[:12]
