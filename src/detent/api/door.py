"""Who may knock.

An open server on the loopback interface that runs shell commands is within reach of every web page in a
browser on the same machine. Three checks keep those out. The Host must be a loopback name: a page whose own
name was made to resolve here (DNS rebinding) sends that name. A body must be JSON: a form or a script
without our permission cannot send that type across origins. And a change that names a foreign Origin, or
that the browser itself calls cross-site, is refused, also when it has no body.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from detent.api.body import AnyRequest, headers_of
from detent.model.errors import DetentError

_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
JSON = "application/json"


class Forbidden(DetentError):
    """403."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnsupportedType(DetentError):
    """415."""

    code = "unsupported_media_type"


def check(request: AnyRequest) -> None:
    """Refuse what a page from elsewhere could have sent."""
    headers = headers_of(request)
    if sum(name == b"host" for name, _ in request.scope["headers"]) > 1:
        raise Forbidden("forbidden_host", "there is more than one Host: say once whom the request is for")
    host = headers.get("host", "")
    if not _HOST.fullmatch(host):
        raise Forbidden(
            "forbidden_host", f"the Host {host[:100]!r} is not a loopback name: ask 127.0.0.1 or localhost"
        )
    if request.scope["method"] in _READS:
        return
    origin = headers.get("origin")
    if origin is not None and not _is_loopback(origin):
        raise Forbidden("forbidden_origin", f"changes from pages of {origin[:100]!r} are refused")
    if headers.get("sec-fetch-site") == "cross-site":
        raise Forbidden("forbidden_origin", "changes from pages of other sites are refused")
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return  # what clients say about the type of no body at all differs, and means nothing
    kind = headers.get("content-type")
    if kind is None or kind.split(";", 1)[0].strip().lower() != JSON:
        raise UnsupportedType(f"the content type must be {JSON}" + (f", not {kind[:100]!r}" if kind else ""))


def _is_loopback(origin: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and _HOST.fullmatch(parts.netloc) is not None
