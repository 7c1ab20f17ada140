"""What the client sends and how it reads answers, against a real HTTP server that plays the other side."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import detent
from detent.model import execution as words
from detent.sdk import failures, records
from detent.sdk.client import Client

NOW = "2026-01-01T00:00:00.000Z"
JOB = {
    "job_id": "j1", "name": "n", "status": "scheduled", "task": {"kind": "python", "name": "n"},
    "payload": None, "cron": "* * * * *", "next_run_at": NOW, "revision": 1, "tags": ["a"],
    "created_at": NOW, "updated_at": NOW,
}  # fmt: skip
EXECUTION = {"execution_id": "e1", "job_id": "j1", "status": "running", "cause": "schedule", "attempt": 1}


@dataclass
class Heard:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Other:
    """Plays the server: answers with what a test queued, in order, and remembers what it heard."""

    url: str = ""
    heard: list[Heard] = field(default_factory=list)
    answers: list[Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=list)
    connections: int = 0

    def will(self, status: int, body: Any, **headers: str) -> None:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            handler.send_response(status)
            handler.send_header("content-length", str(len(data)))
            for name, value in headers.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.end_headers()
            handler.wfile.write(data)

        self.answers.append(answer)

    def will_hang_up(self) -> None:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)

        self.answers.append(answer)


@pytest.fixture
def other() -> Iterator[Other]:
    played = Other()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            played.connections += 1
            super().setup()

        def do_GET(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            data = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            played.heard.append(Heard(self.command, self.path, headers, json.loads(data) if data else None))
            played.answers.pop(0)(self)

        do_POST = do_DELETE = do_GET

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        played.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield played
        server.shutdown()
        thread.join()


@pytest.fixture
def client(other: Other) -> Iterator[Client]:
    with Client(other.url, timeout=5) as made:
        yield made


def test_schedule_sends_the_words_of_the_wire(other: Other, client: Client) -> None:
    other.will(201, JOB)
    job = client.schedule(
        "report", cron="0 9 * * *", timezone="Europe/Berlin", payload={"a": 1}, timeout=timedelta(minutes=2),
        max_retries=0, retry_delay=5, tags=["x"], key="k", priority=None,
    )  # fmt: skip
    assert other.heard[0].body == {
        "name": "report", "task": "report", "cron": "0 9 * * *", "timezone": "Europe/Berlin",
        "payload": {"a": 1}, "timeout_seconds": 120.0, "max_retries": 0, "retry_delay_seconds": 5,
        "tags": ["x"], "idempotency_key": "k",
    }  # fmt: skip
    assert other.heard[0].headers["content-type"] == "application/json"
    assert (other.heard[0].method, other.heard[0].path) == ("POST", "/api/v1/jobs")
    assert job.next_run_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert job.raw == JOB


def test_a_task_may_be_a_function_or_a_description(other: Other, client: Client) -> None:
    @detent.task("client_wire.function")
    def function() -> None: ...

    for _ in range(2):
        other.will(201, JOB)
    client.enqueue(function, {"x": 1})
    client.schedule({"kind": "shell", "command": ["echo", "hi"]}, every=timedelta(seconds=30))
    first, second = (heard.body for heard in other.heard)
    assert first == {
        "name": "client_wire.function", "task": "client_wire.function", "payload": {"x": 1}, "delay": 0,
    }  # fmt: skip
    assert second == {"name": "echo hi", "task": {"kind": "shell", "command": ["echo", "hi"]}, "every": 30.0}


def test_an_undecorated_function_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="@task"):
        client.enqueue(lambda: None)


def test_a_datetime_needs_a_zone(other: Other, client: Client) -> None:
    with pytest.raises(ValueError, match="has no zone"):
        client.schedule("x", at=datetime(2030, 1, 1))  # noqa: DTZ001
    other.will(201, JOB)
    client.schedule("x", at=datetime(2030, 1, 1, tzinfo=UTC))
    assert other.heard[0].body["scheduled_at"] == "2030-01-01T00:00:00+00:00"


def test_lists_go_on_to_the_last_page_over_one_connection(other: Other, client: Client) -> None:
    other.will(200, {"items": [JOB, JOB], "next_cursor": "c/1"})
    other.will(200, {"items": [JOB], "next_cursor": None})
    assert len(list(client.jobs(tag="a b", status=None))) == 3
    assert other.heard[0].path == "/api/v1/jobs?tag=a+b&limit=500"
    assert other.heard[1].path == "/api/v1/jobs?tag=a+b&limit=500&cursor=c%2F1"
    assert other.connections == 1


def test_a_limit_ends_a_list_early(other: Other, client: Client) -> None:
    other.will(200, {"items": [EXECUTION, EXECUTION], "next_cursor": "more"})
    assert len(list(client.executions(job_id="j1", limit=2))) == 2
    assert other.heard[0].path == "/api/v1/executions?job_id=j1&limit=2"
    assert len(other.heard) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, failures.NotFound), (409, failures.Conflict), (422, failures.InvalidRequest),
     (400, failures.InvalidRequest), (503, failures.Unavailable), (500, failures.ServerError),
     (418, failures.ClientError)],
)  # fmt: skip
def test_problems_become_errors_of_their_kind(
    status: int, kind: type[failures.ClientError], other: Other, client: Client
) -> None:
    problem = {
        "title": "No", "detail": "not so", "code": "some_code",
        "errors": [{"field": "cron", "code": "invalid", "message": "is odd"}],
    }  # fmt: skip
    other.will(status, problem, retry_after="7")
    with pytest.raises(kind, match="not so") as raised:
        client.job("j1")
    error = raised.value
    assert (error.status, error.code, error.errors[0].field) == (status, "some_code", "cron")
    if isinstance(error, failures.Unavailable):
        assert error.retry_after == 7


def test_an_answer_that_is_no_problem_document_is_an_error_too(other: Other, client: Client) -> None:
    other.will(502, "<html>Bad gateway</html>")
    with pytest.raises(failures.ServerError, match="the server answered 502"):
        client.job("j1")


def test_a_read_on_a_connection_that_broke_is_sent_once_more(other: Other, client: Client) -> None:
    other.will(200, JOB)
    other.will_hang_up()
    other.will(200, JOB)
    client.job("j1")
    assert client.job("j1").job_id == "j1"
    assert other.connections == 2


def test_a_creation_that_broke_is_not_sent_twice_unless_it_has_a_key(other: Other, client: Client) -> None:
    other.will(201, JOB)
    other.will_hang_up()
    client.enqueue("x")
    with pytest.raises(failures.CannotConnect):
        client.enqueue("x")
    assert len(other.heard) == 2
    other.will(201, JOB)
    other.will_hang_up()
    other.will(201, JOB)
    client.enqueue("x")
    client.enqueue("x", key="k")
    assert len(other.heard) == 5


def test_an_idle_connection_that_the_server_closed_is_replaced_before_a_creation(
    other: Other, client: Client
) -> None:
    other.will(200, JOB, connection="close")
    other.will(201, JOB)
    client.job("j1")
    client.enqueue("x")
    assert other.connections == 2


def test_nobody_there_is_cannot_connect() -> None:
    with pytest.raises(failures.CannotConnect, match="cannot reach http"):
        Client("http://127.0.0.1:1").job("x")


@pytest.mark.parametrize("url", ["localhost:8642", "ftp://x", "http://"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="must look like"):
        Client(url)


def test_wait_asks_until_the_execution_is_closed(other: Other, client: Client) -> None:
    other.will(200, EXECUTION)
    other.will(200, {**EXECUTION, "status": "succeeded", "result": 42})
    done = client.wait("e1")
    assert (done.result, done.succeeded, done.closed) == (42, True, True)


def test_wait_for_a_job_follows_its_newest_execution(other: Other, client: Client) -> None:
    other.will(201, JOB)
    job = client.enqueue("x")
    other.will(200, {"items": [], "next_cursor": None})
    other.will(200, JOB)
    other.will(200, {"items": [{**EXECUTION, "status": "succeeded"}], "next_cursor": None})
    other.will(200, {**EXECUTION, "status": "succeeded", "stdout": "hi"})
    assert client.wait(job).stdout == "hi"


def test_wait_gives_up_in_time_and_says_where_it_stands(other: Other, client: Client) -> None:
    for _ in range(10):
        other.will(200, EXECUTION)
    with pytest.raises(failures.WaitTimeout, match="execution e1 is running"):
        client.wait("e1", timeout=0.05)


def test_wait_for_a_job_that_was_cancelled_before_it_ran_ends(other: Other, client: Client) -> None:
    other.will(200, {"items": [], "next_cursor": None})
    other.will(200, {**JOB, "status": "cancelled"})
    with pytest.raises(failures.ClientError, match="was cancelled before it ran"):
        client.wait(records.Job.of(JOB))


def test_ids_cannot_leave_their_place_in_the_path(other: Other, client: Client) -> None:
    other.will(404, {})
    with pytest.raises(failures.NotFound):
        client.job("../x?y")
    assert other.heard[0].path == "/api/v1/jobs/..%2Fx%3Fy"


def test_threads_may_share_a_client(other: Other, client: Client) -> None:
    for _ in range(20):
        other.will(200, JOB)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(client.job("j1").job_id)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["j1"] * 20


def test_the_open_statuses_are_those_of_the_model() -> None:
    assert records.OPEN == words.OPEN


def test_the_front_names_are_there_and_lazy() -> None:
    assert detent.Client is Client
    assert {"task", "Client", "Context", "NonRetryable"} <= set(dir(detent))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        detent.Nothing  # noqa: B018
