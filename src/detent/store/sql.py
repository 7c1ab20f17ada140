"""SQL lives in files. `queries/*.sql` holds named statements; code asks for them by name.

    -- name: fire_batch
    -- Advance due timers, write the ledger, queue the executions.
    update ...

A name is unique among all files, every statement says in one sentence what it does, and no text stands
outside of a statement: a mistake is an error when the files are loaded, not when a query runs. Each text
opens with its name as a comment, so that the server's own views say which statement they show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("queries")
_HEAD = re.compile(r"^-- name:[ \t]*(.*)$", re.MULTILINE)


class Queries:
    """Statements by name, as attributes or items."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    @classmethod
    def load(cls, folder: Path = FOLDER) -> Queries:
        return _load(folder)

    def __getattr__(self, name: str) -> str:
        try:
            return self._texts[name]
        except KeyError:
            raise AttributeError(f"no query is named {name}") from None

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)


@cache
def _load(folder: Path) -> Queries:
    texts: dict[str, str] = {}
    for file in sorted(folder.glob("*.sql")):
        before, *pieces = _HEAD.split(file.read_text(encoding="utf-8"))
        if any(line and not line.startswith("--") for line in map(str.strip, before.splitlines())):
            raise ValueError(f"{file.name}: text before the first name")
        for name, body in zip(pieces[::2], map(str.strip, pieces[1::2]), strict=True):
            name = name.strip()
            lines = body.splitlines()
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
                raise ValueError(f"{file.name}: {name!r} is not a name")
            if name in texts:
                raise ValueError(f"{file.name}: {name} is there twice")
            if not lines or not lines[0].startswith("-- "):
                raise ValueError(f"{file.name}: {name} does not say what it does")
            if all(line.startswith("--") or not line for line in map(str.strip, lines)):
                raise ValueError(f"{file.name}: {name} has no statement")
            texts[name] = f"/* {name} */\n{body.removesuffix(';')}"
    return Queries(texts)
