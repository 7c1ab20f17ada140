"""One walk of a path, broken or whole, and what others then make of what it left."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from proxy import CommitPoint, Proxy, When
from soundness import Summary, summary, unsound
from sweep_place import LEASE, POOLS, Path, endings, place_at

from detent.finish.timeouts import TimeoutKeeper
from detent.model.work import Claim
from stage import Stage

SETTLE_SECONDS = 10.0


@dataclass(frozen=True)
class Walk:
    """What its caller was told, what is left when everything is worked off, and where it committed."""

    told: Any
    left: Summary
    points: list[CommitPoint]


async def walked(stage: Stage, proxy: Proxy, path: Path, cut: tuple[int, When] | None = None) -> Walk:
    """Walk a path in this process, with the connection cut at one commit point or at none."""
    await stage.clear()
    given = await path.prepare(stage)
    async with place_at(proxy.url) as place:
        done = proxy.cut_at(*cut) if cut else None
        if cut is None:
            proxy.count()
        told = await path.walk(place, given)
        points = proxy.points
        assert done is None or done.is_set(), "the path did not commit so often this time"
        await knows_what_it_holds(stage, place.held)
    await is_sound(stage)
    await worked_off(stage, place.held)
    return Walk(told, await summary(stage.db), points)


async def is_sound(stage: Stage) -> None:
    found = await unsound(stage.db)
    assert not found, "\n".join(found)


async def knows_what_it_holds(stage: Stage, held: list[Claim]) -> None:
    """A lease that its worker knows nothing of would be kept alive by its heartbeats and never end."""
    rows = await stage.db.fetch(
        "select execution_id, attempt, token from detent.live where state = 'running'"
    )
    leased = {tuple(row) for row in rows}
    believed = {(claim.execution_id, claim.attempt, claim.token) for claim in held}
    assert leased <= believed, f"leases that nobody knows of: {leased - believed}"


async def worked_off(stage: Stage, held: list[Claim]) -> None:
    """Let what is open end well: what the path's worker holds, and then what waits."""
    if held:
        await stage.record(*endings(stage.clock, held, "succeeded"))
    async with asyncio.timeout(SETTLE_SECONDS):
        while await stage.db.fetchval("select count(*) from detent.live"):
            await stage.retry_now()
            worker = await stage.worker(pools=POOLS)
            claims = await stage.claim(worker, pools=POOLS)
            await stage.record(*endings(stage.clock, claims, "succeeded"))
    await is_sound(stage)


async def carried_on(stage: Stage) -> None:
    """The process that walked the path is dead; others go on: the rescuer, a scheduler, a keeper, workers."""
    await is_sound(stage)
    rescuer = stage.rescuer()
    await stage.db.execute("update detent.workers set beat_at = clock_timestamp() - interval '1 hour'")
    async with asyncio.timeout(SETTLE_SECONDS):
        while await stage.db.fetchval("select count(*) from detent.workers where status = 'live'"):
            await rescuer.run_once()
            await asyncio.sleep(LEASE)
    await stage.fire()
    await TimeoutKeeper(stage.db, stage.clock, stage.notifier).run_once()
    await is_sound(stage)
    await worked_off(stage, [])
