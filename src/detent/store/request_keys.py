"""Requests made under a key.

The first request with a key notes it together with a hash of what was asked and the id of what it made or
changed, in the same transaction as the deed itself. A repeat meets the primary key: it waits while the
first is under way, and is then answered from what the first one left. Nothing rests on a look before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from detent.model.errors import Conflict, FieldError
from detent.store.database import Connection, Database
from detent.store.sql import Queries


@dataclass(frozen=True, slots=True)
class RequestKey:
    """`scope` says what kind of request it is and about whom; a key means something only within it."""

    scope: str
    key: str
    body_hash: bytes


class KeyReused(Conflict):
    """Another body came under a key that was used before; `positions` names the requests."""

    def __init__(self, positions: Sequence[int]) -> None:
        super().__init__(
            "idempotency_conflict",
            "this idempotency key was used before with another body: use a new key for a new request",
        )
        self.positions = tuple(positions)
        message = "was used before with another body"
        self.errors: tuple[FieldError, ...] = (FieldError("idempotency_key", self.code, message),)


async def claim_keys(
    connection: Connection, tenant: int, keys: Sequence[RequestKey | None], subjects: Sequence[UUID]
) -> list[UUID | None]:
    """Note the requests, each about its subject. Answers for each what an earlier equal request was about;
    None for a new one and for one without a key.
    """
    queries = Queries.load()
    wanted = [(key, subject) for key, subject in zip(keys, subjects, strict=True) if key is not None]
    if not wanted:
        return [None] * len(keys)
    scopes = [key.scope for key, _ in wanted]
    names = [key.key for key, _ in wanted]
    new = {
        (row["scope"], row["key"])
        for row in await connection.fetch(
            queries.claim_request_keys,
            tenant,
            scopes,
            names,
            [key.body_hash for key, _ in wanted],
            [subject for _, subject in wanted],
        )
    }
    if len(new) == len(wanted):
        return [None] * len(keys)
    # A statement of its own: its snapshot holds what was committed while the one above waited.
    known = {
        (row["scope"], row["key"]): (row["body_hash"], row["subject"])
        for row in await connection.fetch(queries.read_request_keys, tenant, scopes, names)
    }
    before: list[UUID | None] = []
    reused: list[int] = []
    for position, key in enumerate(keys):
        if key is None or (key.scope, key.key) in new:
            before.append(None)
            continue
        if (key.scope, key.key) not in known:  # forgotten just now, because it was old: a new request
            before.append(await claim_key(connection, tenant, key, subjects[position]))
            continue
        body_hash, subject = known[key.scope, key.key]
        before.append(subject)
        if body_hash != key.body_hash:
            reused.append(position)
    if reused:
        raise KeyReused(reused)
    return before


Place = tuple[int, str, str]  # tenant, scope, key
START: Place = (0, "", "")


async def forget_keys(
    database: Database, after: Place, most: int, keep: timedelta
) -> tuple[int, Place | None]:
    """Look at the next `most` keys behind `after`, and forget those whose job or execution ended so long ago.
    Answers how many were forgotten, and where to go on; None at the end.
    """
    row = await database.fetchrow(Queries.load().forget_request_keys, *after, most, keep)
    assert row is not None
    place = (row["tenant"], row["scope"], row["key"]) if row["seen"] == most else None
    return row["forgotten"], place


async def claim_key(
    connection: Connection, tenant: int, key: RequestKey | None, subject: UUID
) -> UUID | None:
    """The same for a single request."""
    return (await claim_keys(connection, tenant, [key], [subject]))[0]
