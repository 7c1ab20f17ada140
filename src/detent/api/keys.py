"""Keys that make a request safe to repeat: what was asked, as a hash."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from detent.api.body import AnyRequest, header_key, headers_of, read_object, value_of
from detent.api.job_fields import Definition
from detent.api.refusals import Refusals
from detent.api.values import text
from detent.api.vocabulary import refuse_unknown
from detent.model.errors import InvalidInput
from detent.model.job import JobSpec
from detent.store.jobs import RequestKey

NULL = msgspec.Raw(b"null")
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(JobSpec)}
_encode = msgspec.json.Encoder(order="deterministic").encode


def definition_hash(definition: Definition) -> bytes:
    """The same for two bodies that mean the same job: spelling and order of fields do not matter."""
    spec = definition.spec
    # Without defaults, whether they were said or not: a later version's new fields change no hash either.
    said = {
        name: value for name, value in msgspec.structs.asdict(spec).items() if value != _DEFAULTS.get(name)
    }
    return _hash([said, msgspec.json.decode(definition.payload)])


def body_hash(body: Any) -> bytes:
    return _hash(body)


def request_key(scope: str, key: str | None, hashed: bytes) -> RequestKey | None:
    return None if key is None else RequestKey(scope, key, hashed)


def one_key(field: str | None, header: str | None, refusals: Refusals) -> str | None:
    """The key of the body's field or of the header; both may be given if they agree."""
    if field is not None and header is not None and field != header:
        refusals.add("idempotency_key", "differs from the Idempotency-Key header", "conflicting_fields")
    return field if field is not None else header


async def action_key(request: AnyRequest) -> str | None:
    """The key of an action, from its header or its body, which has no other field."""
    header = header_key(headers_of(request))
    fields = await read_object(request, optional=True)
    refusals = Refusals()
    refuse_unknown(fields, ("idempotency_key",), refusals)
    given = value_of(fields.get("idempotency_key", NULL), "idempotency_key", refusals)
    if given is not None:
        try:
            given = text("idempotency_key", given)
        except InvalidInput as refusal:
            refusals.take(refusal)
    key = one_key(given, header, refusals)
    refusals.raise_any()
    return key


def _hash(value: Any) -> bytes:
    return blake2b(_encode(value), digest_size=32).digest()
