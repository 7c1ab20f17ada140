"""The worker's port on PostgreSQL: claims by `dispatch`, endings by `finish`, the rest straight to the store.

A claim whose answer was lost has taken rows that this worker knows nothing of. After any claim that failed,
at whichever of its statements, the next one first hands back what the store says we hold and we know
nothing about; so does the end of the worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from detent.dispatch.claimer import Claimer
from detent.finish.recorder import Recorder
from detent.model.errors import StoreBusy
from detent.model.work import Beat, Claim, Finished, LogChunk, Orders, WorkerInfo
from detent.runtime.clock import Clock
from detent.runtime.notify import Notifier
from detent.store import work
from detent.store.database import Connection, Database, Dedicated
from detent.store.sql import Queries
from detent.store.work import Closing, Pair, Returning

queries = Queries.load()

CANCELLED = "cancelled on request"


class Unstarted(NamedTuple):
    """A claim that goes back."""

    execution_id: UUID
    attempt: int
    token: int
    callback_url: str | None


class PostgresPort:
    def __init__(self, database: Database, clock: Clock, notifier: Notifier) -> None:
        self._database = database
        self._clock = clock
        self._notifier = notifier
        self._claimer = Claimer(database)
        self._recorder = Recorder(database)
        self._held: set[Pair] = set()
        self._doubt = False

    async def register(self, info: WorkerInfo, lease_seconds: float) -> None:
        self._held.clear()  # what another incarnation held is not this one's
        self._doubt = False
        await work.register(self._database, info, lease_seconds)

    async def claim(self, worker_id: UUID, pools: Sequence[str], limit: int) -> list[Claim]:
        if self._doubt:
            await self._hand_back_unknown(worker_id)
        self._doubt = True  # until the last answer is here
        claims = await self._claimer.claim(worker_id, pools, limit)
        self._doubt = False
        self._held.update((claim.execution_id, claim.attempt) for claim in claims)
        return claims

    async def _hand_back_unknown(self, worker_id: UUID) -> None:
        async with self._database.transaction() as connection:
            rows = await connection.fetch(queries.rows_of_worker, worker_id)
            unknown = [
                Unstarted(r["execution_id"], r["attempt"], r["token"], r["callback_url"])
                for r in rows
                if (r["execution_id"], r["attempt"]) not in self._held
            ]
            if unknown:
                await self._put_back(connection, unknown)
        self._doubt = False

    async def finish(self, batch: Sequence[Finished]) -> set[Pair]:
        recorded = await self._recorder.record(batch)
        self._held.difference_update((f.claim.execution_id, f.claim.attempt) for f in batch)
        return recorded

    async def release(self, worker_id: UUID, claims: Sequence[Claim]) -> None:
        rows = [Unstarted(c.execution_id, c.attempt, c.token, c.spec.callback_url) for c in claims]
        await self._put_back(self._database, rows)
        self._held.difference_update((c.execution_id, c.attempt) for c in claims)
        self._notifier.queue({c.spec.pool for c in claims})

    async def _put_back(self, db: Database | Connection, rows: Sequence[Unstarted]) -> None:
        now, rows = self._clock.now(), sorted(rows)
        done = await work.put_back(
            db,
            [
                Returning(*row[:3], "queued", "released", None, now, None, timedelta(0), 0, "handed back")
                for row in rows
            ],
        )
        # What is left was asked to cancel meanwhile, or is not ours; the fence of the closing tells which.
        left = [row for row in rows if row[:2] not in done]
        if left:
            await work.close(
                db,
                [
                    Closing(
                        *row[:3],
                        "cancelled",
                        "released",
                        None,
                        now,
                        None,
                        None,
                        row.callback_url,
                        0,
                        CANCELLED,
                    )
                    for row in left
                ],
            )

    async def log(self, chunks: Sequence[LogChunk]) -> set[Pair]:
        leased = await work.append_logs(self._database, chunks)
        return {(c.execution_id, c.attempt) for c in chunks} - leased

    async def stop(self, worker_id: UUID) -> None:
        if self._doubt:
            await self._hand_back_unknown(worker_id)
        await work.stop(self._database, worker_id)


class PostgresPulse:
    """The heartbeat on a connection of its own."""

    def __init__(self, connection: Dedicated) -> None:
        self._connection = connection

    async def beat(self, worker_id: UUID, beat: Beat) -> Orders:
        status = await self._connection.fetchval(
            queries.beat_worker, worker_id, len(beat.holding), beat.overdue_at, beat.stale_writes
        )
        if status is None:
            return Orders(alive=False, draining=False)
        draining = status == "draining"
        if not beat.holding:
            return Orders(alive=True, draining=draining)
        columns = [list(column) for column in zip(*beat.holding, strict=True)]
        try:
            rows = await self._connection.fetch(queries.orders_for_attempts, *columns)
        except StoreBusy:  # somebody locks the table: the beat counts all the same, orders come with the next
            return Orders(alive=True, draining=draining)
        told = [((row["execution_id"], row["attempt"]), row["stale"]) for row in rows]
        return Orders(
            alive=True,
            draining=draining,
            cancel=tuple(pair for pair, stale in told if not stale),
            stale=tuple(pair for pair, stale in told if stale),
        )

    async def close(self) -> None:
        await self._connection.close()
