"""A request's body and query as plain values."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

import msgspec
from litestar import Request
from litestar.exceptions import HTTPException

from detent.api import values
from detent.api.refusals import Refusals
from detent.api.vocabulary import refuse_unknown
from detent.model.errors import DetentError, InvalidInput, NotFound
from detent.model.ids import parse_id

AnyRequest = Request[Any, Any, Any]
Fields = dict[str, msgspec.Raw]

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BYTE = re.compile(r"\s*\(byte (\d+)\)$")
# Escapes in a string, one after another: a surrogate pair, half of one (in the group), any other.
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{\]}]')

MOST_LEVELS = 200
HEAR_BYTES = 64 * 1024 * 1024
HEAR_SECONDS = 3.0


class MalformedBody(DetentError):
    """The body is not JSON (400); says where."""

    code = "malformed_json"


async def read_object(request: AnyRequest, *, optional: bool = False) -> Fields:
    """The fields of the JSON object in the body, each still as its own text."""
    try:
        body = await request.body()
    except HTTPException as error:
        if error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            await _let_finish(request)
        raise
    if optional and not body.strip():
        return {}
    return fields_of(body)


async def _let_finish(request: AnyRequest) -> None:
    """Hear the rest of a body that is too large, unread. Most clients listen for an answer only when they
    have said everything; a connection that is closed before takes the answer with it.
    """
    heard = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEAR_SECONDS):
            while heard < HEAR_BYTES:
                message: Mapping[str, Any] = await request.receive()
                heard += len(message.get("body", b""))
                if not message.get("more_body"):
                    return


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


def value_of(raw: msgspec.Raw, field: str, refusals: Refusals) -> Any:
    """The value of one field; None after noting why it cannot be read."""
    if too_deep(raw):
        refusals.add(field, f"is nested too deeply, at most {MOST_LEVELS} levels are allowed")
        return None
    try:
        return msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        refusals.add(field, "has a number that is out of range", "out_of_range")
        return None


def too_deep(raw: msgspec.Raw) -> bool:
    """Whether it has more levels than we, and a worker, are sure to be able to read."""
    text = bytes(raw)
    if text.count(b"[") + text.count(b"{") <= MOST_LEVELS:
        return False
    level = 0
    for token in _TOKEN.finditer(text):
        if token[0] in b"[{":
            level += 1
            if level > MOST_LEVELS:
                return True
        elif token[0] in b"]}":
            level -= 1
    return False


def _where(body: bytes, message: str) -> str:
    if not body.strip():
        return "the body is empty: send a JSON object"
    for escape in _ESCAPE.finditer(body):
        if escape[1]:
            return f"malformed JSON: half of a surrogate pair at {_place(body, escape.start())}"
    found = _BYTE.search(message)
    if found is None:
        return f"the JSON ends too early: {_place(body, len(body))}"
    what = message[: found.start()].removeprefix("JSON is malformed: ")
    # Of what follows the end the parser names the second byte.
    byte = int(found[1]) - (what == "trailing characters")
    return f"malformed JSON: {what} at {_place(body, byte)}"


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
        for name, value in parse_qsl(raw.decode(errors="replace"), keep_blank_values=False):
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


def headers_of(request: AnyRequest) -> dict[str, str]:
    """The headers by name, of several with one name the first. The framework's own mapping costs as much as
    reading a job.
    """
    headers: dict[str, str] = {}
    for name, value in request.scope["headers"]:
        headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return headers


def header_key(headers: Mapping[str, str]) -> str | None:
    """The Idempotency-Key header."""
    value = headers.get("idempotency-key")
    if value is None:
        return None
    if not value.isascii():  # which characters other bytes stand for is anybody's guess
        raise InvalidInput.of("Idempotency-Key", "must be ASCII: the field 'idempotency_key' takes any text")
    return values.text("Idempotency-Key", value)
