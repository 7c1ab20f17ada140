"""A proxy between a program and its PostgreSQL that breaks the connection where a test wants it broken.

It listens on a Unix socket (or a TCP port) and speaks to the server's own socket. It follows the wire
protocol in both directions: the untyped packets of a start, then messages of one type byte and a length. So
it knows where a transaction becomes durable, which is a *commit point*:

    COMMIT as a simple query, or the Execute of one, inside of a transaction block
    the Sync after an Execute, or a simple query, outside of a block: the statement is its own transaction

Commit points are counted over all connections, from `count` on, and any one of them can be made the last thing
that happens: `before`, the server never hears of it and rolls back; `after`, it has committed, and nothing of
its answer gets through. What only reads cannot be told from what writes and is counted too, but for the
driver's own questions about types.

Besides, all connections at once can be cut, delayed, or swallowed (accepted, and never answered), and new
ones refused. The proxy lives on the event loop that started it.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import struct
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

When = Literal["before", "after"]

SOCKET = ".s.PGSQL.5432"
CHUNK = 1 << 16
# The codes of packets that have no type: they come before anything else on a connection.
CANCEL, SSL, GSS = 80877102, 80877103, 80877104
IDLE, IN_BLOCK = b"I", b"T"

_DRIVERS_OWN = re.compile(r"SELECT\s+current_setting\('jit'\)|WITH\s+RECURSIVE\s+typeinfo_tree")
_COMMENT = re.compile(r"^\s*/\*\s*(.*?)\s*\*/\s*", re.DOTALL)
_COMMITS = re.compile(r"(commit|end)\b", re.IGNORECASE)
_NO_COMMIT = re.compile(r"(begin|start\s+transaction|rollback|abort)\b", re.IGNORECASE)


# What a server says when it ends a session by itself: FATAL, of an administrator's making.
TERMINATED = {"S": "FATAL", "V": "FATAL", "C": "57P01", "M": "terminating connection due to a test"}


def error_response(fields: dict[str, str]) -> bytes:
    body = b"".join(kind.encode() + text.encode() + b"\0" for kind, text in fields.items()) + b"\0"
    return b"E" + struct.pack("!i", len(body) + 4) + body


@dataclass(frozen=True, slots=True)
class CommitPoint:
    """The n-th one, counted from 1, and what was committed: the statement's name or its first words."""

    number: int
    label: str


