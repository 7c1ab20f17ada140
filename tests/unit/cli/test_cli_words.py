"""What the command line understands and says, without a server."""

from __future__ import annotations

import io
import json
import resource
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest

from detent.cli import inputs, times
from detent.cli.describe import schedule_sentence, schedule_words, task_words
from detent.cli.exits import Exit
from detent.cli.imports import import_tasks
from detent.cli.main import COMMANDS, root, run
from detent.execute.registry import Registry
from detent.model.errors import StartupError

NOBODY = "http://127.0.0.1:1"


def read_duration(text: str) -> float | str | None:
    return inputs.duration(click.Context(click.Command("x")), click.Option(["--every"]), text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("5m", 300), ("5min", 300), ("2h", 7200), ("1d", 86400), ("1h30m", 5400), ("1h 30m", 5400),
     ("45", 45), ("0.5", 0.5), ("250ms", 0.25), ("1w", 604800), ("PT30S", "PT30S"), ("p1d", "P1D")],
)  # fmt: skip
def test_durations_are_written_as_people_do(text: str, seconds: float | str) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5x", "s", "-5s", "five", "5 parsecs", "1h30", "P"])
def test_a_wrong_duration_is_told_what_would_be_right(text: str) -> None:
    with pytest.raises(click.BadParameter, match="30s, 5m, 2h"):
        read_duration(text)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "now"), (42, "in 42 s"), (-3, "3 s ago"), (90, "in 1 min 30 s"), (7200, "in 2 h"),
     (93600, "in 1 d 2 h"), (864000, "in 10 d")],
)  # fmt: skip
def test_relative_times_are_short(seconds: float, words: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert times.relative(now + timedelta(seconds=seconds), now) == words


def test_tasks_and_schedules_have_words() -> None:
    assert task_words({"kind": "python", "name": "a.b"}) == "Python task a.b"
    assert task_words({"kind": "shell", "command": "echo a\necho b"}) == "shell echo a…"
    assert task_words({"kind": "shell", "command": ["echo", "a b"]}) == "program echo 'a b'"
    assert schedule_words({"every": 90.0}) == "every 1 min 30 s"
    assert schedule_words({"cron": "0 9 * * *", "timezone": "Europe/Berlin"}) == "0 9 * * *  Europe/Berlin"
    assert schedule_words({"delay": 0}) == "once, at once"
    assert schedule_words({}) == "on request"
    assert (
        schedule_sentence({"cron": "0 9 * * *", "timezone": "UTC"}) == "every day at 09:00 UTC  (0 9 * * *)"
    )


def test_every_command_teaches_with_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert run([name, "-h"]) == Exit.OK
        assert "Usage: detent" in capsys.readouterr().out


def test_every_command_of_a_group_has_help_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    context = click.Context(root, info_name="detent")
    for group in ("job", "execution"):
        command = root.get_command(context, group)
        assert isinstance(command, click.Group)
        for name in command.commands:
            assert run([group, name, "--help"]) == Exit.OK
            assert "--json" in capsys.readouterr().out


def test_the_top_help_lists_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == Exit.OK
    said = capsys.readouterr().out
    for code in Exit:
        assert f"    {code.value:<4} " in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["job", "create"], "Missing argument 'NAME'"),
        (["job", "create", "a", "b"], "unexpected extra argument"),
        (["job", "create", "a", "--cron", "* * * * *", "--every", "5s"], "--cron and --every exclude"),
        (["job", "create", "a", "--task", "t", "--shell", "x"], "--task and --shell exclude each other"),
        (["job", "create", "a", "--task", "t", "--", "ls"], "--task and -- exclude each other"),
        (["job", "create", "a", "--"], "a program must follow --"),
        (["job", "create", "a", "--delay", "soon"], "'soon' is not a duration"),
        (["job", "create", "a", "--payload", "{broken"], "it is not JSON"),
        (["job", "create", "a", "--payload", "NaN"], "NaN is not JSON"),
        (["job", "create", "a", "--payload", "@/nowhere"], "cannot read /nowhere: No such file"),
        (["job", "create", "a", "--priority", "urgent"], "'critical', 'high', 'normal', 'low'"),
        (["execution", "logs"], "name an execution by its ID, or a job with --job"),
        (["when"], "give a cron expression"),
        (["when", "* * * * *", "--every", "5s"], "give a cron expression"),
        (["when", "61 * * * *"], "outside 0–59"),
        (["when", "* * * *"], "5 are needed"),
        (["when", "* * * * *", "--tz", "Europe/Berln"], "did you mean 'Europe/Berlin'"),
        (["when", "--every", "0s"], "at least 1 is needed"),
        (["when", "* * * * *", "--from", "2026-01-01T00:00"], "does not say in which zone"),
        (["config", "--port", "http"], "--port: is 'http'"),
        (["up", "--host", "0.0.0.0"], "loopback"),
        (["up", "--slots", "0"], "from 1 to 200000"),
    ],
)  # fmt: skip
def test_wrong_usage_ends_with_2_and_one_clear_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == Exit.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert said.err.startswith("Error: ")
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    "words",
    [["job", "list"], ["job", "show", "x"], ["job", "create", "x", "--shell", "true"],
     ["execution", "list"], ["execution", "logs", "--job", "x", "-f"]],
)  # fmt: skip
def test_nobody_at_the_address_ends_with_3_and_says_how_to_start(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--url", NOBODY]) == Exit.UNREACHABLE
    said = capsys.readouterr().err
    assert f"Error: cannot reach {NOBODY}: Connection refused" in said
    assert "detent up" in said


def test_a_role_without_a_database_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scheduler", "--data", str(tmp_path / "none")]) == Exit.REFUSED
    assert "detent up --data" in capsys.readouterr().err


def test_a_check_of_a_folder_that_is_not_there_makes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["migrate", "--check", "--data", str(tmp_path / "none")]) == Exit.REFUSED
    assert not (tmp_path / "none").exists()


