"""`detent dead-letter`, against a real HTTP server that plays the other side."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from detent.cli.exits import Exit
from detent.cli.main import run

ID = "01998c2e-5c7a-8b3e-9f00-0123456789ab"
NEW = "01998c2f-5c7a-8b3e-9f00-0123456789ab"
JOB = "01998c2e-0000-7b3e-9f00-0123456789ab"
NOW = "2026-01-01T00:00:00.000Z"
LETTER = {
    "execution_id": ID, "job_id": JOB, "name": "invoice", "revision": 3, "status": "waiting",
    "reason": "out_of_attempts", "error": {"type": "NoSuchCustomer", "message": "4711"}, "died_at": NOW,
    "settled_at": None, "replayed_as": None, "note": None,
}  # fmt: skip
WHOLE = {
    **LETTER,
    "task": {"kind": "python", "name": "billing.send"},
    "payload": {"to": "wrong@example.org"},
    "error": {"type": "NoSuchCustomer", "message": "4711", "traceback": "Traceback: in send\n"},
    "execution": {
        "stdout": "", "stderr": "no such customer\n",
        "attempts": [
            {"attempt": 1, "outcome": "timed_out", "error": {"type": "Timeout", "message": "60 s"}},
            {"attempt": 2, "outcome": "failed", "error": {"type": "NoSuchCustomer", "message": "4711"}},
        ],
    },
}  # fmt: skip
JOB_WITH_NAME = {
    "job_id": JOB, "name": "invoice", "status": "scheduled", "task": {"kind": "python", "name": "n"},
    "payload": None, "next_run_at": NOW, "revision": 3, "tags": [], "created_at": NOW, "updated_at": NOW,
}  # fmt: skip
STARTED = {"execution_id": NEW, "job_id": JOB, "status": "queued", "cause": "replay", "attempt": 0}


@dataclass
class Other:
    """Answers with what a test queued, in order, and remembers what it heard: method, path and body."""

    url: str = ""
    heard: list[tuple[str, str, Any]] = field(default_factory=list)
    answers: list[tuple[int, Any]] = field(default_factory=list)


@pytest.fixture
def other() -> Iterator[Other]:
    played = Other()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            played.heard.append((self.command, self.path, json.loads(data) if data else None))
            status, body = played.answers.pop(0)
            answer = json.dumps(body).encode()
            self.send_response(status)
            kind = "application/json" if status < 400 else "application/problem+json"
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET

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


def command(other: Other, *words: str) -> int:
    return run(["dead-letter", *words, "--url", other.url])


def page(*items: dict[str, Any], cursor: str | None = None) -> tuple[int, dict[str, Any]]:
    return 200, {"items": list(items), "next_cursor": cursor}


def test_the_list_shows_what_died_of_what(other: Other, capsys: pytest.CaptureFixture[str]) -> None:
    other.answers = [page(LETTER)]
    assert command(other, "list") == Exit.OK
    said = capsys.readouterr().out
    for word in (ID, "invoice", "out_of_attempts", "NoSuchCustomer: 4711"):
        assert word in said
    method, path, _ = other.heard[0]
    assert method == "GET"
    assert path.startswith("/api/v1/dead-letters?")
    assert "status=waiting" in path


def test_the_list_says_when_there_is_none_and_of_which_status(
    other: Other, capsys: pytest.CaptureFixture[str]
) -> None:
    other.answers = [(200, JOB_WITH_NAME), page()]
    assert command(other, "list", "--status", "replayed", "--job", JOB) == Exit.OK
    assert "no dead letters are replayed" in capsys.readouterr().out
    assert other.heard[0][:2] == ("GET", f"/api/v1/jobs/{JOB}")
    assert "status=replayed" in other.heard[1][1]
    assert f"job_id={JOB}" in other.heard[1][1]


def test_the_list_says_that_there_are_more(other: Other, capsys: pytest.CaptureFixture[str]) -> None:
    other.answers = [page(LETTER, {**LETTER, "execution_id": NEW})]
    assert command(other, "list", "--limit", "1") == Exit.OK
    said = capsys.readouterr().out
    assert ID in said
    assert NEW not in said
    assert "--limit 5 shows them" in said


def test_the_list_as_json_is_what_the_server_said(other: Other, capsys: pytest.CaptureFixture[str]) -> None:
    other.answers = [page(LETTER)]
    assert command(other, "list", "--json") == Exit.OK
    assert json.loads(capsys.readouterr().out) == [LETTER]


def test_showing_a_letter_tells_all_of_it(other: Other, capsys: pytest.CaptureFixture[str]) -> None:
    other.answers = [(200, WHOLE)]
    assert command(other, "show", ID) == Exit.OK
    said = capsys.readouterr().out
    for word in (
        "Python task billing.send", '{"to": "wrong@example.org"}', "no such customer", "timed_out",
        "Timeout: 60 s", "Traceback: in send",
    ):  # fmt: skip
        assert word in said
    assert other.heard == [("GET", f"/api/v1/dead-letters/{ID}", None)]


def test_a_long_payload_is_cut_on_the_screen_and_whole_as_json(
    other: Other, capsys: pytest.CaptureFixture[str]
) -> None:
    long = {**WHOLE, "payload": "x" * 10_000}
    other.answers = [(200, long), (200, long)]
    assert command(other, "show", ID) == Exit.OK
    assert "x" * 3_000 not in capsys.readouterr().out.replace("\n", "")
    assert command(other, "show", ID, "--json") == Exit.OK
    assert json.loads(capsys.readouterr().out) == long


def test_a_replay_sends_no_payload_unless_one_is_given(
    other: Other, capsys: pytest.CaptureFixture[str]
) -> None:
    other.answers = [(202, STARTED)]
    assert command(other, "replay", ID) == Exit.OK
    assert other.heard == [("POST", f"/api/v1/dead-letters/{ID}/replay", {})]
    said = capsys.readouterr().out
    assert f"execution {NEW} is queued" in said
    assert f"detent execution logs {NEW} -f" in said


@pytest.mark.parametrize(
    ("text", "value"), [('{"to": "right@example.org"}', {"to": "right@example.org"}), ("null", None)]
)
def test_a_replay_sends_the_edited_payload_also_when_it_is_null(other: Other, text: str, value: Any) -> None:
    other.answers = [(202, STARTED)]
    assert command(other, "replay", ID, "--payload", text, "--reason", "fixed") == Exit.OK
    assert other.heard[0][2] == {"payload": value, "reason": "fixed"}


def test_a_replay_reads_its_payload_from_a_file(other: Other, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text("[1, 2]")
    other.answers = [(202, STARTED)]
    assert command(other, "replay", ID, "--payload", f"@{file}") == Exit.OK
    assert other.heard[0][2] == {"payload": [1, 2]}


def test_a_payload_that_is_no_json_is_refused_before_anything_is_sent(
    other: Other, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(other, "replay", ID, "--payload", "{to: ops}") == Exit.USAGE
    assert "is not JSON" in capsys.readouterr().err
    assert other.heard == []


def test_a_discard_sends_its_reason(other: Other, capsys: pytest.CaptureFixture[str]) -> None:
    other.answers = [(200, {**WHOLE, "status": "discarded"})]
    assert command(other, "discard", ID, "--reason", "the customer is gone") == Exit.OK
    assert other.heard == [("POST", f"/api/v1/dead-letters/{ID}/discard", {"reason": "the customer is gone"})]
    assert f"dead letter {ID} is discarded" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_a_letter_that_was_settled_already_is_told_with_the_servers_words(
    other: Other, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = {
        "type": "about:blank", "title": "Conflict", "status": 409, "code": "wrong_state", "errors": [],
        "detail": f"the dead letter was replayed as {NEW}",
    }  # fmt: skip
    other.answers = [(409, problem)]
    assert command(other, verb, ID) == Exit.REFUSED
    assert f"the dead letter was replayed as {NEW}" in capsys.readouterr().err
    assert len(other.heard) == 1
