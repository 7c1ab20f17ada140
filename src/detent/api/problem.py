"""Errors as application/problem+json (RFC 9457), whoever made them: we, the framework, or a bug."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Response
from litestar.exceptions import HTTPException

from detent.api.body import AnyRequest, MalformedBody
from detent.api.door import Forbidden, UnsupportedType
from detent.model.errors import (
    Conflict,
    DetentError,
    FieldError,
    InvalidInput,
    NotFound,
    StoreUnavailable,
)

log = logging.getLogger("detent.api")

PROBLEM = "application/problem+json"
_STATUSES: dict[type[DetentError], int] = {
    MalformedBody: 400,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    UnsupportedType: 415,
    InvalidInput: 422,
    StoreUnavailable: 503,
}
_FRAMEWORK_CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "unsupported_media_type",
}


def problem(
    status: int,
    code: str,
    detail: str,
    errors: Iterable[FieldError] = (),
    headers: dict[str, str] | None = None,
) -> Response[bytes]:
    body = {
        "type": f"urn:detent:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "errors": [{"field": e.field, "code": e.code, "message": e.message} for e in errors],
    }
    return Response(msgspec.json.encode(body), status_code=status, media_type=PROBLEM, headers=headers)


def answer(request: AnyRequest, error: Exception) -> Response[bytes]:
    """The answer to a request that failed."""
    if isinstance(error, InvalidInput):
        codes = {e.code for e in error.errors}
        return problem(422, codes.pop() if len(codes) == 1 else "invalid", str(error), error.errors)
    if isinstance(error, DetentError):
        for kind, status in _STATUSES.items():
            if isinstance(error, kind):
                headers = {"retry-after": "1"} if status == 503 else None
                return problem(status, error.code, str(error), getattr(error, "errors", ()), headers)
    if isinstance(error, HTTPException) and error.status_code < 500:
        return _framework(request, error)
    if isinstance(error, HTTPException) and "disconnected" in error.detail:
        return problem(400, "bad_request", "the connection ended before the body did")
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(500, "internal_error", "something went wrong here; the server's log says what")


def _framework(request: AnyRequest, error: HTTPException) -> Response[bytes]:
    status = error.status_code
    code = _FRAMEWORK_CODES.get(status, "bad_request")
    headers: dict[str, Any] = dict(error.headers or {})
    match status:
        case 404:
            detail = f"there is nothing at {request.url.path}"
        case 405:
            detail = f"{request.method} is not possible here"
        case 413:
            detail = f"the body is larger than the {_limit(request)} that are allowed here"
            # The rest of the body is not read: this connection cannot be used again.
            headers["connection"] = "close"
            return problem(status, code, detail, [FieldError("body", "too_large", detail)], headers)
        case _:
            detail = error.detail
    return problem(status, code, detail, headers=headers or None)


def _limit(request: AnyRequest) -> str:
    limit = request.route_handler.resolve_request_max_body_size() or 0
    return f"{limit // (1024 * 1024)} MiB"
