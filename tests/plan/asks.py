"""What the product asks, with arguments that fit a crowded database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from crowd import WORKER

from detent.dispatch.rank import everything
from detent.fire.decide import decide
from detent.model.ids import new_incarnation_id
from detent.store import timers
from detent.store.database import Database
from detent.store.work import Closing, Returning
from detent.when.rule import NextFires

SHARDS = list(range(256))


def columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


async def fire(database: Database, batch: int) -> list[Any]:
    now = datetime.now(UTC)
    due = sorted(await timers.due(database, SHARDS, now, 2000), key=lambda timer: timer.job_id.bytes)
    decided = [decide(timer, now, 1, NextFires()) for timer in due[:batch]]
    assert len(decided) == batch
    return [*columns(decided), new_incarnation_id(), "test", now, timedelta(0)]


async def running(database: Database, batch: int) -> list[tuple[UUID, int, int]]:
    """Attempts under way, in the order in which endings are sent."""
    rows = await database.fetch(
        "select execution_id, attempt, token from detent.live where pool = 'busy' and state = 'running' "
        "order by execution_id limit $1",
        batch,
    )
    assert len(rows) == batch
    return [tuple(row) for row in rows]


async def close(database: Database, batch: int) -> list[Any]:
    now = datetime.now(UTC)
    return columns(
        [
            Closing(*key, "dead_lettered", "failed", now, now, None, '{"type": "a"}', "http://a/", 1, None)
            for key in await running(database, batch)
        ]
    )


async def succeed(database: Database, batch: int) -> list[Any]:
    now_us = int(datetime.now(UTC).timestamp() * 1e6)
    return columns([(*key, now_us, now_us, None) for key in await running(database, batch)])


async def put_back(database: Database, batch: int) -> list[Any]:
    now = datetime.now(UTC)
    return columns(
        [
            Returning(*key, "retrying", "failed", now, now, "{}", timedelta(seconds=30), 1, "will retry")
            for key in await running(database, batch)
        ]
    )


async def logs(database: Database, batch: int) -> list[Any]:
    now = datetime.now(UTC)
    return columns([(*key, 0, "stdout", now, "hello") for key in await running(database, batch)])


async def recorded(database: Database, batch: int) -> list[Any]:
    rows = await database.fetch(
        "select execution_id, attempt, token, finished_at from detent.attempts order by execution_id limit $1",
        batch,
    )
    assert len(rows) == batch
    return [*columns([tuple(row) for row in rows]), datetime.now(UTC).date() - timedelta(days=1)]


async def jobs(database: Database, batch: int) -> list[UUID]:
    rows = await database.fetch(
        "select job_id from detent.timers where status = 'scheduled' order by job_id limit $1", batch
    )
    assert len(rows) == batch
    return [row["job_id"] for row in rows]


async def arguments(database: Database, statement: str, batch: int) -> list[Any]:
    """The arguments with which a hot statement is about so many rows."""
    match statement:
        case "fire_batch":
            return await fire(database, batch)
        case "claim":
            return [WORKER, "default", batch, *columns(everything(batch)), timedelta(0)]
        case "close_batch":
            return await close(database, batch)
        case "close_succeeded":
            return await succeed(database, batch)
        case "return_batch":
            return await put_back(database, batch)
        case "append_logs":
            return await logs(database, batch)
        case "recorded_attempts":
            return await recorded(database, batch)
        case "timers_of":
            return [await jobs(database, batch)]
        case "definitions":
            return [await jobs(database, batch), [1] * batch]
    raise ValueError(statement)
