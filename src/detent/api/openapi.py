"""The contract for machines: OpenAPI 3.1 at /api/v1/openapi.json.

Written by hand beside the handlers rather than guessed from their types, because it also has to say which
answers there are; the tests hold it against the application's routes and against real answers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from detent import __version__
from detent.api.operations import EVENTS, JSON, OPERATIONS, Operation
from detent.api.problem import PROBLEM
from detent.api.schemas import COMPONENTS
from detent.api.shapes import TEXT, Schema, ref

_PROBLEMS = {
    400: "The body is not JSON, or the request is malformed",
    403: "The Host or the Origin is not a loopback name",
    404: "No such thing; malformed ids too",
    405: "This method is not possible here",
    409: "The wrong state for this, or another body under the same key",
    413: "The body is too large",
    415: "The content type must be application/json",
    422: "A field is wrong; `errors` names each",
    500: "A fault of the server's",
    503: "The database cannot be reached or written; Retry-After says when to try again",
}


KEY_HEADER: Schema = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    "description": "The same key again answers what the first request did, and does nothing",
}


@cache
def document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Detent",
            "version": __version__,
            "description": "A job scheduler: exactly-once scheduling, at-least-once execution, exactly-once "
            "recorded outcome.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": COMPONENTS},
    }


def _described(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": _parameters(operation),
        "responses": _responses(operation),
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": operation.body_needed,
            "content": {JSON: {"schema": ref(operation.body)}},
        }
    return described


def _parameters(operation: Operation) -> list[Schema]:
    found: list[Schema] = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for part in operation.path.split("/")
        if part.startswith("{")
    ]
    found += [
        # Sent empty it is one that was not filled in.
        {"name": name, "in": "query", "schema": schema, "allowEmptyValue": True}
        for name, schema in operation.query
    ]
    return [*found, KEY_HEADER] if operation.keyed else found


def _shape(media: str, name: str) -> Schema:
    if media == EVENTS:  # of each event
        return ref("LogEvent")
    return ref(name) if name else TEXT


def _responses(operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, name in operation.answers:
        content = {media: {"schema": _shape(media, name)} for media in operation.media}
        responses[str(status)] = {"description": operation.summary, "content": content}
    for status in sorted({*operation.problems, 405, 500}):
        responses[str(status)] = {
            "description": _PROBLEMS[status],
            "content": {PROBLEM: {"schema": ref("Problem")}},
        }
    return responses
