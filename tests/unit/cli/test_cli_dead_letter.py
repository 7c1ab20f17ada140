"""`detent dead-letter`: what it asks of a server, and how it shows the answer. A real HTTP server plays the other
side.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from other_side import OtherSide, problem

from detent.cli.exits import Exit
from detent.cli.main import run

ID = "01998c2e-5c7a-8b3e-9f00-0123456789ab"
JOB_ID = "01998c2e-0000-7b3e-9f00-0123456789ab"
NEW_ID = "01998c2f-5c7a-8b3e-9f00-0123456789ab"
LETTER = {
    "execution_id": ID, "job_id": JOB_ID,
    "name": "invoice", "revision": 3, "status": "waiting", "reason": "out_of_attempts",
    "error": {"type": "Trouble", "message": "no such customer", "traceback": None, "exit_code": None},
    "died_at": "2026-01-31T09:00:00.000Z", "settled_at": None, "replayed_as": None, "note": None,
}  # fmt: skip
JOB = {
    "job_id": JOB_ID, "name": "invoice", "status": "scheduled", "payload": None, "tags": [],
    "task": {"kind": "python", "name": "t"}, "next_run_at": None, "revision": 1,
    "created_at": LETTER["died_at"], "updated_at": LETTER["died_at"],
}  # fmt: skip
OPENED = {
    **LETTER,
    "task": {"kind": "python", "name": "send_invoice"},
    "payload": {"to": "ünknown"},
    "execution": {
        "stdout": "looking\n",
        "stderr": "not found\nat all\n",
        "attempts": [
            {"attempt": 1, "outcome": "timed_out", "error": None},
            {"attempt": 2, "outcome": "failed", "error": LETTER["error"]},
        ],
    },
}
STARTED = {
    "execution_id": NEW_ID, "job_id": JOB_ID, "status": "queued", "cause": "replay", "source_id": ID, "attempt": 0,
}  # fmt: skip
SETTLED = {**OPENED, "status": "discarded", "note": "gone", "settled_at": "2026-02-01T09:00:00.000Z"}


@pytest.fixture
def other() -> Iterator[OtherSide]:
    with OtherSide() as played:
        yield played


def ran(other: OtherSide, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(["dead-letter", *words, "--url", other.url])
    said = capsys.readouterr()
    return code, said.out, said.err


def page(*items: Any, cursor: str | None = None) -> dict[str, Any]:
    return {"items": items, "next_cursor": cursor}


def test_a_list_shows_what_waits_for_a_person(other: OtherSide, capsys: pytest.CaptureFixture[str]) -> None:
    other.will(200, page(LETTER))
    code, out, _ = ran(other, capsys, "list")
    assert code == Exit.OK
    for word in (ID, "invoice", "out_of_attempts", "Trouble: no such customer", "2026-01-31"):
        assert word in out
    assert "and more" not in out
    [asked] = other.asked
    assert asked == ("GET", "/api/v1/dead-letters", {"status": "waiting", "limit": "21"}, None)


def test_an_empty_list_says_so(other: OtherSide, capsys: pytest.CaptureFixture[str]) -> None:
    other.will(200, page())
    code, out, _ = ran(other, capsys, "list", "--status", "replayed")
    assert (code, out) == (Exit.OK, "no dead letters are replayed\n")
    assert other.asked[0][2]["status"] == "replayed"


def test_a_list_says_when_there_is_more(other: OtherSide, capsys: pytest.CaptureFixture[str]) -> None:
    other.will(200, page(LETTER, LETTER, LETTER))
    code, out, _ = ran(other, capsys, "list", "--limit", "2")
    assert code == Exit.OK
    assert (out.count(ID), "--limit 10 shows them" in out) == (2, True)


def test_the_letters_of_a_job_are_asked_for_by_its_name_or_id(
    other: OtherSide, capsys: pytest.CaptureFixture[str]
) -> None:
    other.will(200, page(JOB))
    other.will(200, page(LETTER))
    assert ran(other, capsys, "list", "--job", "invoice")[0] == Exit.OK
    assert other.asked[0][2]["name"] == "invoice"
    assert other.asked[1][2] == {"job_id": JOB_ID, "status": "waiting", "limit": "21"}
    other.will(200, JOB)
    other.will(200, page(LETTER))
    assert ran(other, capsys, "list", "--job", JOB_ID)[0] == Exit.OK
    assert other.asked[2][:2] == ("GET", f"/api/v1/jobs/{JOB_ID}")
    assert other.asked[3] == other.asked[1]


def test_a_list_of_an_unknown_job_ends_with_4(other: OtherSide, capsys: pytest.CaptureFixture[str]) -> None:
    other.will(200, page())
    code, _, err = ran(other, capsys, "list", "--job", "nobody")
    assert (code, "there is no job with the name or id 'nobody'" in err) == (Exit.NOT_FOUND, True)


def test_a_letter_is_shown_with_its_payload_attempts_and_output(
    other: OtherSide, capsys: pytest.CaptureFixture[str]
) -> None:
    other.will(200, OPENED)
    code, out, _ = ran(other, capsys, "show", ID)
    assert code == Exit.OK
    assert other.asked == [("GET", f"/api/v1/dead-letters/{ID}", {}, None)]
    shown = dict(line.split(None, 1) for line in out.splitlines() if len(line.split(None, 1)) == 2)
    assert shown["payload"] == '{"to": "ünknown"}'
    assert shown["task"] == "Python task send_invoice"
    assert (shown["stdout"], shown["stderr"]) == ("looking", "not found")
    assert (shown["1"].strip(), shown["2"].split()) == (
        "timed_out",
        ["failed", "Trouble:", "no", "such", "customer"],
    )
    assert "note" not in shown and "replayed" not in shown


def test_a_letter_whose_history_is_gone_is_shown_all_the_same(
    other: OtherSide, capsys: pytest.CaptureFixture[str]
) -> None:
    error = {"type": "E", "message": "m", "traceback": "Traceback:\n  line 1\n", "exit_code": None}
    other.will(200, {**OPENED, "execution": None, "payload": "x" * 3_000, "error": error})
    code, out, _ = ran(other, capsys, "show", ID)
    assert code == Exit.OK
    assert "x" * 1_900 in out and "x" * 2_000 not in out and "…" in out
    assert out.endswith("\nTraceback:\n  line 1\n")
    assert "stdout" not in out and "outcome" not in out


def test_an_unknown_letter_ends_with_4(other: OtherSide, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("show", "x/../y"), ("replay", "x/../y"), ("discard", "x/../y")):
        other.will(*problem(404, "not_found", "no such dead letter"))
        code, out, err = ran(other, capsys, *words)
        assert (code, out, err) == (Exit.NOT_FOUND, "", "Error: no such dead letter\n")
    assert [one[1] for one in other.asked] == [
        f"/api/v1/dead-letters/x%2F..%2Fy{rest}" for rest in ("", "/replay", "/discard")
    ]


def test_a_replay_says_what_it_started(other: OtherSide, capsys: pytest.CaptureFixture[str]) -> None:
    other.will(202, STARTED)
    code, out, _ = ran(other, capsys, "replay", ID)
    assert code == Exit.OK
    assert f"execution {NEW_ID} is queued" in out
    assert f"detent execution logs {NEW_ID} -f" in out
    assert other.asked == [("POST", f"/api/v1/dead-letters/{ID}/replay", {}, {})]


@pytest.mark.parametrize(
    ("text", "sent"),
    [('{"to": "ops"}', {"to": "ops"}), ("null", None), ("@FILE", [1, 2]), ("-", {"from": "stdin"})],
)
def test_a_replay_can_be_given_another_payload(
    other: OtherSide,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    sent: Any,
) -> None:
    (tmp_path / "payload.json").write_text("[1, 2]")
    monkeypatch.setattr("sys.stdin", io.StringIO('{"from": "stdin"}'))
    given = text.replace("FILE", str(tmp_path / "payload.json"))
    other.will(202, STARTED)
    code, _, _ = ran(other, capsys, "replay", ID, "--payload", given, "--reason", "wrong address")
    assert code == Exit.OK
    assert other.asked[0][3] == {"payload": sent, "reason": "wrong address"}


def test_a_payload_that_is_not_json_asks_nothing(
    other: OtherSide, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = ran(other, capsys, "replay", ID, "--payload", "{broken")
    assert (code, "it is not JSON" in err, other.asked) == (Exit.USAGE, True, [])


def test_a_letter_that_was_settled_ends_with_1_and_says_as_what(
    other: OtherSide, capsys: pytest.CaptureFixture[str]
) -> None:
    said = f"the dead letter was replayed as {NEW_ID}"
    for verb in ("replay", "discard"):
        other.will(*problem(409, "wrong_state", said))
        code, out, err = ran(other, capsys, verb, ID)
        assert (code, out, err) == (Exit.REFUSED, "", f"Error: {said}\n")


def test_what_the_server_refuses_is_told_by_field_with_2(
    other: OtherSide, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = [{"field": "reason", "code": "too_long", "message": "has 2000 characters"}]
    other.will(*problem(422, "too_long", "reason: has 2000 characters", errors))
    code, _, err = ran(other, capsys, "discard", ID, "--reason", "x" * 2_000)
    assert (code, err) == (Exit.USAGE, "Error: reason: has 2000 characters\n")


def test_a_discard_sends_its_reason(other: OtherSide, capsys: pytest.CaptureFixture[str]) -> None:
    other.will(200, SETTLED)
    code, out, _ = ran(other, capsys, "discard", ID, "--reason", "gone")
    assert (code, out) == (Exit.OK, f"dead letter {ID} is discarded\n")
    assert other.asked == [("POST", f"/api/v1/dead-letters/{ID}/discard", {}, {"reason": "gone"})]


def test_json_is_what_the_server_said(other: OtherSide, capsys: pytest.CaptureFixture[str]) -> None:
    for words, status, answer, shown in (
        (("list",), 200, page(LETTER), [LETTER]),
        (("show", ID), 200, OPENED, OPENED),
        (("show", ID), 200, {**OPENED, "payload": "x" * 9_000}, {**OPENED, "payload": "x" * 9_000}),
        (("replay", ID), 202, STARTED, STARTED),
        (("discard", ID), 200, SETTLED, SETTLED),
    ):
        other.will(status, answer)
        code, out, err = ran(other, capsys, *words, "--json")
        assert (code, json.loads(out), err) == (Exit.OK, shown, "")


@pytest.mark.parametrize("command", ["list", "show", "replay", "discard"])
def test_each_command_has_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert run(["dead-letter", command, "-h"]) == Exit.OK
    said = capsys.readouterr().out
    assert f"Usage: detent dead-letter {command} " in said
    assert "--json" in said and "--url" in said
    assert ("--reason" in said) == (command in ("replay", "discard"))
    assert ("--payload" in said) == (command == "replay")


def test_wrong_usage_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["show"], ["replay"], ["discard"], ["list", "--status", "open"], ["list", "--limit", "0"]):
        assert run(["dead-letter", *words]) == Exit.USAGE, words
        assert "See: detent dead-letter" in capsys.readouterr().err


def test_a_server_that_is_not_there_ends_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dead-letter", "list", "--url", "http://127.0.0.1:1"]) == Exit.UNREACHABLE
    assert "Is it running?" in capsys.readouterr().err
