"""One kept-alive HTTP connection to a server, with the standard library alone.

A server may close an idle connection at any time. Before a kept one is used again it is looked at, which
finds nearly all of those; for the rest a call that may be repeated is sent once more on a new connection.
One that may not is not: its first sending may have been heard.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from detent.sdk.failures import CannotConnect, ClientError, failure

REPEATABLE = frozenset({"GET", "PUT", "DELETE", "HEAD"})
BROKEN = (http.client.RemoteDisconnected, http.client.BadStatusLine, ConnectionError)


class Connection:
    """Safe to share between threads: calls take turns."""

    def __init__(self, url: str, timeout: float) -> None:
        parts = urlsplit(url.rstrip("/"))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} must look like http://127.0.0.1:8642")
        self.url = url.rstrip("/")
        self._path = parts.path
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._timeout = timeout
        self._turn = threading.Lock()
        self._kept: http.client.HTTPConnection | None = None

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
    ) -> tuple[int, str, bytes]:
        """Status, content type and body of a successful answer; a ClientError for any other."""
        target = self._target(path, query)
        sent = {"accept": "application/json, text/plain", **(headers or {})}
        encoded = None
        if method != "GET":
            # A server that runs commands takes changes only as JSON, which no web page can send unasked.
            sent["content-type"] = "application/json"
            encoded = body if isinstance(body, bytes) else _encoded(body)
        again = method in REPEATABLE if repeatable is None else repeatable
        with self._turn:
            status, answered, data = self._exchange(method, target, encoded, sent, again)
        if status >= 400:
            raise failure(status, _problem(data), answered.get("retry-after"))
        return status, answered.get("content-type", ""), data

    @contextlib.contextmanager
    def stream(self, path: str, query: Mapping[str, Any], accept: str) -> Iterator[Iterator[bytes]]:
        """The lines of an answer that goes on, on a connection of its own."""
        connection = self._open()
        try:
            response = self._send(connection, "GET", self._target(path, query), None, {"accept": accept})
            if response.status >= 400:
                raise failure(response.status, _problem(response.read()))
            yield iter(response)
        except BROKEN as error:
            raise CannotConnect(f"{self.url} broke off: {error}", code="cannot_connect") from error
        finally:
            connection.close()

    def close(self) -> None:
        with self._turn:
            self._drop()

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], again: bool
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        reused = self._kept is not None and not _hung_up(self._kept)
        if not reused:
            self._drop()
        connection = self._kept or self._open()
        try:
            response = self._send(connection, method, target, body, headers)
            data = response.read()
        except BaseException as error:
            self._drop()
            connection.close()
            if isinstance(error, BROKEN) and reused and again:
                return self._exchange(method, target, body, headers, again=False)
            if isinstance(error, http.client.HTTPException | OSError):
                raise _cannot_connect(self.url, error) from error
            raise
        if response.will_close:
            connection.close()
            self._kept = None
        else:
            self._kept = connection
        return response.status, response.headers, data

    def _open(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise _cannot_connect(self.url, error) from error
        return connection

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        connection.request(method, target, body, dict(headers))
        return connection.getresponse()

    def _target(self, path: str, query: Mapping[str, Any] | None) -> str:
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        return f"{self._path}{path}" + (f"?{urlencode(asked, doseq=True)}" if asked else "")

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _encoded(body: Any) -> bytes:
    return b"" if body is None else json.dumps(body, allow_nan=False).encode()


def events(lines: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Server-sent events as (name, data); comments, which keep the connection alive, are left out."""
    name, data = "message", list[str]()
    for line in lines:
        text = line.decode(errors="replace").rstrip("\r\n")
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if text == "":
            if data:
                yield name, "\n".join(data)
            name, data = "message", []
        elif field == "event":
            name = value
        elif field == "data":
            data.append(value)


def _hung_up(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection has something to read: nothing was asked, so it is the server's goodbye."""
    if connection.sock is None:
        return True
    waiting = select.poll()
    waiting.register(connection.sock, select.POLLIN)
    return bool(waiting.poll(0))


def _cannot_connect(url: str, error: BaseException) -> ClientError:
    if isinstance(error, TimeoutError):
        why = "it does not answer in time"
    else:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return CannotConnect(f"cannot reach {url}: {why}", code="cannot_connect")


def _problem(data: bytes) -> Mapping[str, Any]:
    try:
        problem = json.loads(data)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}
