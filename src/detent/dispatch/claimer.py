"""Claims due executions of a worker's pools from PostgreSQL, with their definitions.

A claim statement reads only `live`. Definitions are immutable, so they are fetched once per revision and
kept; a queue of a million executions of one job costs one read of its payload.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from operator import itemgetter
from uuid import UUID

import msgspec
from msgspec.structs import replace

from detent.model.job import JobSpec
from detent.model.work import Claim
from detent.store import work
from detent.store.database import Database, Record

KEEP_DEFINITIONS = 10_000
# Large payloads are not worth keeping for a second execution that may never come.
KEEP_PAYLOAD = 4096

_decode = msgspec.json.Decoder(JobSpec).decode
_order = itemgetter(7, 8)  # class, rank
Definition = tuple[JobSpec, str]


class Claimer:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._definitions: OrderedDict[tuple[UUID, int], Definition] = OrderedDict()

    async def claim(self, worker_id: UUID, pools: Sequence[str], limit: int) -> list[Claim]:
        rows: list[Record] = []
        for pool in pools:
            if len(rows) < limit:
                rows += await work.claim(self._database, worker_id, pool, limit - len(rows))
        if not rows:
            return []
        rows.sort(key=_order)
        found = await self._look_up({(row[1], row[6]) for row in rows})
        # By position: a row is taken apart once for every execution, and each name would be a look-up.
        claims = [
            Claim(execution, job, attempt, token, failures, due, revision, *found[job, revision], deadline)
            for execution, job, attempt, token, failures, due, revision, _, _, deadline, _ in rows
        ]
        own = [row[0] for row in rows if row[10]]
        return await self._with_inputs(claims, own) if own else claims

    async def _with_inputs(self, claims: list[Claim], own: list[UUID]) -> list[Claim]:
        inputs = await work.inputs(self._database, own)
        return [
            replace(claim, payload=inputs[claim.execution_id]) if claim.execution_id in inputs else claim
            for claim in claims
        ]

    async def _look_up(self, wanted: set[tuple[UUID, int]]) -> dict[tuple[UUID, int], Definition]:
        kept = self._definitions
        found = {key: kept[key] for key in wanted if key in kept}
        unknown = [key for key in wanted if key not in found]
        if unknown:
            for row in await work.definitions(self._database, unknown):
                key = (row["job_id"], row["revision"])
                found[key] = (_decode(row["spec"]), row["payload"])
                if len(row["payload"]) <= KEEP_PAYLOAD:
                    kept[key] = found[key]
            while len(kept) > KEEP_DEFINITIONS:
                kept.popitem(last=False)
        return found
