"""Forgets nodes and workers that ended long ago."""

from __future__ import annotations

from detent.runtime.service import Service
from detent.store.database import Database
from detent.store.fleet import forget

KEEP_SECONDS = 7 * 86_400.0


class FleetSweeper(Service):
    name = "fleet"
    every = 3600.0

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database

    async def run_once(self) -> float | None:
        await forget(self._database, KEEP_SECONDS)
        return None
