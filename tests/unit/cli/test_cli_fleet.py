"""`detent fleet`: nodes, shards and workers in words; and `detent job create --deadline`. A real HTTP server plays
the other side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from other_side import OtherSide

from detent.cli.exits import Exit
from detent.cli.main import run

NOW = "2026-01-31T09:00:00.000Z"
NODE = {
    "node_id": "node-1", "host": "here", "pid": 11, "live": True, "standby": False, "leaving": False,
    "shards": 256, "lag_ms": 12.5, "skew_ms": -3.21, "beat_at": NOW, "started_at": NOW, "ended_at": None,
}  # fmt: skip
WORKER = {
    "worker_id": "worker-1", "name": "here-12", "host": "here", "pid": 12, "status": "live", "live": True,
    "pools": ["fast", "default"], "slots": 10, "in_flight": 3, "tasks": ["a", "b"], "stale_writes": 0,
    "beat_at": NOW, "started_at": NOW, "ended_at": None,
}  # fmt: skip
JOB: dict[str, Any] = {
    "job_id": "j1", "name": "n", "status": "scheduled", "task": {"kind": "python", "name": "n"},
    "payload": None, "next_run_at": None, "revision": 1, "tags": [], "created_at": NOW, "updated_at": NOW,
}  # fmt: skip


def shard(number: int, owner: str | None, epoch: int = 1, lag_ms: float = 0.0) -> dict[str, Any]:
    return {
        "shard": number, "node_id": owner, "epoch": epoch, "expires_at": NOW, "next_due_at": None,
        "lag_ms": lag_ms,
    }  # fmt: skip


@pytest.fixture
def other() -> Iterator[OtherSide]:
    with OtherSide() as played:
        yield played


def shown(
    other: OtherSide, capsys: pytest.CaptureFixture[str], what: str, items: list[Any], *words: str
) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    other.will(200, {"items": items, "next_cursor": None})
    assert run(["fleet", what, *words, "--url", other.url]) == Exit.OK
    out = capsys.readouterr().out
    assert other.asked[-1] == ("GET", f"/api/v1/fleet/{what}", {}, None)
    _, _, *rows = out.splitlines()
    return [[cell.strip() for cell in row.split("  ") if cell.strip()] for row in rows]


def test_nodes_show_what_they_own_and_how_they_keep_time(
    other: OtherSide, capsys: pytest.CaptureFixture[str]
) -> None:
    new = {**NODE, "node_id": "node-2", "skew_ms": None, "lag_ms": 2_500, "shards": 0}
    rows = shown(other, capsys, "nodes", [NODE, new])
    assert rows[0][:6] == ["node-1", "here:11", "live", "256", "12 ms", "-3.2 ms"]
    assert rows[1][:6] == ["node-2", "here:11", "live", "0", "2.50 s", "–"]
    rows = shown(other, capsys, "nodes", [{**NODE, "skew_ms": -0.04}, {**NODE, "skew_ms": 0.05}])
    assert [row[5] for row in rows] == ["0 ms", "+0.1 ms"]


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, "live"),
        ({"standby": True}, "standby"),
        ({"standby": True, "leaving": True}, "leaving"),
        ({"live": False}, "gone"),
        ({"live": False, "leaving": True, "ended_at": NOW}, "ended"),
    ],
)
def test_a_nodes_state_is_one_word(
    other: OtherSide, capsys: pytest.CaptureFixture[str], change: dict[str, Any], state: str
) -> None:
    assert shown(other, capsys, "nodes", [{**NODE, **change}])[0][2] == state


def test_shards_are_added_up_by_owner(other: OtherSide, capsys: pytest.CaptureFixture[str]) -> None:
    found = [shard(0, "0198-b", 4, 5), shard(1, "0198-a", 2), shard(2, "0198-b", 7, 61_000), shard(3, None)]
    assert shown(other, capsys, "shards", found) == [
        ["0198-a", "1", "2–2", "0 ms"],
        ["0198-b", "2", "4–7", "1 min 1 s"],
        ["nobody", "1", "1–1", "0 ms"],
    ]


def test_all_shards_are_shown_one_by_one_when_asked(
    other: OtherSide, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [shard(n, "node-a" if n else None, n, n) for n in range(256)]
    rows = shown(other, capsys, "shards", found, "--all")
    assert len(rows) == 256
    assert rows[0] == ["0", "nobody", "0", "0 ms"]
    assert rows[255] == ["255", "node-a", "255", "255 ms"]


def test_workers_show_what_they_run_and_what_they_reported_too_late(
    other: OtherSide, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = {**WORKER, "worker_id": "worker-2", "live": False, "stale_writes": 17}
    lost = {**WORKER, "worker_id": "worker-3", "live": False, "status": "lost", "ended_at": NOW}
    rows = shown(other, capsys, "workers", [WORKER, silent, lost])
    assert rows[0][:7] == ["worker-1", "here-12", "live", "fast, default", "3/10", "2", "0"]
    assert (rows[1][2], rows[1][6]) == ("live, silent", "17")
    assert rows[2][2] == "lost"


def test_an_empty_fleet_says_so(other: OtherSide, capsys: pytest.CaptureFixture[str]) -> None:
    for what, said in (("nodes", "no scheduler yet\n"), ("workers", "no worker yet\n")):
        other.will(200, {"items": [], "next_cursor": None})
        assert run(["fleet", what, "--url", other.url]) == Exit.OK
        assert capsys.readouterr().out == said


def test_json_is_what_the_server_said(other: OtherSide, capsys: pytest.CaptureFixture[str]) -> None:
    for what, items in (("nodes", [NODE]), ("shards", [shard(0, None)]), ("workers", [WORKER])):
        other.will(200, {"items": items, "next_cursor": None})
        assert run(["fleet", what, "--json", "--url", other.url]) == Exit.OK
        assert json.loads(capsys.readouterr().out) == items


@pytest.mark.parametrize("command", ["nodes", "shards", "workers"])
def test_each_command_has_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert run(["fleet", command, "-h"]) == Exit.OK
    said = capsys.readouterr().out
    assert f"Usage: detent fleet {command} " in said
    assert "--json" in said and "--url" in said
    assert ("--all" in said) == (command == "shards")


def test_a_server_that_is_not_there_ends_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "nodes", "--url", "http://127.0.0.1:1"]) == Exit.UNREACHABLE
    assert "Is it running?" in capsys.readouterr().err


# The deadline of a job


@pytest.mark.parametrize(("text", "sent"), [("2m", 120), ("1h30m", 5400), ("0.5", 0.5), ("PT30S", "PT30S")])
def test_a_deadline_is_sent_as_a_duration(
    other: OtherSide, capsys: pytest.CaptureFixture[str], text: str, sent: float | str
) -> None:
    other.will(201, JOB)
    assert run(["job", "create", "n", "--deadline", text, "--url", other.url]) == Exit.OK
    assert other.asked == [("POST", "/api/v1/jobs", {}, {"name": "n", "deadline_seconds": sent})]


def test_a_deadline_that_is_no_duration_asks_nothing(
    other: OtherSide, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["job", "create", "n", "--deadline", "soon", "--url", other.url]) == Exit.USAGE
    said = capsys.readouterr().err
    assert "--deadline" in said and "'soon' is not a duration" in said
    assert other.asked == []


def test_the_help_of_create_says_what_a_deadline_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["job", "create", "-h"]) == Exit.OK
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "--deadline DURATION End an execution this long after it was queued, retries included. [never]"
        in said
    )
