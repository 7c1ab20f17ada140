"""A request's body and query as plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

import msgspec
from litestar import Request

from detent.api import values
from detent.api.refusals import Refusals
from detent.api.vocabulary import refuse_unknown
from detent.model.errors import DetentError, InvalidInput, NotFound
from detent.model.ids import parse_id

AnyRequest = Request[Any, Any, Any]
Fields = dict[str, msgspec.Raw]

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BYTE = re.compile(r"\s*\(byte (\d+)\)$")


class MalformedBody(DetentError):
    """The body is not JSON (400); says where."""

    code = "malformed_json"


async def read_object(request: AnyRequest, *, optional: bool = False) -> Fields:
    """The fields of the JSON object in the body, each still as its own text."""
    body = await request.body()
    if optional and not body.strip():
        return {}
    return fields_of(body)


def fields_of(body: bytes, field: str = "body") -> Fields:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8: {_place(body, error.start)}") from None
    try:
        return _fields.decode(body)
    except msgspec.ValidationError:
        raise InvalidInput.of(field, "must be a JSON object", "wrong_type") from None
    except msgspec.DecodeError as error:
        raise MalformedBody(_where(body, str(error))) from None
    except RecursionError:
        raise MalformedBody("the body is nested too deeply") from None


def _where(body: bytes, message: str) -> str:
    if not body.strip():
        return "the body is empty: send a JSON object"
    found = _BYTE.search(message)
    if found is None:
        return f"the JSON ends too early: {_place(body, len(body))}"
    what = message[: found.start()].removeprefix("JSON is malformed: ")
    return f"malformed JSON: {what} at {_place(body, int(found[1]))}"


def _place(body: bytes, byte: int) -> str:
    before = body[:byte].decode(errors="replace")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    near = body[max(0, byte - 20) : byte + 1].decode(errors="replace")
    return f"line {line}, column {column}" + (f", near {near!r}" if near.strip() else "")


class Query:
    """The parameters behind the `?`; a name that is not known is refused like an unknown field."""

    def __init__(self, request: AnyRequest, *known: str) -> None:
        self.refusals = Refusals()
        self._values: dict[str, str] = {}
        raw = request.scope["query_string"]
        # A parameter sent empty is one that was not filled in.
        for name, value in parse_qsl(raw.decode("latin-1"), keep_blank_values=False):
            if "\0" in value or "�" in value:
                self.refusals.add(name, "must be UTF-8 text without NUL")
            elif name in self._values:
                self.refusals.add(name, "is given twice", "conflicting_fields")
            else:
                self._values[name] = value
        refuse_unknown(self._values, known, self.refusals)

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def choice(self, name: str, words: tuple[str, ...]) -> str | None:
        value = self._values.get(name)
        if value is not None and value not in words:
            self.refusals.add(name, f"must be one of {', '.join(words)}")
        return value

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        value = self._values.get(name)
        if value is None:
            return default
        number = int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else None
        if number is None or not least <= number <= most:
            self.refusals.add(name, f"must be a whole number from {least:,} to {most:,}", "out_of_range")
            return default
        return number

    def flag(self, name: str) -> bool:
        return self.choice(name, ("true", "false", "1", "0")) in ("true", "1")

    def done(self) -> None:
        """Every parameter was read: refuse the request if any was wrong."""
        self.refusals.raise_any()


def path_id(text: str, what: str) -> UUID:
    """An id from the path. A malformed one is answered like an unknown one."""
    found = parse_id(text)
    if found is None:
        raise NotFound(f"no such {what}")
    return found


def header_key(headers: Mapping[str, str]) -> str | None:
    """The Idempotency-Key header."""
    value = headers.get("idempotency-key")
    if value is None:
        return None
    try:
        return values.text("Idempotency-Key", value)
    except InvalidInput as refusal:
        raise InvalidInput.of("Idempotency-Key", refusal.errors[0].message) from None
