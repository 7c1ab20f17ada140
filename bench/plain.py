"""The plainest queue that keeps the same promise: what PostgreSQL itself can do here.

Two tables with what a claim and a fence need and nothing else: no job, no attempts beside the closing row,
no second index on the history, no partitions. A claim stamps worker and token under SKIP LOCKED from where
the last one ended, a close deletes by (id, attempt, token) and inserts the deleted rows into the history,
in batches of the same size and on two connections, as in `raw`. The distance between the two is what
Detent's tables cost; the distance from `raw` to a drain is what a worker costs.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg

from bench.raw import AHEAD, BATCH
from bench.server import Connection, connection
from detent.model.ids import new_incarnation_id

_Batches = asyncio.Queue[list[asyncpg.Record] | None]

_TABLES = """
create schema plain;
create table plain.live (id bigint primary key, attempt integer not null default 0, token bigint, worker uuid,
                         state text not null default 'queued') with (fillfactor = 50);
create table plain.history (id bigint primary key, attempt integer not null, token bigint not null,
                            worker uuid not null, status text not null, started_at timestamptz not null,
                            finished_at timestamptz not null);
"""
_FILL = "insert into plain.live (id) select generate_series(1, $1::integer)"
_CLAIM = """
update plain.live l set state = 'running', attempt = l.attempt + 1, token = $1::bigint, worker = $2::uuid
where l.ctid = any (array(
    select c.ctid from plain.live c where c.id > $3::bigint and c.state = 'queued'
    order by c.id limit $4::integer for update skip locked))
returning l.id, l.attempt, l.token
"""
_CLOSE = """
with closed as (
    delete from plain.live l
    using unnest($1::bigint[], $2::integer[], $3::bigint[], $4::timestamptz[], $5::timestamptz[])
          as f (id, attempt, token, started_at, finished_at)
    where l.id = any(array[f.id]) and l.attempt = f.attempt and l.token = f.token and l.state = 'running'
    returning l.id, l.attempt, l.token, l.worker, f.started_at, f.finished_at
)
insert into plain.history (id, attempt, token, worker, status, started_at, finished_at)
select id, attempt, token, worker, 'succeeded', started_at, finished_at from closed
returning id
"""


async def measure(url: str, n: int) -> dict[str, Any]:
    async with connection(url, hot=True) as claims, connection(url, hot=True) as closes:
        await claims.execute(_TABLES)
        await claims.execute(_FILL, n)
        await claims.execute("vacuum analyze plain.live")
        await claims.execute("checkpoint")
        batches: _Batches = asyncio.Queue(AHEAD)
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(_claim_all(claims, batches))
            group.create_task(_close_all(closes, batches))
        seconds = time.perf_counter() - started
        recorded = await claims.fetchval("select count(*) from plain.history")
        if recorded != n:
            raise RuntimeError(f"{n} were queued and {recorded} recorded")
    return {"per_second": round(n / seconds), "n": n, "seconds": round(seconds, 3), "batch": BATCH}


async def _claim_all(c: Connection, batches: _Batches) -> None:
    claim = await c.prepare(_CLAIM)
    worker = new_incarnation_id()
    last = token = 0
    while True:
        token += 1
        rows = await claim.fetch(token, worker, last, BATCH)
        if not rows:
            return await batches.put(None)
        last = max(row["id"] for row in rows)
        await batches.put(rows)


async def _close_all(c: Connection, batches: _Batches) -> None:
    close = await c.prepare(_CLOSE)
    now = await c.fetchval("select clock_timestamp()")
    while rows := await batches.get():
        ids, attempts, tokens = zip(*rows, strict=True)
        closed = await close.fetch(ids, attempts, tokens, [now] * len(rows), [now] * len(rows))
        if len(closed) != len(rows):
            raise RuntimeError(f"{len(rows)} were claimed and {len(closed)} closed")
