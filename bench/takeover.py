"""Takeover: a scheduler is killed, or cut off its database, and the others fire on in its place.

Three schedulers share jobs that are due every second, in phases all over the second, so that something is due in
the victim's shards every few milliseconds. Each repetition takes another victim. The takeover has happened with the
first ledger row that another node writes for one of the victim's shards. In the end the ledger must have every
instant of every job once.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.load import create_ticking_jobs
from bench.percentile import percentile
from bench.processes import role
from bench.server import Connection, connection

JOBS = 600
NODES = 3
EVERY_CUT = 5  # of this many repetitions one is a cut network
PATIENCE = 30.0
LOOK_EVERY = 0.02

_OWNERS = """
select n.pid, n.node_id, count(*) as shards from detent.shard_leases s
join detent.nodes n on n.node_id = s.node_id and n.ended_at is null group by 1, 2
"""
_SHARDS = "select array_agg(shard) as shards, array_agg(epoch) as epochs from detent.shard_leases where node_id = $1::uuid"
# Who had a shard before the victim may fire on in it for a moment: only a newer epoch is a takeover.
_FIRST = """
select min(f.decided_at) from detent.fires f
join unnest($2::smallint[], $3::bigint[]) as v (shard, epoch) on v.shard = get_byte(uuid_send(f.job_id), 15)
where f.epoch > v.epoch and f.decided_at > $1::timestamptz and f.nominal_at > $1::timestamptz - interval '30 seconds'
"""
_BETWEEN = """
select coalesce(max(extract(epoch from f.decided_at - f.nominal_at)), 0)::float8 * 1000 from detent.fires f
where f.nominal_at between $1::timestamptz and $2::timestamptz + interval '1 second'
  and get_byte(uuid_send(f.job_id), 15) = any($3::smallint[])
"""
# Every instant of a job is one row, or one of a range of instants that the row says were not run. A job that fires no
# more is lost too.
_LEDGER = """
select count(*) as jobs, coalesce(sum(had), 0) as decided,
       coalesce(sum(should - had), 0) + $1::integer - count(*) filter (where last > clock_timestamp() - interval '4 seconds')
       as lost,
       coalesce(sum(skipped), 0) as skipped
from (
    select job_id, sum(coalesce(instants, 1)) as had, sum(coalesce(instants, 0)) as skipped,
           max(coalesce(through_at, nominal_at)) as last,
           round(extract(epoch from max(coalesce(through_at, nominal_at)) - min(nominal_at))) + 1 as should
    from detent.fires group by job_id
) j
"""
_TWICE = """
select count(*) from (
    select 1 from detent.live group by job_id, scheduled_for having count(*) > 1
) twice
"""


async def measure(url: str, repetitions: int, folder: Path) -> dict[str, Any]:
    kills: list[tuple[float, float]] = []
    cuts: list[tuple[float, float]] = []
    async with connection(url) as watch, AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(_proxy(url))
        nodes = [await stack.enter_async_context(role("scheduler", url, folder / "unused"))]
        nodes.append(await stack.enter_async_context(role("scheduler", url, folder / "unused")))
        behind = await stack.enter_async_context(role("scheduler", proxy.url, folder / "unused"))
        await create_ticking_jobs(url, watch, JOBS)
        await asyncio.sleep(6)
        for number in range(repetitions):
            await _all_share(watch, {*(node.pid for node in nodes), behind.pid})
            if number % EVERY_CUT == EVERY_CUT - 1 or (repetitions <= 2 and number == 1):
                cuts.append(await _take_from(watch, behind.pid, proxy.swallow))
                proxy.flow()
                proxy.cut()
                continue
            victim = nodes.pop(0)
            kills.append(await _take_from(watch, victim.pid, victim.kill))
            await victim.wait()
            nodes.append(await stack.enter_async_context(role("scheduler", url, folder / "unused")))
        ledger = await _settled(watch)
    return {
        **_of("", kills),
        **(_of("cut_", cuts) if cuts else {}),
        "lost": int(ledger["lost"]),
        "twice": ledger["twice"],
        "instants": int(ledger["decided"]),
        "instants_not_run": int(ledger["skipped"]),
        "kills": len(kills),
        "cuts": len(cuts),
        "schedulers": NODES,
        "jobs": JOBS,
    }


def _of(kind: str, taken: list[tuple[float, float]]) -> dict[str, Any]:
    times, late = sorted(t for t, _ in taken), sorted(ms for _, ms in taken)
    return {
        f"{kind}p50_ms": round(percentile(times, 0.5)),
        f"{kind}p99_ms": round(percentile(times, 0.99)),
        f"{kind}max_ms": round(times[-1]),
        f"{kind}late_p50_ms": round(percentile(late, 0.5)),
        f"{kind}late_max_ms": round(late[-1]),
    }


async def _take_from(watch: Connection, pid: int, strike: Any) -> tuple[float, float]:
    """Strike a node; milliseconds until another fires in its shards, and how late the latest instant between was."""
    (victim,) = [row for row in await watch.fetch(_OWNERS) if row["pid"] == pid]
    node: UUID = victim["node_id"]
    row = await watch.fetchrow(_SHARDS, node)
    assert row is not None
    shards, epochs = row
    struck: datetime = await watch.fetchval("select clock_timestamp()")
    strike()
    deadline = time.monotonic() + PATIENCE
    while (first := await watch.fetchval(_FIRST, struck, shards, epochs)) is None:
        if time.monotonic() > deadline:
            raise RuntimeError(f"nobody fired for a lost node within {PATIENCE:g} s")
        await asyncio.sleep(LOOK_EVERY)
    taken = (first - struck).total_seconds() * 1000
    await asyncio.sleep(1.5)  # for what was due meanwhile to be fired
    return taken, await watch.fetchval(_BETWEEN, struck, first, shards)


async def _all_share(watch: Connection, pids: set[int]) -> None:
    """Wait until exactly these nodes own all shards."""
    deadline = time.monotonic() + PATIENCE
    while True:
        owners = Counter({row["pid"]: row["shards"] for row in await watch.fetch(_OWNERS)})
        if set(owners) == pids and owners.total() == 256:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the shards are not shared by {sorted(pids)} but by {dict(owners)}")
        await asyncio.sleep(LOOK_EVERY)


async def _settled(watch: Connection) -> dict[str, Any]:
    """The ledger after the last takeover is over."""
    row = await watch.fetchrow(_LEDGER, JOBS)
    assert row is not None
    return {**dict(row), "twice": await watch.fetchval(_TWICE)}


@contextlib.asynccontextmanager
async def _proxy(url: str) -> Any:
    """The tests' proxy in front of the server: it can let a connection fall silent."""
    file = Path(__file__).parents[1] / "tests" / "fault" / "proxy.py"
    spec = importlib.util.spec_from_file_location("bench_proxy", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    async with module.Proxy(url) as proxy:
        yield proxy
