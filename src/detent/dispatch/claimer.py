"""Claims due executions of a worker's pools from PostgreSQL, with their definitions.

What is due soon may be claimed ahead and waits in memory for its instant; `_start_ns` says when that is.

A claim statement reads only `live`. Definitions are immutable, so they are fetched once per revision and
kept; a queue of a million executions of one job costs one read of its payload.

A definition that this program cannot read (a newer one wrote it) harms its own execution only: that one is
handed back, uncounted, and waits a while for a worker that can.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from uuid import UUID

import msgspec
from msgspec.structs import replace

from detent.dispatch.rank import Bounds
from detent.model.job import JobSpec
from detent.model.work import Ahead, Claim, Staged
from detent.runtime.clock import Clock
from detent.store import timers, work
from detent.store.database import Database, Record
from detent.store.partitions import with_partitions_of
from detent.store.work import Returning

log = logging.getLogger("detent.claimer")

KEEP_DEFINITIONS = 10_000
# Large payloads are not worth keeping for a second execution that may never come.
KEEP_PAYLOAD = 4096
SET_ASIDE = timedelta(seconds=60)

# How far ahead of its instant work may be claimed: as far as fires are committed ahead.
LEAD_US = 3_000_000
LEAD = timedelta(microseconds=LEAD_US)

_decode = msgspec.json.Decoder(JobSpec).decode
_order = itemgetter(8)  # rank
_place = itemgetter(7, 8)  # class, rank
Definition = tuple[JobSpec, str]


def _start_ns(clock: Clock, at_us: int | None, wait_ns: int | None, sent: int, received: int) -> int:
    """When on the monotonic clock a row may start that is due at `at_us`, and that had so long to wait when
    it was claimed, some time between `sent` and `received`. That alone is enough never to be early. Our copy
    of the database's clock is more exact; but one that contradicts it is of a time before that clock was set.
    """
    if at_us is None or wait_ns is None:
        return received
    certain = clock.certain_ns(at_us)
    return certain if sent + wait_ns <= certain <= received + wait_ns else received + wait_ns


class Claimer:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._bounds: defaultdict[str, Bounds] = defaultdict(Bounds)
        self._definitions: OrderedDict[tuple[UUID, int], Definition] = OrderedDict()

    async def claim(self, worker_id: UUID, pools: Sequence[str], limit: int) -> list[Claim]:
        """Take what is due, in order."""
        rows: list[Record] = []
        for pool in pools:
            if len(rows) < limit:
                rows += await self._take(worker_id, pool, limit - len(rows))
        return await self._defined(rows) if rows else []

    async def claim_ahead(self, worker_id: UUID, pools: Sequence[str], limit: int) -> Ahead:
        """Take what will be due within the lead. While the clock is in doubt nobody knows what that is."""
        if not self._clock.steady:
            return Ahead([])
        staged: list[Staged] = []
        for pool in pools:
            if len(staged) < limit:
                staged += await self._take_ahead(worker_id, pool, limit - len(staged))
        return Ahead(staged, await self._next_in(pools) if len(staged) >= limit else None)

    async def _take_ahead(self, worker_id: UUID, pool: str, limit: int) -> list[Staged]:
        bounds, clock = self._bounds[pool], self._clock
        ranges = bounds.ahead(clock.now_us(), limit, LEAD_US)
        sent = time.monotonic_ns()
        rows = await work.claim(self._database, worker_id, pool, limit, ranges, LEAD)
        received = time.monotonic_ns()
        if not rows:
            return []
        bounds.took_ahead(map(_place, rows))
        waits = {row[0]: (row[11], row[12]) for row in rows}
        return [
            Staged(claim, _start_ns(clock, *waits[claim.execution_id], sent, received))
            for claim in await self._defined(rows)
        ]

    async def _next_in(self, pools: Sequence[str]) -> float | None:
        """In how many seconds the first is due of what is left within the lead."""
        found = []
        for pool in pools:
            ranges = self._bounds[pool].ahead(self._clock.now_us(), 0, LEAD_US)
            seconds = await work.upcoming(self._database, pool, ranges)
            if seconds is not None:
                found.append(seconds)
        return max(0.0, min(found)) if found else None

    async def _defined(self, rows: list[Record]) -> list[Claim]:
        """Claims, in order, with their definitions."""
        rows.sort(key=_order)
        wanted = {(row[1], row[6]) for row in rows}
        found = await self._look_up(wanted)
        if len(found) < len(wanted):
            await self._set_aside([row for row in rows if (row[1], row[6]) not in found])
            rows = [row for row in rows if (row[1], row[6]) in found]
        # By position: a row is taken apart once for every execution, and each name would be a look-up.
        claims = [
            Claim(execution, job, attempt, token, failures, due, revision, *found[job, revision], deadline)
            for execution, job, attempt, token, failures, due, revision, _, _, deadline, *_ in rows
        ]
        own = [row[0] for row in rows if row[10]]
        return await self._with_inputs(claims, own) if own else claims

    async def _take(self, worker_id: UUID, pool: str, limit: int) -> list[Record]:
        bounds, now_us = self._bounds[pool], self._clock.now_us()
        if not self._clock.steady:
            bounds.widen()  # ranks are of a clock that this one may not follow
        rows = await work.claim(self._database, worker_id, pool, limit, bounds.ranges(now_us, limit))
        bounds.took(map(_place, rows), now_us, all_of_it=len(rows) < limit)
        return rows

    async def look_behind(self, pools: Sequence[str]) -> bool:
        """Look for due work that claims do not see any more; the next claims then look at everything."""
        found = False
        for pool in pools:
            bounds = self._bounds[pool]
            if await work.left_behind(self._database, pool, bounds.ranges(self._clock.now_us(), 0)):
                bounds.widen()
                found = True
        return found

    async def _with_inputs(self, claims: list[Claim], own: list[UUID]) -> list[Claim]:
        inputs = await work.inputs(self._database, own)
        return [
            replace(claim, payload=inputs[claim.execution_id]) if claim.execution_id in inputs else claim
            for claim in claims
        ]

    async def _set_aside(self, rows: Sequence[Record]) -> None:
        now = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=await timers.clock_us(self._database))
        back = [
            Returning(
                row["execution_id"], row["attempt"], row["token"], "queued", "released", None, now, None,
                SET_ASIDE, 0, "the worker that claimed it cannot read its definition",
            )
            for row in sorted(rows, key=lambda row: row["execution_id"].bytes)
        ]  # fmt: skip
        ids = [row.execution_id for row in back]
        await with_partitions_of(self._database, now, ids, lambda: work.put_back(self._database, back))

    async def _look_up(self, wanted: set[tuple[UUID, int]]) -> dict[tuple[UUID, int], Definition]:
        kept = self._definitions
        found = {key: kept[key] for key in wanted if key in kept}
        unknown = [key for key in wanted if key not in found]
        if unknown:
            for row in await work.definitions(self._database, unknown):
                key = (row["job_id"], row["revision"])
                try:
                    found[key] = (_decode(row["spec"]), row["payload"])
                except msgspec.DecodeError as error:
                    log.error("revision %d of job %s cannot be read: %s", key[1], key[0], error)
                    continue
                if len(row["payload"]) <= KEEP_PAYLOAD:
                    kept[key] = found[key]
            while len(kept) > KEEP_DEFINITIONS:
                kept.popitem(last=False)
        return found
