"""One program and everything it starts.

A program runs in a session of its own, so its process group holds all its descendants that did not leave
on purpose. The attempt is over when the first process has ended: what it left in the background is ended
too, first asked, then killed. Its output comes through pipes that any descendant may keep open, even one
that left the group; so nothing here waits for the end of a pipe without a limit.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from detent.execute.output import Output, StreamName

TERM_GRACE = 3.0
PIPE_PATIENCE = 1.0
KILL_PATIENCE = 2.0
READ_BYTES = 64 * 1024
LAST_BYTES = 2 * 1024

_LOOK_EVERY = 0.02


def _living(group: int) -> bool:
    """Whether a process group has a member that is not a zombie.

    Orphans become children of process 1, which in a container is often one that never reaps: a dead group
    then stays a valid target of signals. Where there is no /proc nobody can tell.
    """
    processes = Path("/proc")
    if not (processes / "self" / "stat").exists():
        return True
    for process in processes.iterdir():
        if process.name.isdigit():
            try:
                state, _, member_of = (process / "stat").read_text().rpartition(")")[2].split()[:3]
            except (OSError, ValueError):  # gone since
                continue
            if int(member_of) == group and state != "Z":
                return True
    return False


class _Pipe:
    """The reading end of one stream, read as it fills."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._readable)
        self.ended = self._loop.create_future()

    def _readable(self) -> None:
        try:
            data = os.read(self._reader, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self.close()

    def close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        self.close_writer()
        if not self.ended.done():
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self.ended.set_result(None)


class Program:
    """A started program. `wait` for it, then always `end` it."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._process: asyncio.subprocess.Process | None = None
        self._last = bytearray()
        self._pipes: list[_Pipe] = []
        self._told_to_stop = False

    async def start(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None, stdin: BinaryIO
    ) -> None:
        self._pipes = [_Pipe(self._stdout), _Pipe(self._stderr)]
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *argv,
                stdin=stdin,
                stdout=self._pipes[0].writer,
                stderr=self._pipes[1].writer,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        )
        try:
            try:
                self._process = await asyncio.shield(starting)
            except asyncio.CancelledError:
                # Told to stop while it came into being: only a program that is there can be ended with all
                # of its children. `wait` then says that it was told.
                self._told_to_stop = True
                self._process = await starting
        except BaseException:
            self._close_pipes()
            raise
        for pipe in self._pipes:
            pipe.close_writer()

    @property
    def group(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def last_error_line(self) -> str:
        lines = self._last.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    async def wait(self) -> int:
        """The first process's return code, negative for a signal, and with it all that it printed."""
        assert self._process is not None
        if self._told_to_stop:
            raise asyncio.CancelledError
        code = await self._process.wait()
        await self._read_on(PIPE_PATIENCE)
        return code

    async def end(self) -> None:
        """Leave nothing behind: ask the whole group to end, then kill it. Never raises, never hangs."""
        assert self._process is not None
        try:
            if self._signal(signal.SIGTERM):
                await self._gone(TERM_GRACE)
        except asyncio.CancelledError:
            pass  # told a second time: no more patience
        finally:
            if self._signal(signal.SIGKILL):
                await self._reaped()
            self._close_pipes()

    async def _gone(self, seconds: float) -> None:
        """Wait until no process of the group is left, but not longer than this."""
        try:
            async with asyncio.timeout(seconds):
                assert self._process is not None
                await self._process.wait()
                while self._signal(0) and _living(self.group):
                    await asyncio.sleep(_LOOK_EVERY)
                await self._read_on(PIPE_PATIENCE)
        except TimeoutError:
            pass

    async def _reaped(self) -> None:
        """After a kill: the last output, and no zombie."""
        try:
            async with asyncio.timeout(KILL_PATIENCE):
                assert self._process is not None
                await self._process.wait()
                await self._read_on(PIPE_PATIENCE)
        except (TimeoutError, asyncio.CancelledError):
            pass

    async def _read_on(self, seconds: float) -> None:
        ends = [pipe.ended for pipe in self._pipes if not pipe.ended.done()]
        if ends:
            await asyncio.wait(ends, timeout=seconds)

    def _signal(self, number: int) -> bool:
        """Signal the whole group; False if nothing is left of it."""
        try:
            os.killpg(self.group, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # a descendant changed its user: it is there, but not ours to signal
            return False
        return True

    def _stdout(self, data: bytes) -> None:
        self._write("stdout", data)

    def _stderr(self, data: bytes) -> None:
        self._last += data[-LAST_BYTES:]
        if len(self._last) > LAST_BYTES:
            del self._last[:-LAST_BYTES]
        self._write("stderr", data)

    def _write(self, stream: StreamName, data: bytes) -> None:
        self._output.write(stream, data)

    def _close_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.close()
