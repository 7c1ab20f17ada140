"""What the handlers share: the store, the clock, and how to wake the others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from uuid import UUID

from detent.api.body import AnyRequest
from detent.api.gather import Gather
from detent.model.ids import DEFAULT_TENANT
from detent.runtime.clock import Clock
from detent.runtime.notify import Notifier
from detent.store.database import Database
from detent.store.executions import Detail, read_each_detail
from detent.store.jobs import (
    Draft,
    Made,
    Run,
    RunAsked,
    Standing,
    create_each,
    read_each_job,
    run_each,
)


@dataclass(slots=True)
class ApiState:
    """`stopping` is set when the server ends: answers that go on for long end with it. What is asked most, at
    any moment by many, is asked together.
    """

    database: Database
    clock: Clock
    notifier: Notifier
    tenant: int = DEFAULT_TENANT
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    read_job: Gather[UUID, Standing | None] = field(init=False)
    create_job: Gather[Draft, Made] = field(init=False)
    run_job: Gather[RunAsked, Run] = field(init=False)
    read_detail: Gather[UUID, Detail | None] = field(init=False)

    def __post_init__(self) -> None:
        database, tenant = self.database, self.tenant
        self.read_job = Gather(lambda ids: read_each_job(database, tenant, ids))
        self.create_job = Gather(lambda drafts: create_each(database, tenant, drafts))
        self.run_job = Gather(lambda asked: run_each(database, tenant, asked))
        self.read_detail = Gather(lambda ids: read_each_detail(database, tenant, ids, self.clock.now()))


def state_of(request: AnyRequest) -> ApiState:
    state: ApiState = request.app.state["detent"]
    return state
