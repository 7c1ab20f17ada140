"""Ends what is out of time when its worker does not.

A worker ends its own attempts in time and says in each beat in how many seconds the first of them is due to
end. If that is well behind it and it beats on regardless, its loop is stuck: the attempt is taken from it and
recorded as timed out, fenced like any other ending, and whatever the worker says of it later changes nothing.
An execution that waits past its deadline is closed; no worker need be there for that.

One row that cannot be ended, because of what is in it or because somebody keeps it locked, harms itself only:
a batch that fails is halved until that row stands alone, and the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from detent.finish.recorder import Recorder
from detent.model.errors import StoreBusy, StoreUnavailable
from detent.model.execution import ErrorInfo
from detent.model.job import JobSpec
from detent.model.work import Claim, Finished, us_of
from detent.runtime.clock import Clock
from detent.runtime.notify import Notifier
from detent.runtime.service import Service
from detent.store import work
from detent.store.database import Database, Record
from detent.store.partitions import with_partitions_of
from detent.store.sql import Queries

log = logging.getLogger("detent.timeouts")
queries = Queries.load()

# A worker first asks an attempt to stop, then leaves it to itself: that takes it ten seconds.
SLACK_SECONDS = 15.0
BATCH = 500
WAITED = '{"type": "Deadline", "message": "its deadline passed while it waited"}'

_decode = msgspec.json.Decoder(JobSpec).decode


class _Wishes(msgspec.Struct):
    """What the end of an execution that waits needs of its definition, also of one that is no definition."""

    dead_letter: bool = True
    callback_url: str | None = None


class TimeoutKeeper(Service):
    name = "timeouts"
    every = 1.0

    def __init__(
        self, database: Database, clock: Clock, notifier: Notifier, slack: float = SLACK_SECONDS
    ) -> None:
        super().__init__()
        self._database = database
        self._clock = clock
        self._slack = slack
        self._recorder = Recorder(database, notifier.queue_later)

    async def run_once(self) -> float | None:
        if not self._clock.steady:
            return None
        for worker in await self._database.fetch(queries.overdue_workers, self._slack):
            rows = await self._database.fetch(queries.attempts_of_worker, worker["worker_id"])
            now = self._clock.now()
            await self._each([row for row in rows if self._overdue(row, now)], self._time_out)
        late = await self._database.fetch(queries.past_deadline, self._clock.now(), self._slack, BATCH)
        ended = await self._each([row for row in late if row["state"] == "running"], self._time_out)
        ended += await self._each([row for row in late if row["state"] != "running"], self._close_waiting)
        return 0 if len(late) == BATCH and ended else None

    async def _each(self, rows: Sequence[Record], end: Callable[[Sequence[Record]], Awaitable[None]]) -> int:
        """End all that can be ended; how many."""
        if not rows:
            return 0
        try:
            await end(rows)
            return len(rows)
        except Exception as error:  # the border of a batch: the row at fault is found by halving
            if isinstance(error, StoreUnavailable) and not isinstance(error, StoreBusy):
                raise
            if len(rows) == 1:
                log.error("%s is out of time and cannot be ended: %s", rows[0]["execution_id"], error)
                return 0
        half = len(rows) // 2
        return await self._each(rows[:half], end) + await self._each(rows[half:], end)

    def _overdue(self, row: Record, now: datetime) -> bool:
        try:
            limit = timedelta(seconds=_decode(row["spec"]).timeout_seconds + self._slack)
        except ValueError:  # its worker could not read it either: what it cannot run, it hands back
            return False
        return bool(row["claimed_at"] + limit < now)

    async def _time_out(self, rows: Sequence[Record]) -> None:
        error = ErrorInfo("Timeout", "out of time, and its worker did not end it")
        now = self._clock.now()
        stale = await self._recorder.record(
            [
                Finished(_claim(row), "timed_out", us_of(row["claimed_at"]), us_of(now), error=error)
                for row in rows
            ]
        )
        for row in rows:
            pair = (row["execution_id"], row["attempt"])
            if pair not in stale:
                log.warning("%s attempt %d was out of time and is taken from its worker", *pair)

    async def _close_waiting(self, rows: Sequence[Record]) -> None:
        closing = sorted(
            (
                (row["execution_id"], row["attempt"], _status(wishes), wishes.callback_url)
                for row in rows
                for wishes in (_wishes(row["spec"]),)
            ),
            key=lambda one: one[0].bytes,
        )
        ids = [one[0] for one in closing]
        closed = await with_partitions_of(
            self._database,
            self._clock.now(),
            ids,
            lambda: work.close_waiting(self._database, closing, WAITED, "deadline"),
        )
        if closed:
            log.warning("%d executions waited past their deadline and are closed", len(closed))


def _wishes(spec: str) -> _Wishes:
    try:
        return msgspec.json.decode(spec, type=_Wishes)
    except ValueError:
        return _Wishes()


def _status(wishes: _Wishes) -> str:
    return "dead_lettered" if wishes.dead_letter else "timed_out"


def _claim(row: Record) -> Claim:
    return Claim(
        row["execution_id"], row["job_id"], row["attempt"], row["token"], row["failures"],
        us_of(row["scheduled_for"]), row["revision"], _decode(row["spec"]), "null", row["deadline_at"],
    )  # fmt: skip