def test_a_payload_comes_from_text_file_or_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, option = click.Context(click.Command("x")), click.Option(["--payload"])
    (tmp_path / "p.json").write_text('{"a": "ü"}', encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.StringIO("[1, 2]"))
    read = [inputs.payload(context, option, text) for text in ("null", f"@{tmp_path}/p.json", "-")]
    assert [one.value for one in read if one] == [None, {"a": "ü"}, [1, 2]]
    assert inputs.payload(context, option, None) is None


def test_when_prints_sentence_and_instants(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["when", "0 9 * * *", "--tz", "Europe/Berlin", "--from", "2026-03-28T00:00:00Z", "-n", "3"]
    assert run(words) == Exit.OK
    said = capsys.readouterr().out
    assert said.startswith("Every day at 09:00 Europe/Berlin\n")
    assert "Sat 2026-03-28 09:00:00 CET" in said
    assert "Sun 2026-03-29 09:00:00 CEST" in said
    assert "Sun 2026-03-29 07:00:00" in said
    assert run([*words, "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {
        "sentence": "every day at 09:00 Europe/Berlin",
        "fires": ["2026-03-28T08:00:00.000Z", "2026-03-29T07:00:00.000Z", "2026-03-30T07:00:00.000Z"],
        "marks": {},
        "hints": [],
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--from", "2026-03-28T12:00:00Z"], "in place of 02:30, clocks go from 02:00 to 03:00"),
        (["--from", "2026-03-28T12:00:00Z", "--gap", "skip"], "skipped 02:30, clocks go from 02:00 to 03:00"),
        (["--from", "2026-10-24T12:00:00Z"], "first of two, clocks go from 03:00 back to 02:00"),
        (["--from", "2026-10-24T12:00:00Z", "--fold", "second"], "second of two, clocks go"),
    ],
)
def test_when_marks_what_daylight_saving_does(
    capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert run(["when", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "2", *words]) == Exit.OK
    said = capsys.readouterr().out
    assert "daylight saving" in said
    assert says in said


def test_when_warns_of_day_numbers_that_quartz_counts_differently(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["when", "0 0 9 ? * 2"]) == Exit.OK
    assert "Note: day of week 2 is Tuesday; Quartz" in capsys.readouterr().out


def test_when_counts_intervals_from_its_start(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["when", "--every", "90m", "--from", "2026-01-01T00:00:00Z", "-n", "2", "--json"]
    assert run(words) == Exit.OK
    assert json.loads(capsys.readouterr().out)["fires"] == [
        "2026-01-01T01:30:00.000Z", "2026-01-01T03:00:00.000Z",
    ]  # fmt: skip


def test_config_shows_where_a_setting_came_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETENT_DATABASE", "postgresql://u:secret@h/db")
    assert run(["config", "--port", "9000", "--json"]) == Exit.OK
    said = capsys.readouterr().out
    shown = json.loads(said)
    assert shown["port"] == {"value": 9000, "from": "flag"}
    assert shown["database"] == {"value": "postgresql://u:***@h/db", "from": "DETENT_DATABASE"}
    assert run(["config"]) == Exit.OK
    assert "secret" not in said + capsys.readouterr().out


def test_modules_are_imported_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cli_words_tasks.py").write_text("LOADED = True\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    import_tasks(["cli_words_tasks"])
    assert sys.modules.pop("cli_words_tasks").LOADED


def test_every_module_that_cannot_be_imported_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cli_words_raises.py").write_text("\nraise RuntimeError('no licence')\n")
    (tmp_path / "cli_words_syntax.py").write_text("def broken(:\n")
    (tmp_path / "cli_words_needs.py").write_text("import cli_words_nowhere_else\n")
    (tmp_path / "cli_words_script.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    with pytest.raises(StartupError) as refused:
        import_tasks([f"cli_words_{name}" for name in ("none", "raises", "syntax", "needs", "script")])
    said = str(refused.value)
    assert "cannot import cli_words_none: no such module" in said
    assert "cannot import cli_words_raises: RuntimeError: no licence" in said
    assert "cli_words_raises.py, line 2" in said
    assert "cannot import cli_words_syntax: SyntaxError" in said
    assert said.count("cli_words_syntax.py") == 1
    assert "cannot import cli_words_script: it ends the program (exit code 3)" in said
    assert "cannot import cli_words_needs: No module named 'cli_words_nowhere_else'" in said


def test_modules_without_any_task_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cli_words_bare.py").write_text("def report(): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr("detent.execute.registry.default_registry", Registry())
    import_tasks([])
    assert caplog.messages == []
    import_tasks(["cli_words_bare"])
    assert caplog.messages == ["cli_words_bare: no task is registered there; a task is a function with @task"]
    del sys.modules["cli_words_bare"]


@pytest.mark.parametrize("words", [["when", "0 9 * * *"], ["job", "list", "--url", NOBODY]])
def test_light_commands_do_not_import_the_heavy_parts(words: list[str]) -> None:
    """Start-up time in a form that does not depend on the machine."""
    script = (
        "import sys\nfrom detent.cli.main import run\n"
        f"run({words!r})\n"
        "heavy = {'litestar', 'uvicorn', 'asyncpg', 'uvloop', 'aiohttp', 'asyncio', 'msgspec'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_light_commands_start_fast() -> None:
    """0.25 s is the aim. Processor time, the best of a few: what else the machine is doing does not count."""
    took = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "detent", "when", "0 9 * * *"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert 0 < min(took) < 0.5
