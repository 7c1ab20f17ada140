"""A process from which others are forked that walk a path and are killed on the way.

Everything is imported once; a fork costs milliseconds. Spoken to by lines of JSON on standard input: a path's
name, an address, and what it is given. The forked process opens its connections, says its number, waits for a
line, and walks. When it is gone the parent says how it ended, and takes the next line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from sweep_paths import die_walking


def serve() -> None:
    while line := sys.stdin.readline():
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _walk(order)
        _, status = os.waitpid(pid, 0)
        print(f"ended {os.waitstatus_to_exitcode(status)}", flush=True)


def _walk(order: dict[str, str]) -> None:
    def ready() -> None:
        print(f"ready {os.getpid()}", flush=True)
        sys.stdin.readline()

    code = 1
    try:
        asyncio.run(die_walking(order["path"], order["url"], order["given"].encode(), ready))
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
