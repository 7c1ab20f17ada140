"""A small HTTP server that plays the other side of a command: it answers what a test says, in order, and
remembers what it was asked.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

Asked = tuple[str, str, dict[str, str], Any]  # method, path, query, body


class OtherSide:
    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._answers: list[tuple[int, Any, str]] = []

    def will(self, status: int, body: Any, kind: str = "application/json") -> None:
        self._answers.append((status, body, kind))

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        data = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        parts = urlsplit(handler.path)
        body = json.loads(data) if data else None
        self.asked.append((handler.command, parts.path, dict(parse_qsl(parts.query)), body))
        status, answer, kind = self._answers.pop(0)
        said = json.dumps(answer).encode()
        handler.send_response(status)
        handler.send_header("content-type", kind)
        handler.send_header("content-length", str(len(said)))
        handler.end_headers()
        handler.wfile.write(said)

    def __enter__(self) -> Self:
        played = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                played._answer(self)

            do_POST = do_GET

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def problem(
    status: int, code: str, detail: str, errors: list[dict[str, str]] | None = None
) -> tuple[int, Any, str]:
    body = {
        "type": f"urn:detent:problem:{code}", "title": code, "status": status, "detail": detail, "code": code,
        "errors": errors or [],
    }  # fmt: skip
    return status, body, "application/problem+json"