@dataclass
class Plan:
    """What to do at one commit point. `then` is called at the very instant, before the connection ends."""

    number: int
    when: When
    then: Callable[[], None] | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Proxy:
    """One address in front of one server."""

    def __init__(self, back: str, *, tcp: bool = False) -> None:
        """`back` is the server's URL, with a Unix socket's folder as its host."""
        self._back_url = back
        folder = parse_qs(urlsplit(back).query)["host"][0]
        self._back = Path(unquote(folder)) / SOCKET
        self._tcp = tcp
        self._folder = Path(tempfile.mkdtemp(prefix="detent-proxy-"))
        self._port = 0
        self._server: asyncio.Server | None = None
        self._links: set[Link] = set()
        self._plan: Plan | None = None
        self._flows = asyncio.Event()
        self._flows.set()
        self.delay = 0.0
        self.points: list[CommitPoint] = []
        self.connections = 0  # that were ever accepted

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flows.set()
        await self.refuse()
        links = list(self._links)
        self.cut()
        for link in links:
            await link.ended.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """The server's URL as it is reached through here."""
        parts = urlsplit(self._back_url)
        if self._tcp:
            where = f"host=127.0.0.1&port={self._port}&sslmode=disable"
        else:
            where = f"host={quote(str(self._folder))}&port=5432"
        return parts._replace(query=where).geturl()

    # Commit points

    def count(self) -> None:
        """Count from here on."""
        self.points = []
        self._plan = None

    def cut_at(self, number: int, when: When, then: Callable[[], None] | None = None) -> asyncio.Event:
        """Count from here on, and break the connection at that commit point. The event says that it did."""
        self.count()
        self._plan = Plan(number, when, then)
        return self._plan.done

    def reached(self, label: str) -> Plan | None:
        """A connection is about to commit."""
        self.points.append(CommitPoint(len(self.points) + 1, label))
        plan = self._plan
        return plan if plan is not None and plan.number == len(self.points) else None

    # Faults of all connections

    def cut(self) -> None:
        """End every connection without a word."""
        for link in list(self._links):
            link.cut()

    def last_words(self, message: bytes) -> None:
        """Say this to every client, as if the server had said it, and nothing more; `cut` would be next."""
        for link in list(self._links):
            link.last_words(message)

    async def refuse(self) -> None:
        """Take no new connections."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def accept(self) -> None:
        """Take new connections (again)."""
        if self._server is not None:
            return
        if self._tcp:
            self._server = await asyncio.start_server(self._taken, "127.0.0.1", self._port)
            self._port = self._server.sockets[0].getsockname()[1]
        else:
            path = self._folder / SOCKET
            path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._taken, path)

    def swallow(self) -> None:
        """Let nothing through, either way, until `flow`: also new connections are never answered."""
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    async def passage(self) -> None:
        """Wait as long as the present fault makes every piece of data wait."""
        if self.delay:
            await asyncio.sleep(self.delay)
        await self._flows.wait()

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            back_reader, back_writer = await asyncio.open_unix_connection(self._back)
        except OSError:  # the server itself is away: so are we
            writer.transport.abort()
            return
        link = Link(self, reader, writer, back_reader, back_writer)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)


class Link:
    """One connection through the proxy, and how far its conversation has got."""

    def __init__(
        self,
        proxy: Proxy,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back_reader: asyncio.StreamReader,
        back_writer: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._back_reader, self._back_writer = back_reader, back_writer
        self._pumps: list[asyncio.Task[None]] = []
        self._untyped = 0  # answers of one byte that the server owes: to a wish for encryption
        self._status = IDLE
        self._statements: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}
        self._executed: str | None = None
        self._withheld: Plan | None = None  # its commit is with the server; the answer stays here
        self._mute = False
        self._hung_up = asyncio.Event()
        self.ended = asyncio.Event()

    async def run(self) -> None:
        self._pumps = [asyncio.create_task(self._ask()), asyncio.create_task(self._answer())]
        try:
            await asyncio.wait(self._pumps, return_when=asyncio.FIRST_COMPLETED)
            if self._mute:
                await self._hung_up.wait()
        finally:
            self.cut()
            await asyncio.gather(*self._pumps, return_exceptions=True)
            self.ended.set()

    def cut(self) -> None:
        """End the connection on both sides at once, with whatever was under way."""
        self._hung_up.set()
        self._writer.transport.abort()
        self._back_writer.transport.abort()
        for pump in self._pumps:
            pump.cancel()

    def last_words(self, message: bytes) -> None:
        """The client hears this and then nothing, on a connection that stays."""
        self._mute = True
        self._writer.write(message)
        self._back_writer.transport.abort()
        for pump in self._pumps:
            pump.cancel()

    # From the program to the server

    async def _ask(self) -> None:
        frames = self._frames(self._reader)
        if not await self._start(self._reader):
            return
        async for kind, message in frames:
            if (plan := self._commit_point(kind, message)) is not None:
                if plan.when == "before":
                    self._carry_out(plan)
                    return
                self._withheld = plan
            self._back_writer.write(message)
            await self._back_writer.drain()

    async def _start(self, reader: asyncio.StreamReader) -> bool:
        """Pass on the packets before the first message; whether a session follows them."""
        while True:
            try:
                head = await reader.readexactly(8)
                length, code = struct.unpack("!II", head)
                packet = head + await reader.readexactly(length - 8)
            except asyncio.IncompleteReadError:
                return False
            await self._proxy.passage()
            if code in (SSL, GSS):
                self._untyped += 1
            self._back_writer.write(packet)
            await self._back_writer.drain()
            if code == CANCEL:
                await asyncio.sleep(3600)  # the server ends this connection when it has heard it
            if code not in (SSL, GSS):
                return True

    def _commit_point(self, kind: bytes, message: bytes) -> Plan | None:
        """The plan for the commit that this message asks for, if there is one."""
        body = message[5:]
        match kind:
            case b"P":
                name, text, _ = body.split(b"\0", 2)
                self._statements[name] = text.decode()
            case b"B":
                portal, name, _ = body.split(b"\0", 2)
                self._portals[portal] = self._statements.get(name, "")
            case b"E":
                text = self._portals.get(body.split(b"\0", 1)[0], "")
                if self._status == IN_BLOCK and self._commits(text):
                    return self._proxy.reached(_label(text))  # the server does not wait for the Sync here
                self._executed = text
            case b"S":
                executed, self._executed = self._executed, None
                if executed is not None and self._status == IDLE and self._commits(executed):
                    return self._proxy.reached(_label(executed))
            case b"Q":
                text = body.rstrip(b"\0").decode()
                if self._commits(text):
                    return self._proxy.reached(_label(text))
        return None

    def _commits(self, text: str) -> bool:
        plain = _COMMENT.sub("", text).lstrip()
        if self._status == IDLE:
            return not any(known.match(plain) for known in (_NO_COMMIT, _COMMITS, _DRIVERS_OWN))
        return self._status == IN_BLOCK and _COMMITS.match(plain) is not None

    # From the server to the program

    async def _answer(self) -> None:
        async for kind, message in self._frames(self._back_reader):
            if kind == b"Z":
                self._status = message[5:6]
                if self._withheld is not None:
                    self._carry_out(self._withheld)
                    return
            if self._withheld is None:
                self._writer.write(message)
                await self._writer.drain()

    def _carry_out(self, plan: Plan) -> None:
        if plan.then is not None:
            plan.then()
        plan.done.set()
        self.cut()

    async def _frames(self, reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, bytes]]:
        """Whole messages, each with its type. A short answer to a wish for encryption has none."""
        waiting = bytearray()
        while True:
            try:
                chunk = await reader.read(CHUNK)
            except OSError:
                return
            if not chunk:
                return
            await self._proxy.passage()
            waiting += chunk
            while waiting:
                if reader is self._back_reader and self._untyped:
                    self._untyped -= 1
                    size = 1
                elif len(waiting) < 5:
                    break
                else:
                    size = 1 + int.from_bytes(waiting[1:5], "big")
                if len(waiting) < size:
                    break
                message = bytes(waiting[:size])
                del waiting[:size]
                yield (message[:1] if size > 1 else b"", message)


def _label(text: str) -> str:
    """The name of one of our statements, or how the text begins."""
    named = _COMMENT.match(text)
    return named.group(1) if named else " ".join(text.split())[:40].rstrip(";")
