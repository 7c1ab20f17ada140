"""Where a page of a list begins.

A cursor is the key of the last item that was shown, so that a page costs the same however deep it lies and
nothing that is added meanwhile shifts it. `page` counts from the front instead: for people, near the front.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from detent.api.body import Query

LIMIT, MOST = 50, 500
DEEPEST = 10_000
PARAMETERS = ("limit", "cursor", "page")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = struct.Struct(">qi")
# The ledger's newest possible key: everything lies before it.
NEWEST = (datetime(9999, 12, 31, tzinfo=UTC), 2**31 - 1)


@dataclass(frozen=True, slots=True)
class Place:
    limit: int
    before: UUID | None
    skip: int


def place_of(query: Query) -> Place:
    """From a query; what is wrong is noted in its refusals."""
    limit = query.whole("limit", LIMIT, 1, MOST)
    page = query.whole("page", 1, 1, DEEPEST)
    cursor = query.text("cursor")
    before = None
    if cursor is not None:
        data = _bytes(cursor)
        if data is None or len(data) != 16:
            _refuse(query)
        else:
            before = UUID(bytes=data)
        if query.text("page") is not None:
            query.refusals.add("page", "cannot be combined with 'cursor'", "conflicting_fields")
    skip = (page - 1) * limit
    if skip > DEEPEST:
        query.refusals.add("page", f"reaches past {DEEPEST:,} items: go on with 'cursor'", "out_of_range")
    return Place(limit, before, skip)


def cursor_of(key: UUID | None) -> str | None:
    return None if key is None else _text(key.bytes)


def ledger_place_of(query: Query) -> tuple[int, tuple[datetime, int]]:
    """The limit, and the (instant, generation) below which a page of the ledger begins."""
    limit = query.whole("limit", LIMIT, 1, MOST)
    cursor = query.text("cursor")
    if cursor is None:
        return limit, NEWEST
    data = _bytes(cursor)
    try:
        micros, generation = _INSTANT.unpack(data or b"")
        return limit, (_EPOCH + timedelta(microseconds=micros), generation)
    except (struct.error, OverflowError):
        _refuse(query)
        return limit, NEWEST


def ledger_cursor_of(nominal_at: datetime, generation: int) -> str:
    return _text(_INSTANT.pack((nominal_at - _EPOCH) // timedelta(microseconds=1), generation))


def _refuse(query: Query) -> None:
    query.refusals.add("cursor", "must be the 'next_cursor' of the page before")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes | None:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if _text(data) == text else None
