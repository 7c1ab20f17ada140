"""Three accounts of the same run: the database's, the API's and the witness's, read when all is quiet."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
from customer import Acknowledged, Api
from witness import Line

Row = dict[str, Any]
TABLES = (
    "jobs", "timers", "fires", "live", "executions", "attempts", "logs", "dead_letters", "job_ends",
    "callbacks", "workers",
)  # fmt: skip


@dataclass
class Story:
    """What was owed, and what each account says about it."""

    owed: list[Acknowledged]
    paused_at: float  # when the recurring jobs were asked to pause
    tables: dict[str, list[Row]]
    api_jobs: dict[UUID, Row]
    api_executions: list[Row]
    lines: list[Line]
    workers: int = 1  # how many there should be
    healed_at: float = 0.0  # from when on nothing was broken, and nothing was overdue
    zombies: frozenset[int] = frozenset()  # processes that were made to go on after they were given up
    runs: Sequence[UUID] = ()  # executions that were promised to those who asked for them
    heard: Collection[UUID] = ()  # executions that a callback told of

    @property
    def losses(self) -> int:
        """Attempts that were lost with their worker."""
        return sum(row["losses"] for row in self.tables["executions"])


def read_tables(url: str) -> dict[str, list[Row]]:
    """All tables as of one instant."""

    async def read() -> dict[str, list[Row]]:
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return {
                    table: [dict(row) for row in await connection.fetch(f"select * from detent.{table}")]
                    for table in TABLES
                }
        finally:
            await connection.close()

    return asyncio.run(read())


def ask(url: str, query: str, *args: Any) -> Any:
    """One value from the database."""

    async def read() -> Any:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(query, *args)
        finally:
            await connection.close()

    return asyncio.run(read())


def read_story(
    url: str,
    api: Api,
    owed: list[Acknowledged],
    paused_at: float,
    lines: list[Line],
    **more: Any,
) -> Story:
    return Story(
        owed=owed,
        paused_at=paused_at,
        tables=read_tables(url),
        api_jobs={UUID(job["job_id"]): job for job in api.all("/jobs")},
        api_executions=api.all("/executions"),
        lines=lines,
        **more,
    )
