"""What the server itself says of each statement: which one, and how long it took.

The server is told to log every statement of one database. Ours open with their name as a comment, so a line says
which it was. The log is emptied as it is read, as it would fill the disk.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from pathlib import Path

from bench.server import Connection

_LINE = re.compile(
    rb"\[(\d+)\] LOG:  duration: ([\d.]+) ms  (parse|bind|execute|statement)(?: [^:]*)?: (?:/\* (\w+) \*/|\s*(\w+))"
)


class ServerLog:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._bound: dict[tuple[bytes, bytes], float] = {}
        self.calls: Counter[str] = Counter()
        self.milliseconds: dict[str, list[float]] = defaultdict(list)

    async def switch(self, connection: Connection, *, on: bool) -> None:
        """For sessions that open from now on."""
        database = await connection.fetchval("select current_database()")
        await connection.execute(
            f"alter database {database} set log_min_duration_statement = {0 if on else -1}"
        )

    def forget(self) -> None:
        """Count from here on."""
        os.truncate(self._path, 0)
        self.calls.clear()
        self.milliseconds.clear()

    def read(self) -> None:
        """Take in what was logged since."""
        text = self._path.read_bytes()
        os.truncate(self._path, 0)
        for pid, ms, what, named, word in _LINE.findall(text):
            name = named or word
            if what == b"bind":
                self._bound[pid, name] = float(ms)
            elif what != b"parse":
                self.calls[name.decode()] += 1
                self.milliseconds[name.decode()].append(float(ms) + self._bound.pop((pid, name), 0.0))
