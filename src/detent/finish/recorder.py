"""Records ended attempts in batches, one fenced statement each for successes, other closings and what waits.

A crash before a statement leaves the rows running: the rescuer takes them. A crash after it loses nothing.
When the reply is lost the worker says it all again: rows that no longer match are looked up in the history
by (execution, attempt, token) and the instant of the end, and what is found there was recorded by this very
report. An attempt that somebody else ended (its worker was given up, it was out of time) is not found.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from uuid import UUID

import msgspec

from detent.finish.decide import Close, decide, quarantine
from detent.model.job import PythonTask
from detent.model.work import UNKNOWN_TASK, Finished, instant_of
from detent.store import work
from detent.store.database import Database
from detent.store.partitions import with_partitions_of
from detent.store.work import Closing, Pair, Returning

# How long an execution whose task nobody knows waits for a worker that does, before it is a dead letter.
UNKNOWN_PATIENCE = 60.0

_encode = msgspec.json.Encoder().encode


class Recorder:
    def __init__(self, database: Database, waits: Callable[[str, float], None] | None = None) -> None:
        """`waits` is told the pool of each execution that waits for another attempt, and for how long."""
        self._database = database
        self._waits = waits

    async def record(self, batch: Sequence[Finished]) -> set[Pair]:
        """Record what ended; answers the pairs that are stale."""
        plain = [f for f in batch if f.outcome == "succeeded" and f.claim.spec.callback_url is None]
        stale = await self._succeed(plain) if plain else set()
        if len(plain) < len(batch):
            rest = [f for f in batch if f.outcome != "succeeded" or f.claim.spec.callback_url is not None]
            stale |= _pairs(rest) - await self._decide(rest)
        return stale

    async def _succeed(self, plain: list[Finished]) -> set[Pair]:
        """The common end, which needs no deciding. Answers what is stale, which is rarely anything."""
        plain.sort(key=_by_id)
        ids = (finished.claim.execution_id for finished in plain)
        closed = await with_partitions_of(
            self._database, plain[0].finished_at, ids, lambda: work.succeed(self._database, plain)
        )
        return set() if closed == len(plain) else _pairs(plain) - await self._read_back(plain)

    async def _decide(self, batch: Sequence[Finished]) -> set[Pair]:
        closing: list[Closing] = []
        waiting: list[tuple[Returning, Finished]] = []
        condemned = await self._unknown(batch)
        for finished in batch:
            decision = quarantine(finished) if finished.claim.execution_id in condemned else decide(finished)
            if isinstance(decision, Close):
                closing.append(_closing(finished, decision))
            else:
                row = Returning(
                    finished.claim.execution_id, finished.claim.attempt, finished.claim.token, decision.state,
                    finished.outcome, finished.started_at, finished.finished_at, _error(finished),
                    decision.delay, decision.counted, decision.reason,
                )  # fmt: skip
                waiting.append((row, finished))
        done: set[Pair] = set()
        if waiting:
            done |= await self._put_back(waiting, closing)
        if closing:
            closing.sort(key=lambda row: row.execution_id.bytes)
            done |= await self._write(closing, lambda: work.close(self._database, closing))
        missing = [f for f in batch if (f.claim.execution_id, f.claim.attempt) not in done]
        if missing:
            done |= await self._read_back(missing)
        return done

    async def _unknown(self, batch: Sequence[Finished]) -> set[UUID]:
        """Those of the batch whose task no worker has known for a while."""
        handed_back = [
            (f.claim.execution_id, f.claim.spec.task.name)
            for f in batch
            if f.outcome == "released"
            and f.error is not None
            and f.error.type == UNKNOWN_TASK
            and isinstance(f.claim.spec.task, PythonTask)
        ]
        if not handed_back:
            return set()
        return await work.unknown_tasks(self._database, handed_back, UNKNOWN_PATIENCE)

    async def _put_back(self, waiting: list[tuple[Returning, Finished]], closing: list[Closing]) -> set[Pair]:
        waiting.sort(key=lambda pair: pair[0].execution_id.bytes)
        rows = [row for row, _ in waiting]
        done = await self._write(rows, lambda: work.put_back(self._database, rows))
        if self._waits is not None:
            for row, finished in waiting:
                self._waits(finished.claim.spec.pool, row.delay.total_seconds())
        # What is left was asked to cancel meanwhile, or is stale; the fence of the closing tells which.
        closing.extend(
            _closing(finished, Close("cancelled", row.counted, "cancelled on request"))
            for row, finished in waiting
            if (row.execution_id, row.attempt) not in done
        )
        return done

    async def _write(
        self, rows: Sequence[Closing | Returning], write: Callable[[], Awaitable[set[Pair]]]
    ) -> set[Pair]:
        ids = [row.execution_id for row in rows]
        return await with_partitions_of(self._database, rows[0].finished_at, ids, write)

    async def _read_back(self, missing: Sequence[Finished]) -> set[Pair]:
        since = instant_of(min(f.started_us or f.finished_us for f in missing)).date() - timedelta(days=1)
        keys = [(f.claim.execution_id, f.claim.attempt, f.claim.token, f.finished_at) for f in missing]
        return await work.recorded(self._database, keys, since)


def _by_id(finished: Finished) -> bytes:
    return finished.claim.execution_id.bytes


def _pairs(batch: Sequence[Finished]) -> set[Pair]:
    return {(finished.claim.execution_id, finished.claim.attempt) for finished in batch}


def _closing(finished: Finished, decision: Close) -> Closing:
    claim = finished.claim
    return Closing(
        claim.execution_id, claim.attempt, claim.token, decision.status, finished.outcome,
        finished.started_at, finished.finished_at, finished.result, _error(finished),
        claim.spec.callback_url, decision.counted, decision.reason,
    )  # fmt: skip


def _error(finished: Finished) -> str | None:
    return None if finished.error is None else _encode(finished.error).decode().replace("\\u0000", "\\ufffd")
