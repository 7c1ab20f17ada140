"""What a statement reads, as PostgreSQL counts it.

A statement is prepared and executed as the product does it, with a generic plan under the session's settings;
only the arguments travel as literals, because EXPLAIN takes no parameters. The transaction is rolled back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from detent.store.database import Connection, Database
from detent.store.sql import Queries

queries = Queries.load()


@dataclass(frozen=True)
class Reading:
    """`rows` are read from tables and indexes, kept or thrown away; `handled` counts those that pass from
    one step of the plan to the next as well, where a join that goes wrong shows; `blocks` are pages touched.
    """

    answered: int
    rows: int
    handled: int
    blocks: int
    tables: dict[str, int]


class Prepared:
    """One statement in one session: its plan is made when it is first used, and kept."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    async def prepare(self) -> Prepared:
        await self._connection.execute(f"prepare {self._name} as {queries[self._name]}")
        return self

    async def reading(self, *arguments: Any) -> Reading:
        values = ", ".join(map(literal, arguments))
        call = f"execute {self._name}({values})" if values else f"execute {self._name}"
        trial = self._connection.transaction()
        await trial.start()
        try:
            text = await self._connection.fetchval(f"explain (analyze, buffers, format json) {call}")
        finally:
            await trial.rollback()
        return summed(json.loads(text)[0]["Plan"])


async def reading_of(database: Database, name: str, *arguments: Any) -> Reading:
    async with database.connection() as connection:
        prepared = await Prepared(connection, name).prepare()
        try:
            return await prepared.reading(*arguments)
        finally:
            await connection.execute(f"deallocate {name}")


def summed(plan: dict[str, Any]) -> Reading:
    rows = handled = 0
    tables: dict[str, int] = {}
    for node in nodes(plan):
        loops = node["Actual Loops"]
        removed = sum(value for key, value in node.items() if key.startswith("Rows Removed by"))
        if node["Node Type"].endswith(("Scan", "Materialize")):
            seen = round((node["Actual Rows"] + removed) * loops)
            handled += seen
            if "Relation Name" in node or "Index Name" in node:
                rows += seen
                where = node.get("Relation Name") or node["Index Name"]
                tables[where] = tables.get(where, 0) + seen
        else:
            handled += round(removed * loops)
    return Reading(
        answered=round(plan["Actual Rows"] * plan["Actual Loops"]),
        rows=rows,
        handled=handled,
        blocks=plan["Shared Hit Blocks"] + plan["Shared Read Blocks"],
        tables=tables,
    )


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def literal(value: Any) -> str:
    """An SQL literal without a type: the parameter has one."""
    if value is None:
        return "null"
    return "'" + text(value).replace("'", "''") + "'"


def text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime() | date():
            return value.isoformat()
        case timedelta():
            return f"{value.total_seconds()} seconds"
        case str() | int() | float() | UUID():
            return str(value)
        case Sequence():
            return "{" + ",".join(map(element, value)) + "}"
    raise TypeError(f"no literal for {value!r}")


def element(value: Any) -> str:
    if value is None:
        return "null"
    return '"' + text(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
