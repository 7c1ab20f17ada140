"""What the handlers share: the store, the clock, and how to wake the others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from detent.api.body import AnyRequest
from detent.model.ids import DEFAULT_TENANT
from detent.runtime.clock import Clock
from detent.runtime.notify import Notifier
from detent.store.database import Database


@dataclass(frozen=True, slots=True)
class ApiState:
    """`stopping` is set when the server ends: answers that go on for long end with it."""

    database: Database
    clock: Clock
    notifier: Notifier
    tenant: int = DEFAULT_TENANT
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


def state_of(request: AnyRequest) -> ApiState:
    state: ApiState = request.app.state["detent"]
    return state
