"""The paths of requests, each made under a key and repeated with it."""

from __future__ import annotations

from typing import Any

import msgspec
from sweep_place import (
    LEASE,
    Given,
    Path,
    Place,
    dead,
    queued,
    taken,
)

from detent.api import decide
from detent.api.job_fields import Definition
from detent.model.ids import new_job_id
from detent.model.job import JobSpec, PythonTask
from detent.store.dead_letters import discard, replay
from detent.store.jobs import (
    Draft,
    RequestKey,
    cancel_execution,
    cancel_job,
    change_job,
    create_jobs,
    put_by_name,
    run_job,
)
from stage import MINUTE, SECOND, TENANT, Stage


def key(scope: str) -> RequestKey:
    return RequestKey(scope, "k", b"the same body")


async def staged(stage: Stage) -> Given:
    """A job that fired once, and whose next instant is staged."""
    job = await stage.every(600, MINUTE * 5, name="a")
    assert await stage.fire() == 1
    assert await stage.fire_ahead() == 1
    return Given([job])


class CancelQueued(Path):
    async def prepare(self, stage: Stage) -> Given:
        [job] = await queued(stage, "a", callback_url="http://127.0.0.1:9/")
        return Given([job], execution=(await stage.row("live", job))["execution_id"])

    async def walk(self, place: Place, given: Given) -> str:
        target = given.execution
        assert target is not None
        now = place.clock.now()
        answer = await place.heard(lambda: cancel_execution(place.db, TENANT, target, now, key("cancel")))
        return answer.execution.status


class CancelRunning(Path):
    async def prepare(self, stage: Stage) -> Given:
        given = await taken(stage, "a")
        given.execution = given.claims[0].execution_id
        return given

    async def walk(self, place: Place, given: Given) -> str:
        place.held += given.claims
        return await CancelQueued().walk(place, given)


class CancelJob(Path):
    """One that recurs, with something of it queued and something of it running."""

    async def prepare(self, stage: Stage) -> Given:
        job = await stage.every(60, SECOND, name="a")
        await stage.fire()
        worker = await stage.worker(lease_seconds=LEASE)
        claims = await stage.claim(worker)
        await run_job(stage.db, TENANT, job, "by hand", stage.now(), None)
        return Given([job], worker, claims)

    async def walk(self, place: Place, given: Given) -> str:
        place.held += given.claims
        now = place.clock.now()
        answer = await place.heard(lambda: cancel_job(place.db, TENANT, given.jobs[0], now, key("cancel")))
        return answer.job.status


class Replay(Path):
    async def prepare(self, stage: Stage) -> Given:
        return await dead(stage, "a")

    async def walk(self, place: Place, given: Given) -> str:
        source = given.execution
        assert source is not None
        now = place.clock.now()
        run = await place.heard(
            lambda: replay(place.db, TENANT, source, '{"edited": 1}', "why", now, key("replay"))
        )
        return run.execution.status


class Discard(Path):
    async def prepare(self, stage: Stage) -> Given:
        return await dead(stage, "a")

    async def walk(self, place: Place, given: Given) -> None:
        source = given.execution
        assert source is not None
        await place.heard(lambda: discard(place.db, TENANT, source, "why", place.clock.now(), key("discard")))


class Create(Path):
    names: tuple[str, ...] = ("a",)

    async def prepare(self, stage: Stage) -> Given:
        return Given()

    async def walk(self, place: Place, given: Given) -> list[int]:
        def drafts() -> list[Draft]:
            now = place.clock.now()
            return [
                Draft(
                    new_job_id(now), JobSpec(name=name, task=PythonTask("noop"), every=60.0), "null",
                    now + MINUTE, name, RequestKey("jobs", name, b"the same body"),
                )
                for name in self.names
            ]  # fmt: skip

        made = await place.heard(lambda: create_jobs(place.db, TENANT, drafts(), place.clock.now()))
        # What was answered is what is there: of the same request, whichever try it was that made it.
        rows = await place.heard(lambda: place.db.fetch("select job_id from detent.jobs"))
        assert {one.job.job_id for one in made} == {row["job_id"] for row in rows}
        return [one.job.revision for one in made]


class CreateBatch(Create):
    names = ("a", "b", "c")


class PutByName(Path):
    async def prepare(self, stage: Stage) -> Given:
        return Given()

    async def walk(self, place: Place, given: Given) -> int:
        spec = JobSpec(name="named", task=PythonTask("noop"), every=60.0)

        async def put() -> int:
            now = place.clock.now()
            draft = Draft(new_job_id(now), spec, "null", now + MINUTE)
            wanted = Definition(spec, "null")
            changed = await put_by_name(
                place.db, TENANT, draft, lambda standing: decide.edit(standing, wanted, now), now, key("put")
            )
            return changed.job.revision

        return await place.heard(put)


class Edit(Path):
    async def prepare(self, stage: Stage) -> Given:
        return Given([await stage.every(60, -SECOND * 30, name="a")])

    def change(self, standing: Any, place: Place) -> Any:
        spec = msgspec.structs.replace(standing.job.spec, every=90.0, priority="high")
        return decide.edit(standing, Definition(spec, "7"), place.clock.now())

    async def walk(self, place: Place, given: Given) -> tuple[str, int]:
        changed = await place.heard(
            lambda: change_job(
                place.db, TENANT, given.jobs[0], lambda standing: self.change(standing, place),
                place.clock.now(), key("edit"),
            )
        )  # fmt: skip
        return changed.job.status, changed.job.revision


class Pause(Edit):
    def change(self, standing: Any, place: Place) -> Any:
        return decide.pause(standing)


class Resume(Edit):
    """After a while in which instants passed: they go into the ledger, once."""

    async def prepare(self, stage: Stage) -> Given:
        given = Given([await stage.every(60, MINUTE * 5 + SECOND * 30, name="a")])
        await change_job(stage.db, TENANT, given.jobs[0], decide.pause, stage.now(), None)
        return given

    def change(self, standing: Any, place: Place) -> Any:
        return decide.resume(standing, place.clock.now())


class EditStaged(Edit):
    """What is staged is taken back first."""

    async def prepare(self, stage: Stage) -> Given:
        return await staged(stage)


class PauseStaged(Pause):
    async def prepare(self, stage: Stage) -> Given:
        return await staged(stage)


class CancelStaged(CancelJob):
    async def prepare(self, stage: Stage) -> Given:
        return await staged(stage)


class RunByHand(Path):
    async def prepare(self, stage: Stage) -> Given:
        return Given([await stage.job(None, name="a")])

    async def walk(self, place: Place, given: Given) -> str:
        run = await place.heard(
            lambda: run_job(place.db, TENANT, given.jobs[0], "k", place.clock.now(), key("run"))
        )
        return run.execution.status
