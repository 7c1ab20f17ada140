"""A client for scripts: synchronous, typed, with no dependencies.

    client = Client()
    job = client.schedule("send_report", cron="0 9 * * MON-FRI", timezone="Europe/Berlin")
    done = client.wait(client.enqueue("send_report", {"to": "a@example.org"}))
    print(done.status, done.result, client.logs(done.execution_id))

A task is the name of a registered Python task, the decorated function itself, or a description such as
`{"kind": "shell", "command": "echo hello"}`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from detent.sdk.connection import Connection, events
from detent.sdk.failures import ClientError, WaitTimeout
from detent.sdk.records import DeadLetter, Execution, Job

BASE = "/api/v1"
DEFAULT_URL = "http://127.0.0.1:8642"
WAIT_FIRST, WAIT_CAP = 0.02, 0.5

TaskLike = str | Callable[..., Any] | Mapping[str, Any]
Duration = float | str | timedelta
# What `schedule` takes under a shorter name than the wire has.
SHORT = {"timeout": "timeout_seconds", "retry_delay": "retry_delay_seconds", "key": "idempotency_key"}


class Client:
    """Speaks to one server over one kept-alive connection. May be shared between threads."""

    def __init__(self, url: str = DEFAULT_URL, timeout: float = 10.0) -> None:
        self._connection = Connection(url, timeout)

    @property
    def url(self) -> str:
        return self._connection.url

    def schedule(
        self,
        task: TaskLike,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        at: datetime | str | None = None,
        delay: Duration | None = None,
        payload: Any = None,
        name: str | None = None,
        **options: Any,
    ) -> Job:
        """Create a job: by one of `cron`, `every`, `at`, `delay`; with none it runs only when asked to.

        `options` are the other fields of a job (`timezone`, `priority`, `max_retries`, `tags`, `pool`, ...),
        with `timeout`, `retry_delay` and `key` for `timeout_seconds`, `retry_delay_seconds` and
        `idempotency_key`. Durations are seconds, ISO 8601 text or a timedelta; a datetime must have a zone.
        """
        described, usual_name = described_task(task)
        body: dict[str, Any] = {"name": name or usual_name, "task": described}
        schedule = {"cron": cron, "every": every, "scheduled_at": at, "delay": delay, "payload": payload}
        body.update((field, value) for field, value in schedule.items() if value is not None)
        body.update((SHORT.get(field, field), value) for field, value in options.items() if value is not None)
        return self.create({field: _wire(field, value) for field, value in body.items()})

    def enqueue(self, task: TaskLike, payload: Any = None, **options: Any) -> Job:
        """Run a task once, as soon as possible."""
        return self.schedule(task, payload=payload, **{"delay": 0, **options})

    def create(self, body: Mapping[str, Any]) -> Job:
        """Create a job from the wire's own fields."""
        # The same key again answers the same job, so such a call may be repeated.
        keyed = body.get("idempotency_key") is not None
        return Job.of(self._json("POST", "/jobs", body=dict(body), repeatable=keyed))

    def create_many(self, bodies: Iterable[Mapping[str, Any]], *, batch: int = 1_000) -> Iterator[Job]:
        """Create jobs from the wire's own fields, in order, each batch of them as a whole or not at all.

        Give each an `idempotency_key`, and the same call after a failure makes only what is missing.
        """
        left = iter(bodies)
        while some := [dict(body) for body in islice(left, batch)]:
            keyed = all(body.get("idempotency_key") is not None for body in some)
            answer = self._json("POST", "/jobs/batch", body={"jobs": some}, repeatable=keyed)
            yield from (Job.of(raw) for raw in answer["items"])

    def load(self, texts: Sequence[bytes]) -> bool:
        """Create one batch from JSON texts that have keys, unseen; answers whether any is new."""
        body = b'{"jobs":[%b]}' % b",".join(texts)
        status, _, _ = self._connection.call("POST", f"{BASE}/jobs/batch", body=body, repeatable=True)
        return status == 201

    def job(self, job_id: str) -> Job:
        return Job.of(self._json("GET", f"/jobs/{_part(job_id)}"))

    def jobs(self, *, limit: int | None = None, **filters: Any) -> Iterator[Job]:
        """Newest first, every page: `tag`, `status`, `name`, `pool`; at most `limit` of them."""
        return (Job.of(raw) for raw in self._pages("/jobs", limit, filters))

    def next_runs(self, job_id: str, count: int = 3) -> list[datetime]:
        answer = self._json("GET", f"/jobs/{_part(job_id)}/next", query={"count": count})
        return [datetime.fromisoformat(text) for text in answer["fires"]]

    def pause(self, job_id: str) -> Job:
        return Job.of(self._json("POST", f"/jobs/{_part(job_id)}/pause", repeatable=True))

    def resume(self, job_id: str) -> Job:
        return Job.of(self._json("POST", f"/jobs/{_part(job_id)}/resume", repeatable=True))

    def cancel(self, job_id: str) -> Job:
        """Cancel a job and what it has open; it stays readable."""
        return Job.of(self._json("DELETE", f"/jobs/{_part(job_id)}"))

    def run(self, job_id: str, *, key: str | None = None) -> Execution:
        """Run a job now, besides its schedule. The same key again answers the same execution."""
        headers = {"idempotency-key": key} if key else None
        path = f"/jobs/{_part(job_id)}/run"
        return Execution.of(self._json("POST", path, headers=headers, repeatable=key is not None))

    def execution(self, execution_id: str) -> Execution:
        return Execution.of(self._json("GET", f"/executions/{_part(execution_id)}"))

    def executions(
        self, *, job_id: str | None = None, status: str | None = None, limit: int | None = None
    ) -> Iterator[Execution]:
        """Newest first, every page; at most `limit` of them."""
        filters = {"job_id": job_id, "status": status}
        return (Execution.of(raw) for raw in self._pages("/executions", limit, filters))

    def cancel_execution(self, execution_id: str) -> Execution:
        path = f"/executions/{_part(execution_id)}/cancel"
        return Execution.of(self._json("POST", path, repeatable=True))

    def dead_letters(
        self, *, job_id: str | None = None, status: str | None = None, limit: int | None = None
    ) -> Iterator[DeadLetter]:
        """Newest first, every page: those that wait for a person, or with another `status`."""
        filters = {"job_id": job_id, "status": status}
        return (DeadLetter.of(raw) for raw in self._pages("/dead-letters", limit, filters))

    def dead_letter(self, execution_id: str) -> DeadLetter:
        """One with all its context in `raw`: task, payload, attempts, output."""
        return DeadLetter.of(self._json("GET", f"/dead-letters/{_part(execution_id)}"))

    def replay(
        self, execution_id: str, *, payload: Any = ..., reason: str | None = None, key: str | None = None
    ) -> Execution:
        """Run the work of a dead letter once more, with its own payload or another one."""
        body = {} if payload is ... else {"payload": payload}
        if reason is not None:
            body["reason"] = reason
        headers = {"idempotency-key": key} if key else None
        path = f"/dead-letters/{_part(execution_id)}/replay"
        return Execution.of(self._json("POST", path, body=body, headers=headers, repeatable=key is not None))

    def discard(self, execution_id: str, *, reason: str | None = None) -> DeadLetter:
        """Let a dead letter rest."""
        body = {} if reason is None else {"reason": reason}
        path = f"/dead-letters/{_part(execution_id)}/discard"
        return DeadLetter.of(self._json("POST", path, body=body, repeatable=True))

    def fleet(self, what: str) -> list[dict[str, Any]]:
        """Who is there: `nodes`, `shards` or `workers`."""
        found: list[dict[str, Any]] = self._json("GET", f"/fleet/{_part(what)}")["items"]
        return found

    def logs(self, execution_id: str) -> str:
        """What an execution has written so far."""
        path = f"{BASE}/executions/{_part(execution_id)}/logs"
        _, _, data = self._connection.call("GET", path, headers={"accept": "text/plain"})
        return data.decode(errors="replace")

    def follow(self, execution_id: str) -> Iterator[str]:
        """What an execution writes, piece by piece, until it is over."""
        path = f"{BASE}/executions/{_part(execution_id)}/logs"
        with self._connection.stream(path, {"follow": "true"}, "text/event-stream") as lines:
            for event, data in events(lines):
                if event == "end":
                    return
                if event in ("log", "message"):
                    yield _text_of(data)

    def wait(self, work: Job | Execution | str, timeout: float = 60.0) -> Execution:
        """Wait until an execution is closed and return it.

        For a job that is its newest execution, once it has one. A text is an execution's id.
        """
        deadline = time.monotonic() + timeout
        pause = WAIT_FIRST
        while True:
            found = self._newest(work) if isinstance(work, Job) else self.execution(_execution_id(work))
            if found is not None and found.closed:
                # A list leaves out what only one reading of it shows: attempts and output.
                return self.execution(found.execution_id) if isinstance(work, Job) else found
            if time.monotonic() + pause > deadline:
                what = f"execution {found.execution_id} is {found.status}" if found else "it has not run"
                raise WaitTimeout(f"not over after {timeout:g} s: {what}", code="wait_timeout")
            time.sleep(pause)
            pause = min(pause * 1.5, WAIT_CAP)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _newest(self, job: Job) -> Execution | None:
        newest = next(self.executions(job_id=job.job_id, limit=1), None)
        if newest is None and self.job(job.job_id).status == "cancelled":
            raise ClientError(f"job {job.job_id} was cancelled before it ran", code="job_cancelled")
        return newest

    def _pages(self, path: str, limit: int | None, filters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        left = limit
        cursor: str | None = None
        while left is None or left > 0:
            size = 500 if left is None else min(left, 500)
            page = self._json("GET", path, query={**filters, "limit": size, "cursor": cursor})
            yield from page["items"]
            cursor = page["next_cursor"]
            left = None if left is None else left - len(page["items"])
            if cursor is None:
                return

    def _json(self, method: str, path: str, **more: Any) -> Any:
        _, _, data = self._connection.call(method, BASE + path, **more)
        return json.loads(data)


def described_task(task: TaskLike) -> tuple[Any, str]:
    """The task as the wire has it, and the name that a job of it gets when none is given."""
    if isinstance(task, str):
        return task, task
    if isinstance(task, Mapping):
        command = task.get("command", task.get("name", task.get("kind", "task")))
        words = command if isinstance(command, str) else " ".join(map(str, command))
        return dict(task), words[:100]
    name = registered_name(task)
    return name, name


def registered_name(function: Callable[..., Any]) -> str:
    from detent.execute.registry import default_registry  # costs more than all of this module

    for registered in default_registry:
        if registered.function is function:
            return registered.name
    raise ValueError(f"{function!r} is not a task: decorate it with @task, or give the task's name")


def _wire(field: str, value: Any) -> Any:
    if field == "payload":
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError(f"{value!r} has no zone: say which, for example tzinfo=datetime.UTC")
        return value.isoformat()
    return value


def _text_of(data: str) -> str:
    """The text of a log event: an object with its stream and time around it, or bare."""
    try:
        decoded = json.loads(data)
    except ValueError:
        return data
    return str(decoded["text"]) if isinstance(decoded, dict) and "text" in decoded else data


def _execution_id(work: Execution | str | Job) -> str:
    return work.execution_id if isinstance(work, Execution) else str(work)


def _part(text: str) -> str:
    return quote(str(text), safe="")
