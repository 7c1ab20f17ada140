"""The pieces that schemas are made of."""

from __future__ import annotations

from typing import Any

from detent.api.values import LONGEST_NAME

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def words(*allowed: str) -> Schema:
    return {"type": "string", "enum": list(allowed)}


def or_null(schema: Schema) -> Schema:
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    if "enum" in schema:
        return {**schema, "type": [schema["type"], "null"], "enum": [*schema["enum"], None]}
    kind = schema["type"]
    return {**schema, "type": [*(kind if isinstance(kind, list) else [kind]), "null"]}


def answer(properties: Schema, *optional: str) -> Schema:
    """An object that always has all of these but the optional ones."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def request(properties: Schema, *required: str) -> Schema:
    found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": list(required)} if required else found


TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
ANYTHING: Schema = {}
UUID: Schema = {"type": "string", "format": "uuid"}
INSTANT: Schema = {
    "type": "string",
    "format": "date-time",
    "description": "ISO 8601 in UTC with Z and milliseconds",
}
GIVEN_INSTANT: Schema = {
    "type": "string",
    "format": "date-time",
    "description": "ISO 8601 with Z or an offset",
    "example": "2030-01-01T09:00:00Z",
}
DURATION: Schema = {
    "type": ["number", "string"],
    "minimum": 0,
    "description": "Seconds, or an ISO 8601 duration such as PT5M",
}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}
KEY: Schema = {**NAME, "description": "The same key again answers what the first request made"}
COUNTS: Schema = {"type": "object", "additionalProperties": {"type": "integer"}}
