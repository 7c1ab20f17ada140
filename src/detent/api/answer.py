"""A JSON answer as it goes out. The framework's own can carry anything, and costs more than a look-up."""

from __future__ import annotations

from collections.abc import Mapping

from litestar.types import Receive, Scope, Send

JSON = (b"content-type", b"application/json")


class Answer:
    __slots__ = ("_body", "_headers", "_status")

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str] | None = None) -> None:
        self._body = body
        self._status = status
        self._headers = [JSON, (b"content-length", b"%d" % len(body))]
        for name, value in (headers or {}).items():
            self._headers.append((name.encode("latin-1"), value.encode("latin-1")))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self._status, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body, "more_body": False})
