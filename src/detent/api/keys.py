"""Keys that make a request safe to repeat: what was asked, as a hash."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from detent.api.job_fields import Definition
from detent.api.refusals import Refusals
from detent.store.jobs import RequestKey

_encode = msgspec.json.Encoder(order="deterministic").encode


def definition_hash(definition: Definition) -> bytes:
    """The same for two bodies that mean the same job: spelling and order of fields do not matter."""
    payload = msgspec.json.decode(definition.payload)
    return _hash([definition.spec, payload])


def body_hash(body: Any) -> bytes:
    return _hash(body)


def request_key(scope: str, key: str | None, hashed: bytes) -> RequestKey | None:
    return None if key is None else RequestKey(scope, key, hashed)


def one_key(field: str | None, header: str | None, refusals: Refusals) -> str | None:
    """The key of the body's field or of the header; both may be given if they agree."""
    if field is not None and header is not None and field != header:
        refusals.add("idempotency_key", "differs from the Idempotency-Key header", "conflicting_fields")
    return field if field is not None else header


def _hash(value: Any) -> bytes:
    return blake2b(_encode(value), digest_size=32).digest()
