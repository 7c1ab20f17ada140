"""Identity.

A job's id is a UUIDv7: random, ordered by creation.

An execution's id is a UUIDv8 and a function of what caused it: 48 bits of its day-true instant in
milliseconds, then a hash of (job, cause, key). Asking for the same work twice names the same id, so a
repeat meets a primary key instead of a race; the time prefix sends inserts to one end of every index
and names the history partition that holds the row.
"""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from uuid import UUID

SHARDS = 256
DEFAULT_TENANT = 1

# An instant this far from its decision is filed under the decision's day: an old backfill or a year's
# catch-up then never lacks a partition.
DAY_TRUE_WITHIN = timedelta(days=7)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_V7 = 0x7 << 76
_V8 = 0x8 << 76
_VARIANT = 0b10 << 62
_LOW_74 = ((1 << 12) - 1) << 64 | ((1 << 62) - 1)


def microseconds(at: datetime) -> int:
    since = at - _EPOCH  # its parts are three times as quick as a division by a duration
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def milliseconds(at: datetime) -> int:
    return microseconds(at) // 1000


def new_job_id(now: datetime) -> UUID:
    noise = int.from_bytes(os.urandom(10), "big") & _LOW_74
    return UUID(int=milliseconds(now) << 80 | _V7 | _VARIANT | noise)


def new_incarnation_id() -> UUID:
    """The id of one process incarnation (a worker or a node); never used again after it ends."""
    return UUID(bytes=os.urandom(16), version=4)


def day_true(nominal: datetime, decided: datetime) -> datetime:
    """The instant whose day an execution and its ledger row are filed under."""
    return nominal if abs(nominal - decided) <= DAY_TRUE_WITHIN else decided


def execution_id(filed_at: datetime, job_id: UUID, cause: str, key: str) -> UUID:
    identity = b"%b\x00%b\x00%b" % (job_id.bytes, cause.encode(), key.encode())
    digest = int.from_bytes(blake2b(identity, digest_size=10).digest(), "big") & _LOW_74
    return UUID(int=milliseconds(filed_at) << 80 | _V8 | _VARIANT | digest)


def schedule_key(generation: int, nominal: datetime) -> str:
    return f"{generation}:{microseconds(nominal)}"


def filed_day(execution: UUID) -> date:
    """The day partition that an execution's id names."""
    return _day((execution.int >> 80) // 86_400_000)


@lru_cache(maxsize=1024)
def _day(number: int) -> date:
    return (_EPOCH + timedelta(days=number)).date()


def first_id_of(day: date) -> UUID:
    """The least id filed under a day: the lower bound of that day's history partition."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return UUID(int=milliseconds(start) << 80)


def shard_of(job_id: UUID) -> int:
    """The last byte of an id is random in every version used here, hence an even spread."""
    return job_id.bytes[15]


def parse_id(text: str) -> UUID | None:
    """A canonical UUID or None: malformed ids are answered like unknown ones."""
    try:
        parsed = UUID(text)
    except ValueError:
        return None
    return parsed if str(parsed) == text.lower() else None
