"""Commands to type next, as they work where this one was typed."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path


def hint(words: str, url: str | None = None) -> str:
    """A command of ours; with the server that this one was told to talk to."""
    elsewhere = f" --url {shlex.quote(url)}" if url else ""
    return f"{own_command()} {words}{elsewhere}"


def own_command() -> str:
    """This program as whoever started it can type it: its bare name only where the shell would find it."""
    if shutil.which("detent"):
        return "detent"
    if Path(sys.argv[0]).name == "__main__.py":
        return f"{_typed(sys.executable)} -m detent"
    return _typed(sys.argv[0])


def _typed(program: str) -> str:
    whole = str(Path(program).absolute())
    near = os.path.relpath(whole)
    if os.sep not in near:
        near = f"./{near}"  # a shell looks for bare names elsewhere
    return shlex.quote(min(near, whole, key=len))
