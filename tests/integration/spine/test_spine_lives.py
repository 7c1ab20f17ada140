"""Whole lives of executions, in any order that users, workers, crashes and zombies may bring about.

The database itself notes every change of an open execution's state while the script of chance goes on. At the
end there is no change that the design does not know, and every execution is in one place with one outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from random import Random

import pytest

from detent.model.errors import Conflict, NotFound
from detent.model.work import Claim
from detent.store.jobs import cancel_execution, cancel_job
from stage import MOMENT, TENANT, Stage

LEGAL = {
    ("(new)", "queued"),
    ("queued", "running"),
    ("retrying", "running"),
    ("running", "retrying"),
    ("running", "queued"),
    ("queued", "(closed)"),
    ("retrying", "(closed)"),
    ("running", "(closed)"),
}
WATCH = """
create table public.changes (execution_id uuid, was text, became text, attempt_was integer, attempt integer);
create function public.note_change() returns trigger language plpgsql as $$
begin
    insert into public.changes values (
        coalesce(new.execution_id, old.execution_id), coalesce(old.state, '(new)'),
        coalesce(new.state, '(closed)'), old.attempt, new.attempt);
    return null;
end
$$;
create trigger watched after insert or update of state or delete on detent.live
for each row execute function public.note_change();
"""
UNWATCH = """
drop trigger if exists watched on detent.live;
drop function if exists public.note_change;
drop table if exists public.changes;
"""
OUTCOMES = ("succeeded", "succeeded", "failed", "failed", "timed_out", "cancelled", "released")


@pytest.fixture
async def watched(stage: Stage) -> AsyncIterator[Stage]:
    await stage.db.execute(UNWATCH + WATCH)
    yield stage
    await stage.db.execute(UNWATCH)


class Script:
    """A life chosen by chance. Claims are never forgotten: what was taken away becomes a zombie's."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.chance = Random(seed)
        self.held: list[Claim] = []
        self.old: list[Claim] = []

    async def step(self) -> None:
        acts = (self.arrive, self.claim, self.finish, self.zombie, self.cancel, self.lose, self.hurry)
        await self.chance.choices(acts, weights=(3, 4, 6, 2, 1, 1, 2))[0]()

    async def arrive(self) -> None:
        stage, chance = self.stage, self.chance
        retries, letters = chance.randrange(3), chance.random() < 0.7
        if chance.random() < 0.5:
            await stage.once(max_retries=retries, dead_letter=letters)
        else:
            await stage.every(3600, first_ago=MOMENT, max_retries=retries, dead_letter=letters)
        await stage.fire()

    async def claim(self) -> None:
        # Silent from birth: a rescuer gives this worker up whenever it looks.
        worker_id = await self.stage.worker(lease_seconds=0.0)
        self.held += await self.stage.claim(worker_id, self.chance.randrange(1, 4))

    async def finish(self) -> None:
        self.chance.shuffle(self.held)
        ending, self.held = self.held[:3], self.held[3:]
        self.old += ending
        ends = [
            self.stage.ended(one, self.chance.choice(OUTCOMES), retryable=self.chance.random() < 0.8)
            for one in ending
        ]
        if ends:
            await self.stage.record(*ends)

    async def zombie(self) -> None:
        if self.old:
            ends = [self.stage.ended(self.chance.choice(self.old), self.chance.choice(OUTCOMES))]
            before = await self.stage.everything()
            await self.stage.record(*ends)
            assert await self.stage.everything() == before

    async def cancel(self) -> None:
        jobs = await self.stage.rows("timers")
        if not jobs:
            return
        job_id = self.chance.choice(jobs)["job_id"]
        now = self.stage.now()
        try:
            if self.chance.random() < 0.5:
                await cancel_job(self.stage.db, TENANT, job_id, now, None)
            else:
                for row in await self.stage.rows("live", job_id):
                    await cancel_execution(self.stage.db, TENANT, row["execution_id"], now, None)
        except (Conflict, NotFound):
            pass  # it has ended already: the door would say so

    async def lose(self) -> None:
        rescuer = self.stage.rescuer()
        await rescuer.run_once()
        self.old += self.held
        self.held = []

    async def hurry(self) -> None:
        await self.stage.retry_now()


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_each_execution_has_one_place_and_one_outcome(
    watched: Stage, seed: int
) -> None:
    stage, script = watched, Script(watched, seed)
    for _ in range(50):
        await script.step()
    await script.lose()

    changes = await stage.db.fetch("select * from public.changes")
    assert {(row["was"], row["became"]) for row in changes} - LEGAL == set()
    for row in changes:  # only a claim makes an attempt, and every claim makes one
        if row["became"] != "(closed)" and row["was"] != "(new)":
            assert row["attempt"] - row["attempt_was"] == (row["became"] == "running")

    live = {row["execution_id"]: row for row in await stage.rows("live")}
    closed = {row["execution_id"]: row for row in await stage.rows("executions")}
    fired = [row["execution_id"] for row in await stage.rows("fires") if row["execution_id"]]
    assert not set(live) & set(closed)
    assert Counter(fired) == Counter([*live, *closed])
    closings = Counter(row["execution_id"] for row in changes if row["became"] == "(closed)")
    assert closings == Counter(list(closed))
    assert "running" not in {row["state"] for row in live.values()}

    letters = {row["execution_id"] for row in await stage.rows("dead_letters")}
    assert letters == {name for name, row in closed.items() if row["status"] == "dead_lettered"}

    attempts: dict[object, list[tuple[int, str]]] = {}
    for row in await stage.rows("attempts"):
        attempts.setdefault(row["execution_id"], []).append((row["attempt"], row["outcome"]))
    for name, row in (live | closed).items():
        made = attempts.get(name, [])
        assert [number for number, _ in made] == list(range(1, row["attempt"] + 1))
        counted = sum(outcome in ("failed", "timed_out") for _, outcome in made)
        lost = sum(outcome == "worker_lost" for _, outcome in made)
        assert row["failures"] == counted
        if row["status" if name in closed else "state"] != "cancelled":
            assert row["losses"] == lost
        if name in closed and row["status"] == "succeeded":
            assert made[-1][1] == "succeeded"

    await check_ends(stage)


async def check_ends(stage: Stage) -> None:
    """A one-time job has ended exactly when its execution has, and as it has."""
    ends = {row["job_id"]: row["status"] for row in await stage.rows("job_ends")}
    once = {row["job_id"] for row in await stage.rows("timers") if row["status"] == "done"}
    open_jobs = {row["job_id"] for row in await stage.rows("live")}
    for row in await stage.rows("executions"):
        if row["job_id"] in once and row["job_id"] not in open_jobs:
            word = {"succeeded": "completed", "cancelled": "cancelled"}.get(row["status"], "failed")
            assert ends[row["job_id"]] in (word, "cancelled")
    assert not {job for job in ends if ends[job] == "completed"} & open_jobs
