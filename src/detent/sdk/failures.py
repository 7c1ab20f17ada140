"""What a Client raises.

ClientError                 code, status and field errors, as the server told them
├── CannotConnect           nobody answers at this address
├── InvalidRequest          a field is wrong: `errors` names each (400, 413, 415, 422)
├── NotFound                no such job or execution (404)
├── Conflict                wrong state, or another body under the same key (409)
├── Unavailable             try again later: `retry_after` (429, 503)
├── ServerError             the server failed (other 5xx)
└── WaitTimeout             `wait` gave up; the work goes on
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from detent.model.errors import DetentError, FieldError


class ClientError(DetentError):
    def __init__(
        self, message: str, *, code: str = "error", status: int = 0, errors: Sequence[FieldError] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.errors = tuple(errors)


class CannotConnect(ClientError):
    pass


class InvalidRequest(ClientError):
    pass


class NotFound(ClientError):
    pass


class Conflict(ClientError):
    pass


class Unavailable(ClientError):
    retry_after: float | None = None


class ServerError(ClientError):
    pass


class WaitTimeout(ClientError, TimeoutError):
    pass


def failure(status: int, problem: Mapping[str, Any], retry_after: str | None = None) -> ClientError:
    """The error for a problem document, or for whatever a server in between answered instead."""
    listed = problem.get("errors")
    errors = [
        FieldError(str(one.get("field", "")), str(one.get("code", "invalid")), str(one.get("message", "")))
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict)
    ]
    message = str(problem.get("detail") or problem.get("title") or f"the server answered {status}")
    kind = _kind(status)
    error = kind(message, code=str(problem.get("code") or "error"), status=status, errors=errors)
    if isinstance(error, Unavailable) and retry_after is not None and retry_after.isdigit():
        error.retry_after = float(retry_after)
    return error


def _kind(status: int) -> type[ClientError]:
    if status in (429, 503):
        return Unavailable
    if status >= 500:
        return ServerError
    return {404: NotFound, 409: Conflict, 400: InvalidRequest, 413: InvalidRequest, 415: InvalidRequest,
            422: InvalidRequest}.get(status, ClientError)  # fmt: skip
