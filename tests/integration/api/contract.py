"""Answers held against the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from detent.api.openapi import document

PROBLEM = "application/problem+json"


def check_answer(method: str, path: str, status: int, headers: Mapping[str, str], content: bytes) -> None:
    """The document has this answer: its status, its content type, its shape."""
    kind = headers.get("content-type", "").partition(";")[0]
    operation = operation_of(method, path)
    if operation is None:
        if status in (404, 405) and path != "/":
            assert kind == PROBLEM, (method, path, kind)
            validator("#/components/schemas/Problem").validate(json.loads(content))
        return
    answers = operation["responses"]
    assert str(status) in answers, (
        f"{method} {path} answers {status}, which is not documented: {content[:500]!r}"
    )
    media = answers[str(status)]["content"]
    assert kind in media, f"{method} {path} answers {kind!r}, documented are {list(media)}"
    if "json" in kind:
        validator(json.dumps(media[kind]["schema"])).validate(json.loads(content))
    if kind == PROBLEM:
        told = json.loads(content)
        assert told["status"] == status
        assert told["type"].endswith(told["code"])


def operation_of(method: str, path: str) -> dict[str, Any] | None:
    path = unquote(path)
    for template, operations in sorted(document()["paths"].items(), key=lambda item: "{" in item[0]):
        # Only a job's name may contain slashes.
        pattern = re.sub(r"\\\{(\w+)\\\}", lambda m: ".*" if m[1] == "name" else "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path, re.DOTALL) and method.lower() in operations:
            found: dict[str, Any] = operations[method.lower()]
            return found
    return None


@cache
def validator(schema: str) -> Any:
    found = {"$ref": schema} if schema.startswith("#") else json.loads(schema)
    return jsonschema_rs.Draft202012Validator(
        {**found, "components": document()["components"]}, validate_formats=True
    )
