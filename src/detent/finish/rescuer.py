"""Takes back the work of workers that were lost.

A worker is lost when its lease is over on the database's clock AND its beat counter did not move during a
full lease on our own monotonic clock. Only time in which we could have seen a beat counts: a clock that
jumps, a rescuer that slept, or a database that was away for everybody condemns nobody, and it takes two
looks at least, however short the lease. In one transaction its row is locked (which waits for a claim under
way), the silence is checked again, the incarnation is given up for good, and its live rows go back to the
queue, uncounted, with new tokens to come.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from uuid import UUID

from detent.model.errors import StoreBusy, StoreUnavailable
from detent.runtime.clock import Clock
from detent.runtime.notify import Notifier
from detent.runtime.service import Service
from detent.store import work
from detent.store.database import Connection, Database, Record
from detent.store.partitions import with_partitions_of
from detent.store.sql import Queries
from detent.store.work import Closing, Returning

log = logging.getLogger("detent.rescuer")
queries = Queries.load()

# What one look adds to a silence at most, however long ago the last one was.
LONGEST_LOOK = 2.0
LOST = '{"type": "WorkerLost", "message": "the worker stopped beating"}'


class Rescuer(Service):
    name = "rescuer"
    every = 1.0

    def __init__(self, database: Database, clock: Clock, notifier: Notifier) -> None:
        super().__init__()
        self._database = database
        self._clock = clock
        self._notifier = notifier
        self._seen: dict[UUID, tuple[int, float]] = {}  # beat counter, and how long we saw it unchanged
        self._looked_at = time.monotonic()

    async def run_once(self) -> float | None:
        if not self._clock.steady:
            return None
        try:
            rows = await self._database.fetch(queries.present_workers)
        except StoreUnavailable:
            self._seen.clear()  # who lives could not beat either, and gets a whole lease to do so
            raise
        now = time.monotonic()
        watched, self._looked_at = min(now - self._looked_at, LONGEST_LOOK), now
        seen: dict[UUID, tuple[int, float]] = {}
        for row in rows:
            beat, silent = self._seen.get(row["worker_id"], (-1, 0.0))
            more = min(watched, row["lease_seconds"] / 2)
            seen[row["worker_id"]] = (row["beat"], silent + more if beat == row["beat"] else 0.0)
        self._seen = seen
        for row in rows:
            if row["expired"] and seen[row["worker_id"]][1] >= row["lease_seconds"]:
                try:
                    await self._rescue(row)
                except StoreBusy as error:  # somebody is at its rows: the next tick comes back to it
                    log.warning("worker %s is lost and cannot be given up yet: %s", row["name"], error)
                except StoreUnavailable:
                    raise
                except Exception:  # the border of a rescue: one that fails must not hold up the others
                    log.exception("worker %s is lost and cannot be given up", row["name"])
        return None

    async def _rescue(self, worker: Record) -> None:
        taken: list[UUID] = []  # known only when it is locked, and asked for only when a partition is missing
        rows = await with_partitions_of(
            self._database, self._clock.now(), taken, lambda: self._give_up(worker, taken)
        )
        if rows is None:
            return
        log.warning("worker %s is lost; %d attempts go back to the queue", worker["name"], len(rows))
        self._notifier.queue({row["pool"] for row in rows})

    async def _give_up(self, worker: Record, taken: list[UUID]) -> list[Record] | None:
        """What it held is back in the queue; None if it beats after all."""
        async with self._database.transaction() as connection:
            if (
                await connection.fetchval(queries.lock_silent_worker, worker["worker_id"], worker["beat"])
                is None
            ):
                return None
            await connection.execute(queries.mark_worker_lost, worker["worker_id"])
            rows = await connection.fetch(queries.rows_of_worker, worker["worker_id"])
            taken[:] = [row["execution_id"] for row in rows]
            if rows:
                await self._take_back(connection, rows)
        return rows

    async def _take_back(self, connection: Connection, rows: list[Record]) -> None:
        now = self._clock.now()
        back = [
            Returning(
                r["execution_id"], r["attempt"], r["token"], "queued", "worker_lost", r["claimed_at"], now,
                LOST, timedelta(0), 0, "its worker was lost",
            )
            for r in rows if not r["cancelled"]
        ]  # fmt: skip
        ended = [
            Closing(
                r["execution_id"], r["attempt"], r["token"], "cancelled", "worker_lost", r["claimed_at"], now,
                None, LOST, r["callback_url"], 0, "cancelled on request",
            )
            for r in rows if r["cancelled"]
        ]  # fmt: skip
        await connection.execute(queries.count_losses, [row["execution_id"] for row in rows])
        if back:
            await work.put_back(connection, back)
        if ended:
            await work.close(connection, ended)
