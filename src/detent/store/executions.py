"""Reading executions: one with its attempts and output, and lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from detent.model.execution import CLOSED, OPEN, Attempt, ErrorInfo, Execution
from detent.store.database import Database, Record
from detent.store.listing import Page, Stretch, fill_page
from detent.store.sql import Queries

TAIL = 4096
TAIL_PIECES = 400
LOG_PIECES = 500
START = (0, -1)  # in front of every log piece

_decode_error = msgspec.json.Decoder(ErrorInfo).decode


@dataclass(frozen=True, slots=True)
class Output:
    """The ends of what the last attempt wrote."""

    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Detail:
    execution: Execution
    attempts: tuple[Attempt, ...]
    output: Output
    progress: Progressed | None = None


@dataclass(frozen=True, slots=True)
class Progressed:
    """What an attempt said of its progress."""

    attempt: int
    pct: float
    message: str | None
    told_at: datetime


@dataclass(frozen=True, slots=True)
class LogPiece:
    attempt: int
    seq: int
    stream: str
    logged_at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class ExecutionFilter:
    job_id: UUID | None = None
    status: str | None = None

    @property
    def source(self) -> str:
        if self.job_id is not None:
            return "job"
        if self.status in CLOSED and self.status != "succeeded":
            return "unsuccessful"
        return "all"

    @property
    def exact(self) -> bool:
        return self.status is None or self.source == "unsuccessful"


def execution_of(row: Record) -> Execution:
    return Execution(
        execution_id=row["execution_id"],
        job_id=row["job_id"],
        status=row["status"],
        cause=row["cause"],
        scheduled_for=row["scheduled_for"],
        queued_at=row["queued_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        attempt=row["attempt"],
        worker_id=row["worker_id"],
        result=row["result"],
        error=error_of(row["error"]),
        revision=row["revision"],
        reason=row["reason"],
        source_id=row["source_id"],
    )


def error_of(text: str | None) -> ErrorInfo | None:
    return None if text is None else _decode_error(text)


async def read_execution(database: Database, tenant: int, execution_id: UUID) -> Execution | None:
    row = await database.fetchrow(Queries.load().read_execution, tenant, execution_id)
    return None if row is None else execution_of(row)


async def read_detail(database: Database, tenant: int, execution_id: UUID, now: datetime) -> Detail | None:
    """One execution with its attempts and the ends of its output."""
    [found] = await read_each_detail(database, tenant, [execution_id], now)
    if isinstance(found, Exception):
        raise found
    return found


async def read_each_detail(
    database: Database, tenant: int, ids: Sequence[UUID], now: datetime
) -> list[Detail | Exception | None]:
    """Executions asked for apart: None for one that is not there, an error for one that is unreadable."""
    queries = Queries.load()
    ended: dict[UUID, list[Record]] = defaultdict(list)
    tails: dict[UUID, list[Record]] = defaultdict(list)
    async with database.connection() as connection:
        rows = await connection.fetch(queries.read_details, tenant, list(ids), min(ids), max(ids))
        tried = [row for row in rows if row["attempt"]]
        if tried:
            first, last = _days_of_all(tried, now)
            wanted = [row["execution_id"] for row in tried]
            for one in await connection.fetch(queries.read_attempts, tenant, wanted, first, last):
                ended[one["execution_id"]].append(one)
            numbers = [row["attempt"] for row in tried]
            for one in await connection.fetch(
                queries.read_output_tails, tenant, wanted, numbers, first, last, TAIL, TAIL_PIECES
            ):
                tails[one["execution_id"]].append(one)
    known = {row["execution_id"]: row for row in rows}
    return [_detail(known.get(one), ended[one], tails[one]) for one in ids]


def _detail(row: Record | None, ended: list[Record], tail: list[Record]) -> Detail | Exception | None:
    if row is None:
        return None
    try:
        execution = execution_of(row)
        running = execution.status == "running"
        # The attempts were read a moment after the execution: what ended in between is not shown as ended.
        before = execution.attempt - running
        attempts = [_attempt_of(one) for one in ended if one["attempt"] <= before]
    except msgspec.MsgspecError as error:
        return error
    if running:
        attempts.append(_running_attempt(row))
    told = None
    if row["told_at"] is not None:
        told = Progressed(row["told_attempt"], row["pct"], row["message"], row["told_at"])
    output = Output(_tail(tail, "stdout"), _tail(tail, "stderr"))
    return Detail(execution, tuple(attempts), output, told)


def _days_of_all(rows: Sequence[Record], now: datetime) -> tuple[date, date]:
    """The days whose partitions may hold what belongs to any of them."""
    first = min(min(row["queued_at"], row["started_at"] or row["queued_at"]) for row in rows)
    last = max(row["finished_at"] or now for row in rows)
    return first.date(), (last + timedelta(days=1)).date()


def days_of(execution: Execution, now: datetime) -> tuple[date, date]:
    """The days whose partitions may hold what belongs to an execution."""
    first = min(execution.queued_at, execution.started_at or execution.queued_at)
    return first.date(), ((execution.finished_at or now) + timedelta(days=1)).date()


async def list_executions(
    database: Database,
    tenant: int,
    wanted: ExecutionFilter,
    *,
    before: UUID | None,
    limit: int,
    skip: int = 0,
) -> Page[Execution]:
    """Open and closed ones, newest first, those with ids below `before`, past the first `skip` of them."""
    text = Queries.load().list_executions

    async def look(before: UUID, scan: int, limit: int, skip: int) -> Stretch[Execution]:
        rows = await database.fetch(
            text,
            tenant,
            wanted.source,
            wanted.status is None or wanted.status in OPEN,
            wanted.status is None or wanted.status in CLOSED,
            wanted.job_id,
            wanted.status,
            before,
            scan,
            limit,
            skip,
        )
        items = [execution_of(row) for row in rows if row["execution_id"] is not None]
        return Stretch(items, rows[0]["matched"], rows[0]["scan_end"])

    return await fill_page(
        look, key=lambda one: one.execution_id, exact=wanted.exact, before=before, limit=limit, skip=skip
    )


async def read_logs(
    database: Database, tenant: int, execution: Execution, after: tuple[int, int], now: datetime
) -> list[LogPiece]:
    """The next pieces of output behind (attempt, seq)."""
    first, last = days_of(execution, now)
    rows = await database.fetch(
        Queries.load().read_logs, tenant, execution.execution_id, first, last, *after, LOG_PIECES
    )
    return [LogPiece(**dict(row)) for row in rows]


async def all_logs(
    database: Database, tenant: int, execution: Execution, now: datetime
) -> AsyncIterator[LogPiece]:
    after = START
    while pieces := await read_logs(database, tenant, execution, after, now):
        for piece in pieces:
            yield piece
        after = (pieces[-1].attempt, pieces[-1].seq)


def _attempt_of(row: Record) -> Attempt:
    fields: dict[str, Any] = dict(row)
    del fields["execution_id"]
    fields["error"] = error_of(fields["error"])
    return Attempt(**fields)


def _running_attempt(row: Record) -> Attempt:
    return Attempt(
        attempt=row["attempt"],
        outcome="running",
        worker_id=row["worker_id"],
        started_at=row["claimed_at"],
        finished_at=None,
    )


def _tail(pieces: list[Record], stream: str) -> str:
    """The last bytes of one stream; `pieces` are newest first."""
    text = "".join(piece["text"] for piece in reversed(pieces) if piece["stream"] == stream)
    data = text.encode()
    return text if len(data) <= TAIL else data[-TAIL:].decode(errors="ignore")
