"""The real application under the real server on a real PostgreSQL, and a client that believes nothing.

Every answer that the client sees is held against the OpenAPI document: its status, its content type and its
shape. So each test here is a test of the contract as well, whatever else it is about.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import aiohttp
from contract import check_answer
from yarl import URL

from detent.api.app import ApiState, serve
from stage import Stage

BASE = "/api/v1"
START_SECONDS = 20.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.content)

    @property
    def text(self) -> str:
        return self.content.decode()

    @property
    def code(self) -> str:
        return str(self.body["code"])

    @property
    def errors(self) -> dict[str, tuple[str, str]]:
        """What was refused: by field, the code and the message."""
        return {e["field"]: (e["code"], e["message"]) for e in self.body["errors"]}

    def refuses(self, field: str, code: str | None = None, *words: str) -> None:
        """It is a 422 about this one field, and what it says has these words."""
        assert self.status == 422, (self.status, self.text)
        assert list(self.errors) == [field], self.text
        found, message = self.errors[field]
        assert code in (None, found), self.text
        for word in words:
            assert word in message, self.text


class Api:
    """A client of one running server. Paths that begin with `/` and a word are below the base."""

    def __init__(self, address: str, session: aiohttp.ClientSession, stage: Stage) -> None:
        self.address = address
        self.session = session
        self.stage = stage

    def url(self, path: str) -> URL:
        whole = path if path.startswith((BASE, "/healthz", "/readyz")) or path == "/" else BASE + path
        return URL(self.address + whole, encoded=True)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = ...,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        sent = {"content-type": "application/json"} if body is not ... or raw is not None else {}
        data = raw if body is ... else json.dumps(body).encode()
        url = self.url(path)
        async with self.session.request(method, url, data=data, headers={**sent, **(headers or {})}) as got:
            answer = Answer(
                got.status, {k.lower(): v for k, v in got.headers.items()}, await got.content.read()
            )
        check_answer(method, url.raw_path, answer.status, answer.headers, answer.content)
        return answer

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.ask("GET", path, **more)

    async def post(self, path: str, body: Any = ..., **more: Any) -> Answer:
        return await self.ask("POST", path, body, **more)

    async def patch(self, path: str, body: Any = ..., **more: Any) -> Answer:
        return await self.ask("PATCH", path, body, **more)

    async def put(self, path: str, body: Any = ..., **more: Any) -> Answer:
        return await self.ask("PUT", path, body, **more)

    async def delete(self, path: str, **more: Any) -> Answer:
        return await self.ask("DELETE", path, **more)

    async def job(self, **fields: Any) -> dict[str, Any]:
        """Create a job; what is not said is the default."""
        answer = await self.post("/jobs", {"name": "job", **fields})
        assert answer.status == 201, answer.text
        made: dict[str, Any] = answer.body
        return made

    async def read(self, job: dict[str, Any]) -> dict[str, Any]:
        answer = await self.get(f"/jobs/{job['job_id']}")
        assert answer.status == 200, answer.text
        found: dict[str, Any] = answer.body
        return found

    async def jobs_stored(self) -> int:
        return int(await self.stage.db.fetchval("select count(*) from detent.jobs"))

    async def timer(self, job: dict[str, Any]) -> dict[str, Any]:
        return dict(await self.stage.row("timers", UUID(job["job_id"])))

    async def pages(self, path: str) -> list[dict[str, Any]]:
        """Everything that a list has, page after page."""
        items: list[dict[str, Any]] = []
        cursor = ""
        mark = "&" if "?" in path else "?"
        while True:
            answer = await self.get(path + cursor)
            assert answer.status == 200, answer.text
            items += answer.body["items"]
            if answer.body["next_cursor"] is None:
                return items
            cursor = f"{mark}cursor={answer.body['next_cursor']}"


class Running:
    """`async with Running(stage) as api`: the whole HTTP door for as long as that lasts."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._stop = asyncio.Event()

    async def __aenter__(self) -> Api:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        state = ApiState(self._stage.db, self._stage.clock, self._stage.notifier)
        self._task = asyncio.create_task(serve(state, "127.0.0.1", 0, ready.set_result, self._stop))
        async with asyncio.timeout(START_SECONDS):
            await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                self._task.result()
            told = await ready
        self._session = aiohttp.ClientSession()
        return Api(told.removeprefix("api: "), self._session, self._stage)

    async def stop(self) -> None:
        self._stop.set()
        async with asyncio.timeout(START_SECONDS):
            await self._task

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self.stop()
