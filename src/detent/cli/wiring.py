"""The worker's port on PostgreSQL: claims by `dispatch`, endings by `finish`, the rest straight to the store.

A claim whose answer was lost has taken rows that this worker knows nothing of. After any failed claim the
next one first hands back what the store says we hold and we know nothing about; so does the worker's end.

What is handed back and was asked to cancel meanwhile is over: no worker has it any more, so it is closed.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from uuid import UUID

from detent.dispatch.claimer import Claimer
from detent.finish.recorder import Recorder
from detent.model.errors import StoreBusy
from detent.model.work import Ahead, Beat, Claim, Finished, LogChunk, Orders, Progress, WorkerInfo
from detent.runtime.clock import Clock
from detent.runtime.notify import Notifier
from detent.store import work
from detent.store.database import Database, Dedicated
from detent.store.partitions import with_partitions, with_partitions_of
from detent.store.sql import Queries
from detent.store.work import Closing, Pair, Returning

queries = Queries.load()

CANCELLED = "cancelled on request"


class PostgresPort:
    def __init__(self, database: Database, clock: Clock, notifier: Notifier) -> None:
        self._database = database
        self._clock = clock
        self._notifier = notifier
        self.claimer = Claimer(database, clock)
        self._recorder = Recorder(database, notifier.queue_later)
        self._held: dict[UUID, int] = {}  # the attempt of each execution
        self._doubt = False

    async def register(self, info: WorkerInfo, lease_seconds: float) -> None:
        self._held.clear()  # what another incarnation held is not this one's
        self._doubt = False
        await work.register(self._database, info, lease_seconds)

    async def claim(self, worker_id: UUID, pools: Sequence[str], limit: int) -> list[Claim]:
        async with self._known(worker_id):
            claims = await self.claimer.claim(worker_id, pools, limit)
            self._held.update([(claim.execution_id, claim.attempt) for claim in claims])
        return claims

    async def claim_ahead(self, worker_id: UUID, pools: Sequence[str], limit: int) -> Ahead:
        async with self._known(worker_id):
            ahead = await self.claimer.claim_ahead(worker_id, pools, limit)
            self._held.update([(claim.execution_id, claim.attempt) for claim, _ in ahead.staged])
        return ahead

    @contextlib.asynccontextmanager
    async def _known(self, worker_id: UUID) -> AsyncIterator[None]:
        """A claim in which it stays known what we hold."""
        if self._doubt:
            await self._hand_back_unknown(worker_id)
        try:
            yield
        except BaseException:  # whatever it was: rows may be ours by now, and we do not know them
            self._doubt = True
            raise

    async def _hand_back_unknown(self, worker_id: UUID) -> None:
        rows = await self._database.fetch(queries.rows_of_worker, worker_id)
        unknown = [
            (r["execution_id"], r["attempt"], r["token"], r["callback_url"])
            for r in rows
            if self._held.get(r["execution_id"]) != r["attempt"]
        ]
        if unknown:
            await self._put_back(unknown)
        self._doubt = False

    async def finish(self, batch: Sequence[Finished]) -> set[Pair]:
        stale = await self._recorder.record(batch)
        self._let_go([finished.claim for finished in batch])
        return stale

    def _let_go(self, claims: Sequence[Claim]) -> None:
        held = self._held
        for claim in claims:
            execution = claim.execution_id
            if held.get(execution) == claim.attempt:  # else it came back as another attempt meanwhile
                del held[execution]

    async def release(self, worker_id: UUID, claims: Sequence[Claim]) -> None:
        await self._put_back([(c.execution_id, c.attempt, c.token, c.spec.callback_url) for c in claims])
        self._let_go(claims)
        self._notifier.queue({c.spec.pool for c in claims})

    async def _put_back(self, rows: Sequence[tuple[UUID, int, int, str | None]]) -> None:
        now = self._clock.now()
        rows = sorted(rows, key=lambda row: row[0].bytes)
        ids = [row[0] for row in rows]
        back = [
            Returning(*row[:3], "queued", "released", None, now, None, timedelta(0), 0, "handed back")
            for row in rows
        ]
        done = await with_partitions_of(self._database, now, ids, lambda: work.put_back(self._database, back))
        cancelled = [
            Closing(*row[:3], "cancelled", "cancelled", None, now, None, None, row[3], 0, CANCELLED)
            for row in rows
            if (row[0], row[1]) not in done
        ]
        if cancelled:  # or not ours any more, which the fence tells apart
            await with_partitions_of(self._database, now, ids, lambda: work.close(self._database, cancelled))

    async def log(self, chunks: Sequence[LogChunk]) -> set[Pair]:
        leased = await with_partitions(
            self._database, self._clock.now(), lambda: work.append_logs(self._database, chunks)
        )
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
            queries.beat_worker, worker_id, len(beat.holding), beat.overdue_in, beat.stale_writes
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

    async def progress(self, told: Sequence[Progress]) -> set[Pair]:
        rows = sorted(told, key=lambda one: one.execution_id.bytes)
        columns = [list(column) for column in zip(*rows, strict=True)]
        leased = await self._connection.fetch(queries.record_progress, *columns)
        return {(one.execution_id, one.attempt) for one in rows} - {(row[0], row[1]) for row in leased}

    async def close(self) -> None:
        await self._connection.close()
