"""The examples of docs/fencing.md, taken from the page and run."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import re
import sqlite3
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import asyncpg
import pytest

from detent.store.database import Database

PAGE = (Path(__file__).parents[3] / "docs" / "fencing.md").read_text()
DAY = date(2026, 1, 1)


def statement(name: str) -> str:
    [found] = re.findall(rf"^```sql\n-- name: {name}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return found.strip().removesuffix(";")


def function(name: str) -> Callable[..., Any]:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [block] = [block for block in blocks if f"def {name}(" in block]
    names: dict[str, Any] = {}
    exec(block, names)
    return names[name]  # type: ignore[no-any-return]


# PostgreSQL


async def test_a_row_is_replaced_by_the_same_or_a_newer_attempt_and_by_no_older_one(db: Database) -> None:
    await db.execute(statement("table"))
    replace = statement("replace")
    assert await db.fetchval(replace, DAY, "first", 10) == DAY
    assert await db.fetchval(replace, DAY, "first, said again", 10) == DAY
    assert await db.fetchval(replace, DAY, "second", 12) == DAY
    assert await db.fetchval(replace, DAY, "first, too late", 10) is None
    assert dict((await db.fetchrow("select body, token from reports")) or {}) == {
        "body": "second",
        "token": 12,
    }


async def test_an_older_write_that_waits_for_a_newer_one_is_refused(db: Database) -> None:
    """The comparison is with what is there once the lock is had, not with what was there at the start."""
    await db.execute(statement("table"))
    await db.execute(statement("replace"), DAY, "nothing yet", 1)
    late = await asyncpg.connect(db.url)
    try:
        async with db.transaction() as newer:
            await newer.execute(statement("replace"), DAY, "second", 12)
            waiting = asyncio.create_task(late.fetchval(statement("replace"), DAY, "too late", 10))
            async with asyncio.timeout(10):
                while not await db.fetchval(
                    "select count(*) from pg_stat_activity where datname = current_database() "
                    "and wait_event_type = 'Lock'"
                ):
                    await asyncio.sleep(0.002)
        assert await waiting is None
    finally:
        await late.close()
    assert await db.fetchval("select body from reports") == "second"


async def test_an_addition_is_made_once_by_each_attempt(db: Database) -> None:
    await db.execute("create table accounts (account text primary key, balance int, token bigint)")
    await db.execute("insert into accounts values ('a', 100, 0)")
    add = statement("add")
    assert await db.fetchval(add, "a", 5, 10) == 105
    assert await db.fetchval(add, "a", 5, 10) is None
    assert await db.fetchval(add, "a", 5, 9) is None
    assert await db.fetchval("select balance from accounts") == 105


async def test_a_raised_fence_keeps_an_older_attempt_out_of_every_table(db: Database) -> None:
    await db.execute(statement("fences"))
    assert await db.fetchval(statement("raise"), "e", 10) == 10
    assert await db.fetchval(statement("raise"), "e", 10) == 10
    assert await db.fetchval(statement("raise"), "e", 12) == 12
    assert await db.fetchval(statement("raise"), "e", 10) is None
    assert await db.fetchval(statement("raise"), "another", 10) == 10


# S3


class ClientError(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


class Bucket:
    """An object store's conditional writes. `before_put` is called with each key before anything is compared."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.before_put: Callable[[str], None] = lambda key: None

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        if Key not in self.objects:
            raise ClientError("NoSuchKey")
        return {"Body": io.BytesIO(self.objects[Key]), "ETag": self._etag(Key)}

    def put_object(
        self,
        *,
        Bucket: str,
        Key: str,
        Body: bytes,
        IfMatch: str | None = None,
        IfNoneMatch: str | None = None,
    ) -> None:
        self.before_put(Key)
        if IfNoneMatch == "*" and Key in self.objects:
            raise ClientError("PreconditionFailed")
        if IfMatch is not None and Key not in self.objects:
            raise ClientError("NoSuchKey")
        if IfMatch is not None and self._etag(Key) != IfMatch:
            raise ClientError("PreconditionFailed")
        self.objects[Key] = Body

    def _etag(self, key: str) -> str:
        return hashlib.md5(self.objects[key]).hexdigest()

    def content(self, name: str) -> bytes:
        return self.objects[json.loads(self.objects[name])["key"]]


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    exceptions = ModuleType("botocore.exceptions")
    exceptions.ClientError = ClientError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "botocore", ModuleType("botocore"))
    monkeypatch.setitem(sys.modules, "botocore.exceptions", exceptions)
    return function("publish")


def test_an_object_is_published_by_the_newest_attempt(publish: Callable[..., Any]) -> None:
    s3 = Bucket()
    publish(s3, "b", "report", b"first", "e", 10)
    publish(s3, "b", "report", b"first again", "e", 10)
    publish(s3, "b", "report", b"second", "e", 12)
    with pytest.raises(RuntimeError, match="newer attempt"):
        publish(s3, "b", "report", b"too late", "e", 10)
    assert s3.content("report") == b"second"


@pytest.mark.parametrize("before", [None, 5])
def test_a_newer_attempt_that_publishes_in_between_wins(
    publish: Callable[..., Any], before: int | None
) -> None:
    """Also when both write the same bytes: what is compared contains the token."""
    s3 = Bucket()
    if before is not None:
        publish(s3, "b", "report", b"same", "e", before)

    def meanwhile(key: str) -> None:
        if key == "report":  # the old attempt has looked, and is about to move the pointer
            s3.before_put = lambda key: None
            publish(s3, "b", "report", b"same", "e", 12)

    s3.before_put = meanwhile
    with pytest.raises(RuntimeError, match="newer attempt"):
        publish(s3, "b", "report", b"same", "e", 10)
    assert json.loads(s3.objects["report"])["token"] == 12


def test_an_older_attempt_that_publishes_in_between_is_overtaken(publish: Callable[..., Any]) -> None:
    s3 = Bucket()

    def meanwhile(key: str) -> None:
        if key == "report":
            s3.before_put = lambda key: None
            publish(s3, "b", "report", b"old", "e", 10)

    s3.before_put = meanwhile
    publish(s3, "b", "report", b"new", "e", 12)
    assert s3.content("report") == b"new"


# HTTP


def test_a_receiver_refuses_older_tokens_and_keeps_nothing_of_failed_work() -> None:
    receive = function("receive")
    connection = sqlite3.connect(":memory:")
    connection.execute(receive.__globals__["FENCES"])
    connection.execute("create table done (what text)")

    def work(what: str) -> Callable[[sqlite3.Connection], None]:
        return lambda open_: open_.execute("insert into done values (?)", (what,)) and None

    def ask(token: int, do: Callable[[sqlite3.Connection], None], subject: str = "e") -> int:
        answer: int = receive(connection, {"Fencing-Subject": subject, "Fencing-Token": str(token)}, do)
        return answer

    def broken(open_: sqlite3.Connection) -> None:
        work("half")(open_)
        raise ValueError

    assert ask(9, work("a")) == 200
    assert ask(9, work("b")) == 200
    with pytest.raises(ValueError):
        ask(11, broken)
    assert ask(10, work("c")) == 200  # what failed has left no fence behind
    assert ask(9, work("too late")) == 409
    assert ask(9, work("d"), subject="another") == 200
    assert [row[0] for row in connection.execute("select what from done")] == ["a", "b", "c", "d"]
    connection.close()
