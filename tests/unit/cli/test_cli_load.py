"""Loading jobs from JSON lines: reading, batching, keys, and what is said of a wrong line."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pytest

from detent.cli import job_load
from detent.cli.job_load import UnreadableLine, batches, lines_of, send
from detent.model.errors import FieldError, InvalidInput
from detent.sdk.client import Client
from detent.sdk.failures import CannotConnect, Conflict, InvalidRequest


def read(text: str | bytes, name: str = "jobs.jsonl") -> list[tuple[int, dict[str, Any]]]:
    data = text if isinstance(text, bytes) else text.encode()
    return [(number, json.loads(job)) for number, job in lines_of(io.BytesIO(data), name)]


def test_each_line_gets_a_key_from_the_load_and_its_number_and_keeps_its_own() -> None:
    (one, first), (three, second), (four, third) = read('{"name": "a"}\n\n {} \n{"idempotency_key": "mine"}')
    assert (one, three, four) == (1, 3, 4)
    assert first["name"] == "a"
    assert set(second) == {"idempotency_key"}
    assert third == {"idempotency_key": "mine"}
    keys = [first["idempotency_key"], second["idempotency_key"]]
    assert keys[0].removesuffix(":1") == keys[1].removesuffix(":3")
    assert read('{"name": "a"}')[0][1] == first
    assert read('{"name": "a"}', "another load")[0][1] != first


def test_a_key_that_is_null_is_none() -> None:
    assert read('{"idempotency_key": null}')[0][1]["idempotency_key"].startswith("load:")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"name": ', "line 2: is not JSON"),
        ("[1]", "line 2: is no JSON object"),
        (b"\xff", "line 2: is not UTF-8 text"),
        ('{"payload": NaN}', "line 2: is not JSON: NaN"),
        ("[" * 100_000, "line 2: is not JSON"),
    ],
)
def test_a_line_that_is_no_job_is_named(text: str | bytes, said: str) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(UnreadableLine, match=said):
        read(b"{}\n" + data)


def test_batches_are_bounded_by_number_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_load, "BATCH_BYTES", 10)
    sizes = [b"x" * size for size in (1, 1, 1, 9, 2, 50, 1)]
    found = [[len(text) for _, text in some] for some in batches(iter(enumerate(sizes)), 2)]
    assert found == [[1, 1], [1, 9], [2], [50], [1]]


def test_what_was_read_before_an_unreadable_line_is_sent() -> None:
    sent = batches(lines_of(io.BytesIO(b"{}\n{}\nnonsense"), "x"), 10)
    assert [number for number, _ in next(sent)] == [1, 2]
    with pytest.raises(UnreadableLine):
        next(sent)


class Server(Client):
    """Answers what it is told to, one after another."""

    def __init__(self, *answers: Exception | bool) -> None:
        super().__init__("http://127.0.0.1:9")
        self.answers = list(answers)
        self.heard = 0

    def load(self, texts: Sequence[bytes]) -> bool:
        self.heard += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


LINES = [(7, b"{}"), (9, b"{}")]


def test_a_wrong_field_is_named_by_its_line() -> None:
    refused = InvalidRequest("no", status=422, errors=[FieldError("jobs[1].dst.gap", "invalid", "is wrong")])
    with pytest.raises(InvalidInput) as caught:
        send(Server(refused), LINES)
    assert caught.value.errors == (FieldError("line 9, dst.gap", "invalid", "is wrong"),)


def test_a_key_of_another_load_says_what_to_do() -> None:
    error = FieldError("jobs[0].idempotency_key", "idempotency_conflict", "was used before with another body")
    with pytest.raises(InvalidInput, match=r"line 7, idempotency_key: .* another --load-name"):
        send(Server(Conflict("no", status=409, errors=[error])), LINES)


def test_a_server_that_is_away_for_a_moment_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_load, "PAUSE", 0.0)
    away = CannotConnect("cannot reach it")
    server = Server(away, away, True)
    assert send(server, LINES) == 2
    assert server.heard == 3
    with pytest.raises(CannotConnect):
        send(Server(*[away] * job_load.TRIES), LINES)
