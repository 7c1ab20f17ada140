"""A proxy between the program and PostgreSQL that can misbehave.

It passes bytes on as they come, knows where a message ends only where it has to, and can cut its clients off
or say something to them in the server's name.
"""

from __future__ import annotations

import asyncio
import struct
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit, urlunsplit

# What a server says when it ends a session by itself: FATAL, of an administrator's making.
TERMINATED = {"S": "FATAL", "V": "FATAL", "C": "57P01", "M": "terminating connection due to a test"}


def error_response(fields: dict[str, str]) -> bytes:
    body = b"".join(kind.encode() + text.encode() + b"\0" for kind, text in fields.items()) + b"\0"
    return b"E" + struct.pack("!i", len(body) + 4) + body


class Proxy:
    """Listens on a TCP port for as long as it is entered; `url` is the way through it."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        query = parse_qs(self._parts.query)
        self._socket = f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}"
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        user = self._parts.netloc.rpartition("@")[0]
        through = self._parts._replace(netloc=f"{user}@127.0.0.1:{port}", query="sslmode=disable")
        self.url = urlunsplit(through)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def cut(self) -> None:
        """End every connection without a word."""
        for client in list(self._clients):
            client.transport.abort()

    def last_words(self, message: bytes) -> None:
        """Say this to every client, as if the server had said it, and nothing more; `cut` would be next."""
        for client in self._clients:
            client.write(message)
        for pump in self._pumps:
            pump.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(self._socket)
        self._clients.add(writer)
        pumps = [
            asyncio.create_task(_pump(reader, server_writer)),
            asyncio.create_task(_pump(server_reader, writer)),
        ]
        self._pumps.update(pumps)
        done, left = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        self._pumps.difference_update(pumps)
        if not any(pump.cancelled() for pump in done):  # one side has ended: so does the other
            for pump in left:
                pump.cancel()
            self._clients.discard(writer)
            writer.close()
        server_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
