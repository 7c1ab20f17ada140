"""/executions/{id}/logs?follow=true: output as server-sent events while it is written."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
from api_client import Api, Running

from detent.model.work import Claim, LogChunk
from detent.store import work
from stage import Stage


@dataclass(frozen=True)
class Event:
    name: str
    place: str | None
    data: dict[str, Any]


class Following:
    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def next(self) -> Event | None:
        """The next event; None at the end of the stream."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(15):
            while line := (await self.answer.content.readline()).decode():
                if line == "\n" and fields:
                    return Event(fields["event"], fields.get("id"), json.loads(fields["data"]))
                if not line.startswith((":", "\n")):
                    name, _, value = line.rstrip("\n").partition(": ")
                    fields[name] = value
        return None

    async def all(self) -> list[Event]:
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events


@contextlib.asynccontextmanager
async def following(api: Api, execution_id: Any, **headers: str) -> AsyncIterator[Following]:
    url = api.url(f"/executions/{execution_id}/logs?follow=true")
    async with api.session.get(url, headers=headers) as answer:
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        yield Following(answer)


async def running(api: Api) -> Claim:
    job = await api.job()
    await api.post(f"/jobs/{job['job_id']}/run")
    [claim] = await api.stage.claim(await api.stage.worker())
    return claim


async def write(api: Api, claim: Claim, first: int, *texts: str) -> None:
    now = api.stage.now()
    chunks = [
        LogChunk(claim.execution_id, claim.attempt, claim.token, first + i, "stdout", now, text)
        for i, text in enumerate(texts)
    ]
    assert await work.append_logs(api.stage.db, chunks)


async def test_pieces_come_as_they_are_written_and_then_the_end(api: Api) -> None:
    claim = await running(api)
    await write(api, claim, 0, "one\n")
    async with following(api, claim.execution_id) as stream:
        first = await stream.next()
        assert first is not None
        assert (first.name, first.place, first.data["text"]) == ("log", "1.0", "one\n")
        assert (first.data["attempt"], first.data["seq"], first.data["stream"]) == (1, 0, "stdout")
        await write(api, claim, 1, "two\nlines ü\n", "three\n")
        found = [await stream.next(), await stream.next()]
        assert [event and event.data["text"] for event in found] == ["two\nlines ü\n", "three\n"]
        await write(api, claim, 3, "last\n")
        await api.stage.record(api.stage.ended(claim, "succeeded"))
        last, end = await stream.all()
        assert last.data["text"] == "last\n"
        assert (end.name, end.data) == ("end", {"status": "succeeded"})


async def test_whoever_lost_the_connection_goes_on_where_it_was(api: Api) -> None:
    claim = await running(api)
    await write(api, claim, 0, *(f"{n}\n" for n in range(5)))
    await api.stage.record(api.stage.ended(claim, "failed"))
    await api.stage.retry_now()
    [again] = await api.stage.claim(await api.stage.worker())
    await write(api, again, 0, "again\n")
    await api.stage.record(api.stage.ended(again, "succeeded"))
    async with following(api, claim.execution_id, **{"Last-Event-ID": "1.2"}) as stream:
        events = await stream.all()
    assert [(event.place, event.data.get("text")) for event in events] == [
        ("1.3", "3\n"), ("1.4", "4\n"), ("2.0", "again\n"), (None, None),
    ]  # fmt: skip
    async with following(api, claim.execution_id, **{"Last-Event-ID": "2.0"}) as stream:
        assert [event.name for event in await stream.all()] == ["end"]


async def test_an_odd_place_starts_over(api: Api) -> None:
    claim = await running(api)
    await write(api, claim, 0, "a", "b")
    await api.stage.record(api.stage.ended(claim, "succeeded"))
    for place in ("", "x", "1", "1.x", "-1.-1", "99999999999.1", "1.1.1"):
        async with following(api, claim.execution_id, **{"Last-Event-ID": place}) as stream:
            assert [event.data.get("text") for event in await stream.all()] == ["a", "b", None], place


async def test_more_pieces_than_one_look_takes_all_come(api: Api) -> None:
    claim = await running(api)
    await write(api, claim, 0, *(str(n) for n in range(1_300)))
    await api.stage.record(api.stage.ended(claim, "succeeded"))
    async with following(api, claim.execution_id) as stream:
        events = await stream.all()
    assert [event.data.get("text") for event in events] == [*(str(n) for n in range(1_300)), None]


async def test_an_execution_that_nobody_ran_ends_at_once(api: Api) -> None:
    job = await api.job()
    started = (await api.post(f"/jobs/{job['job_id']}/run")).body
    await api.post(f"/executions/{started['execution_id']}/cancel")
    async with following(api, started["execution_id"]) as stream:
        [end] = await stream.all()
    assert end.data == {"status": "cancelled"}


async def test_a_wrong_flag_is_refused(api: Api) -> None:
    job = await api.job()
    started = (await api.post(f"/jobs/{job['job_id']}/run")).body
    path = f"/executions/{started['execution_id']}/logs"
    (await api.get(f"{path}?follow=yes")).refuses("follow", "invalid", "true, false")
    assert (await api.get(f"{path}?follow=false")).headers["content-type"].startswith("text/plain")


async def test_a_server_that_stops_lets_go_of_those_who_follow(stage: Stage) -> None:
    door = Running(stage)
    async with door as api:
        claim = await running(api)
        async with following(api, claim.execution_id) as stream:
            await door.stop()
            assert await stream.all() == [], "no end was said: whoever follows asks anew"
