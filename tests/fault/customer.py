"""Those who use the system while it dies: threads that create jobs over HTTP and do not give up.

Each request carries an idempotency key and is repeated until it is answered. What was answered is noted:
that is what the system owes from then on.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from witness import shell_task

GIVE_UP_AFTER = 60.0
AWAY = (OSError, http.client.HTTPException)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A job as the system answered for it, and how it must end."""

    job_id: UUID
    body: dict[str, Any]
    answer: dict[str, Any]
    tries: int

    @property
    def created_at(self) -> datetime:
        return instant(self.answer["created_at"])

    @property
    def recurring(self) -> bool:
        return "every" in self.body or "cron" in self.body

    @property
    def manual(self) -> bool:
        return not self.recurring and "delay" not in self.body

    @property
    def ends(self) -> str:
        """How each of its executions must end."""
        retries, fails = self.body.get("max_retries", 3), int(self.body["tags"][0].removeprefix("fails-"))
        return "succeeded" if fails <= retries else "dead_lettered"


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


class Api:
    """One address. Without an answer it raises OSError or HTTPException; with a wrong one, AssertionError."""

    def __init__(self, url: str) -> None:
        self._base = f"{url}/api/v1"

    def call(self, method: str, path: str, body: Any = None, timeout: float = 10.0) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._base + path, data, {"content-type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            if error.code == 503:
                raise ConnectionError(said) from None
            raise AssertionError(f"{method} {path}: {error.code} {said}") from None

    def insist(self, method: str, path: str, body: Any = None) -> tuple[Any, int]:
        """Repeat until it is answered; answers with how many tries it took."""
        deadline = time.monotonic() + GIVE_UP_AFTER
        tries = 0
        while True:
            tries += 1
            try:
                return self.call(method, path, body), tries
            except AWAY as error:
                if time.monotonic() > deadline:
                    raise AssertionError(
                        f"{method} {path}: no answer for {GIVE_UP_AFTER:g} s: {error}"
                    ) from error
                time.sleep(0.05)

    def create(self, body: dict[str, Any]) -> Acknowledged:
        answer, tries = self.insist("POST", "/jobs", body)
        return Acknowledged(UUID(answer["job_id"]), body, answer, tries)

    def all(self, path: str) -> list[Any]:
        """Every item of a list."""
        items: list[Any] = []
        cursor = ""
        while True:
            page, _ = self.insist("GET", f"{path}?limit=500{cursor}")
            items += page["items"]
            if page["next_cursor"] is None:
                return items
            cursor = f"&cursor={page['next_cursor']}"


class Orders:
    """Makes job definitions from a seed; every one is another."""

    def __init__(self, seed: str, witness: Path, callback_url: str | None = None) -> None:
        self._random = random.Random(seed)
        self._pace = random.Random(f"pace {seed}")
        self._seed = seed
        self._witness = witness
        self._callback_url = callback_url
        self._count = 0

    def one_time(self) -> dict[str, Any]:
        fails = self._random.choices((0, 1, 2, 99), (70, 10, 10, 10))[0]
        delay = round(self._random.uniform(0, 3), 3) if self._random.random() < 0.7 else 0
        calls = self._random.random() < 0.2
        return self._job(fails, delay=delay, callback_url=self._callback_url if calls else None)

    def recurring(self) -> dict[str, Any]:
        return self._job(0, every=1)

    def manual(self) -> dict[str, Any]:
        return self._job(0)

    def minutely(self) -> dict[str, Any]:
        return self._job(0, cron="* * * * *")

    def plain(self, task: str, *, delay: float = 0, **payload: Any) -> dict[str, Any]:
        """A one-time job of this Python task that has no failure to spare."""
        made = self._job(0, delay=delay)
        return {**made, "task": task, "payload": {"witness": str(self._witness), **payload}, "max_retries": 0}

    def pause(self) -> float:
        """How long to wait before the next one."""
        return self._pace.uniform(0.02, 0.15)

    def _job(self, fails: int, **schedule: Any) -> dict[str, Any]:
        self._count += 1
        seconds = round(self._random.choice((0.0, 0.0, 0.02, 0.1, 0.4)), 3)
        kind = self._random.choices(("fault.threaded", "fault.looped", "shell"), (4, 4, 2))[0]
        if kind == "shell":
            task: Any = shell_task(self._witness, seconds, fails)
        else:
            task = {"kind": "python", "name": kind}
        return {
            "name": f"{self._seed}-{self._count}",
            "task": task,
            "payload": {"witness": str(self._witness), "seconds": seconds, "fail_through": fails},
            "priority": self._random.choice(("critical", "high", "normal", "low")),
            "max_retries": 3 if fails <= 3 else 1,
            "retry_backoff": "fixed",
            "retry_delay_seconds": 0.2,
            "tags": [f"fails-{fails}"],
            "idempotency_key": f"{self._seed}-{self._count}",
            **schedule,
        }


class Customers:
    """Threads that create one-time jobs, one that runs a job by hand, and one that pauses and resumes one again and
    again, until they are told to stop.
    """

    def __init__(self, api: Api, seed: int, witness: Path, callback_url: str, threads: int = 3) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.runs: list[UUID] = []  # executions that were promised to those who asked for them
        self._api = api
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        orders = [Orders(f"{seed}-{n}", witness, callback_url) for n in range(threads + 1)]
        self._threads = [
            threading.Thread(target=self._go_on, args=(self._one_time, each), daemon=True)
            for each in orders[1:]
        ]
        fickle = Orders(f"{seed}-fickle", witness)
        for ask, by in ((self._by_hand, orders[0]), (self._fickle, fickle)):
            self._threads.append(threading.Thread(target=self._go_on, args=(ask, by), daemon=True))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let each finish the request it is making, unless the test has failed anyway."""
        self._stop.set()
        if error is not None:
            return
        for thread in self._threads:
            thread.join(GIVE_UP_AFTER + 10)
            assert not thread.is_alive()
        if self._failures:
            raise self._failures[0]

    def _go_on(self, ask: Callable[[Orders], Iterator[None]], orders: Orders) -> None:
        try:
            for _ in ask(orders):
                if self._stop.wait(orders.pause()):
                    return
        except BaseException as failure:
            self._failures.append(failure)

    def _one_time(self, orders: Orders) -> Iterator[None]:
        while True:
            self.acknowledged.append(self._api.create(orders.one_time()))
            yield

    def _fickle(self, orders: Orders) -> Iterator[None]:
        """In the end it is not paused. Each pause takes back an instant that is staged and not claimed."""
        job = self._api.create(orders.recurring())
        self.acknowledged.append(job)
        try:
            while True:
                for _ in range(8):
                    yield
                self._api.insist("POST", f"/jobs/{job.job_id}/pause")
                for _ in range(4):
                    yield
                self._api.insist("POST", f"/jobs/{job.job_id}/resume")
        finally:
            self._api.insist("POST", f"/jobs/{job.job_id}/resume")

    def _by_hand(self, orders: Orders) -> Iterator[None]:
        job = self._api.create(orders.manual())
        self.acknowledged.append(job)
        for number in count():
            key = {"idempotency_key": f"run {number}"}
            answer, _ = self._api.insist("POST", f"/jobs/{job.job_id}/run", key)
            self.runs.append(UUID(answer["execution_id"]))
            yield
