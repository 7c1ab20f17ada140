"""Alerts: what a person should know."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from detent.model.ids import DEFAULT_TENANT
from detent.store.database import Database
from detent.store.sql import Queries

queries = Queries.load()

ABOUT_A_JOB = ("parked", "dead_letter")


@dataclass(frozen=True, slots=True)
class Alert:
    alert_id: int
    kind: str
    subject: str
    message: str
    times: int
    raised_at: datetime
    last_at: datetime

    @property
    def job_id(self) -> UUID | None:
        """The job that it is about, if it is about one."""
        return UUID(self.subject) if self.kind in ABOUT_A_JOB else None


async def raise_alert(db: Database, kind: str, subject: str, message: str) -> None:
    """About the system as a whole, which belongs to its first tenant."""
    await db.execute(queries.raise_alert, DEFAULT_TENANT, kind, subject, message)


async def resolve_alert(db: Database, kind: str, subject: str) -> None:
    await db.execute(queries.resolve_alert, DEFAULT_TENANT, kind, subject)


async def open_alerts(db: Database, tenant: int, limit: int) -> list[Alert]:
    return [Alert(*row) for row in await db.fetch(queries.open_alerts, tenant, limit)]
