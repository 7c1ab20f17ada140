"""The commands about jobs and executions, and the Client, against a running system."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from systems import Up, clean_environment, until

from detent import Client, ClientError
from detent.store.embedded import discard, temporary_folder

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    folder = temporary_folder("detent-cli-")
    system = Up(folder, ("--import", "tasks"), EXAMPLES)
    try:
        yield system.ready()
    finally:
        system.end()
        discard(folder)


@pytest.fixture
def client(up: Up) -> Iterator[Client]:
    with Client(up.url) as made:
        yield made


def test_create_says_what_it_made_and_when_it_runs(up: Up) -> None:
    done = up.detent(
        "job", "create", "report", "--task", "send_report", "--cron", "0 9 * * MON-FRI", "--tz", "Europe/Berlin",
        "--payload", '{"to": "a@b"}', "--tag", "x", "--tag", "y", "--timeout", "5m", "--priority", "high",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "every weekday at 09:00 Europe/Berlin" in done.stdout
    assert "Python task send_report" in done.stdout
    assert done.stdout.count("(in ") == 3
    shown = up.json("job", "show", "report")
    assert shown["timeout_seconds"] == 300
    assert shown["tags"] == ["x", "y"]
    assert shown["priority"] == "high"
    assert shown["payload"] == {"to": "a@b"}
    told = up.detent("job", "show", shown["job_id"]).stdout
    assert "every weekday at 09:00 Europe/Berlin" in told
    assert '{"to": "a@b"}' in told


def test_a_program_after_dashes_is_run_without_a_shell(up: Up) -> None:
    words = (
        "job",
        "create",
        "args",
        "--delay",
        "0",
        "--url",
        up.url,
        "--",
        "printf",
        "%s|",
        "a b",
        "$HOME",
        "-x",
    )
    done = subprocess.run(
        [sys.executable, "-m", "detent", *words], capture_output=True, text=True, env=clean_environment()
    )
    assert done.returncode == 0, done.stderr
    until(lambda: up.json("execution", "list", "--job", "args", "--status", "succeeded"))
    assert up.detent("execution", "logs", "--job", "args").stdout.rstrip("\n") == "a b|$HOME|-x|"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--shell", "true", "--cron", "61 * * * *"), "cron: minute: '61' is outside 0–59"),
        (("--shell", "true", "--cron", "* * * * *", "--tz", "Mars/Base"), "timezone: 'Mars/Base'"),
        (("--shell", "true", "--at", "2026-01-01T00:00"), "scheduled_at: "),
        (("--shell", "true", "--every", "100ms"), "every: is 0.1 seconds, at least 1 is needed"),
    ],
)
def test_what_the_server_refuses_is_told_by_field_with_2(
    up: Up, words: tuple[str, ...], message: str
) -> None:
    done = up.detent("job", "create", "wrong", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_all_wrong_fields_are_told_at_once(up: Up) -> None:
    done = up.detent("job", "create", "wrong", "--cron", "bad", "--tz", "Mars/Base")
    assert done.returncode == 2
    assert "Error: 2 things are wrong:" in done.stderr


def test_an_unknown_job_ends_with_4(up: Up) -> None:
    for words in (("job", "show", "nobody"), ("job", "run", "01998c2e-5c7a-7b3e-9f00-0123456789ab"),
                  ("execution", "show", "01998c2e-5c7a-8b3e-9f00-0123456789ab"),
                  ("execution", "logs", "--job", "nobody")):  # fmt: skip
        done = up.detent(*words)
        assert done.returncode == 4, (words, done.stdout, done.stderr)
        assert done.stderr.startswith("Error: ")


def test_a_job_that_has_not_run_says_when_it_will(up: Up) -> None:
    up.json("job", "create", "later", "--shell", "true", "--delay", "1h")
    done = up.detent("execution", "logs", "--job", "later")
    assert done.returncode == 4
    assert "has not run yet; its next run is" in done.stderr


def test_a_name_of_several_jobs_lists_them(up: Up) -> None:
    ids = [up.json("job", "create", "twin", "--shell", "true", "--cron", "0 0 1 1 *")["job_id"] for _ in "ab"]
    done = up.detent("job", "show", "twin")
    assert done.returncode == 2
    assert "2 jobs are called 'twin'" in done.stderr
    assert all(job_id in done.stderr for job_id in ids)
    assert up.detent("job", "cancel", ids[0]).returncode == 0
    assert up.json("job", "show", "twin")["job_id"] == ids[1]


def test_pause_resume_run_cancel(up: Up) -> None:
    up.json("job", "create", "life", "--shell", "echo ran by hand", "--cron", "0 0 1 1 *")
    assert up.json("job", "pause", "life")["status"] == "paused"
    assert up.json("job", "list", "--status", "paused", "--name", "life")[0]["status"] == "paused"
    assert up.json("job", "resume", "life")["status"] == "scheduled"
    ran = up.detent("job", "run", "life", "--wait")
    assert (ran.returncode, ran.stdout) == (0, "ran by hand\n")
    cancelled = up.detent("job", "cancel", "life")
    assert "it is cancelled" in cancelled.stdout
    assert up.json("job", "show", "life")["status"] == "cancelled"
    refused = up.detent("job", "pause", "life")
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: ")


def test_a_failed_run_that_was_waited_for_ends_with_1(up: Up) -> None:
    up.json("job", "create", "fails", "--shell", "echo no; exit 3", "--max-retries", "0")
    ran = up.detent("job", "run", "fails", "--wait")
    assert ran.returncode == 1
    assert ran.stdout == "no\n"
    assert "dead_lettered" in ran.stderr
    shown = up.detent("execution", "show", "--job", "fails")
    assert "exit code 3" in shown.stdout


def test_a_dead_letter_is_found_replayed_with_another_payload_and_discarded(up: Up) -> None:
    up.json("job", "create", "letter", "--task", "add", "--payload", '{"a": 1}', "--max-retries", "0")
    assert up.detent("job", "run", "letter", "--wait").returncode == 1
    [found] = up.json("dead-letter", "list", "--job", "letter")
    shown = up.detent("dead-letter", "show", found["execution_id"]).stdout
    assert '{"a": 1}' in shown and "Python task add" in shown
    payload = ("--payload", '{"a": 20, "b": 22}', "--reason", "b was missing")
    again = up.json("dead-letter", "replay", found["execution_id"], *payload)
    until(lambda: up.json("execution", "show", again["execution_id"])["result"] == 42)
    settled = up.json("dead-letter", "show", found["execution_id"])
    assert (settled["status"], settled["note"]) == ("replayed", "b was missing")
    refused = up.detent("dead-letter", "replay", found["execution_id"])
    assert (refused.returncode, again["execution_id"] in refused.stderr) == (1, True)
    assert up.detent("job", "run", "letter", "--wait").returncode == 1
    [other] = up.json("dead-letter", "list", "--job", "letter")
    assert up.json("dead-letter", "discard", other["execution_id"])["status"] == "discarded"
    assert "no dead letters are waiting" in up.detent("dead-letter", "list", "--job", "letter").stdout


def test_a_deadline_ends_an_execution_with_all_its_retries(up: Up) -> None:
    words = ("--shell", "exit 1", "--deadline", "2s", "--retry-delay", "1h", "--max-retries", "5")
    assert up.json("job", "create", "hasty", *words)["deadline_seconds"] == 2
    assert up.detent("job", "run", "hasty", "--wait").returncode == 1
    [found] = up.json("dead-letter", "list", "--job", "hasty")
    assert found["reason"] == "deadline"
    wrong = up.detent("job", "create", "hasty", "--deadline", "400d")
    assert (wrong.returncode, "deadline_seconds: " in wrong.stderr) == (2, True)


def test_the_fleet_is_shown_as_it_is(up: Up) -> None:
    [node] = up.json("fleet", "nodes")
    assert (node["live"], node["shards"]) == (True, 256)
    assert {one["node_id"] for one in up.json("fleet", "shards")} == {node["node_id"]}
    assert node["node_id"] in up.detent("fleet", "shards").stdout
    [worker] = up.json("fleet", "workers")
    assert worker["stale_writes"] == 0
    assert "stale writes" in up.detent("fleet", "workers").stdout


def test_follow_shows_output_as_it_is_written_and_ends_with_the_execution(up: Up) -> None:
    script = "for i in 1 2 3; do echo line $i; sleep 0.3; done"
    up.json("job", "create", "talks", "--shell", script)
    execution = up.json("job", "run", "talks")["execution_id"]
    done = up.detent("execution", "logs", execution, "-f")
    assert (done.returncode, done.stdout) == (0, "line 1\nline 2\nline 3\n")
    assert up.json("execution", "show", execution)["status"] == "succeeded"


def test_an_execution_can_be_cancelled(up: Up) -> None:
    up.json("job", "create", "sleeper", "--shell", "sleep 600")
    execution = up.json("job", "run", "sleeper")["execution_id"]
    until(lambda: up.json("execution", "show", execution)["status"] == "running")
    assert up.detent("execution", "cancel", execution).returncode == 0
    until(lambda: up.json("execution", "show", execution)["status"] == "cancelled", 30)


def test_lists_say_when_there_is_more(up: Up) -> None:
    for _ in range(3):
        up.json("job", "create", "many", "--shell", "true", "--cron", "0 0 1 1 *", "--tag", "many")
    some = up.detent("job", "list", "--tag", "many", "--limit", "2")
    assert "… and more" in some.stdout
    assert len(up.json("job", "list", "--tag", "many", "--all")) == 3
    assert "no such jobs" in up.detent("job", "list", "--tag", "none").stdout


def test_the_same_key_names_the_same_job(up: Up) -> None:
    words = ("job", "create", "keyed", "--shell", "true", "--cron", "0 0 1 1 *", "--key", "cli-key")
    assert up.json(*words)["job_id"] == up.json(*words)["job_id"]
    other = up.detent("job", "create", "keyed", "--shell", "false", "--key", "cli-key")
    assert other.returncode == 1


def test_a_reader_that_has_seen_enough_is_no_error(up: Up) -> None:
    command = f"{sys.executable} -m detent job list --all --json --url {up.url} | head -c 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=clean_environment())
    assert done.stdout.startswith("[")
    assert done.stderr == ""


def test_the_client_schedules_waits_and_reads(client: Client) -> None:
    done = client.wait(client.enqueue("add", {"a": 20, "b": 22}), timeout=20)
    assert (done.status, done.result) == ("succeeded", 42)
    assert [attempt.outcome for attempt in done.attempts] == ["succeeded"]
    job = client.schedule("add", at=datetime.now(UTC) + timedelta(days=1), payload={"a": 1, "b": 1})
    assert client.job(job.job_id).status == "scheduled"
    ran = client.wait(client.run(job.job_id), timeout=20)
    assert (ran.cause, ran.result) == ("manual", 2)
    assert client.cancel(job.job_id).status == "cancelled"


def test_the_client_says_what_was_wrong(client: Client) -> None:
    with pytest.raises(ClientError) as raised:
        client.schedule("add", cron="bad", timezone="Mars/Base")
    assert raised.value.status == 422
    assert {error.field for error in raised.value.errors} == {"cron", "timezone"}


def test_a_task_that_says_trying_again_is_useless_is_not_tried_again(client: Client) -> None:
    done = client.wait(client.enqueue("send_report", {"to": "nobody"}), timeout=20)
    assert done.status == "dead_lettered"
    assert done.attempt == 1
    assert done.error is not None
    assert done.error["type"] == "NonRetryable"


def test_the_examples_work_as_written(up: Up) -> None:
    environment = clean_environment(DETENT_URL=up.url)
    python = subprocess.run(
        [sys.executable, "first_job.py"],
        cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert python.returncode == 0, python.stderr
    assert "20 + 22 = 42 (succeeded" in python.stdout
    assert "sending the report" in python.stdout
    shell = subprocess.run(
        ["sh", "curl.sh"], cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=60
    )
    assert shell.returncode == 0, shell.stderr
    assert "hello from curl" in shell.stdout


def test_json_is_json_everywhere(up: Up) -> None:
    for words in (("job", "list"), ("execution", "list"), ("config",), ("version",), ("when", "* * * * *")):
        more = ("--url", up.url) if words[0] in ("job", "execution") else ()
        done = subprocess.run(
            [sys.executable, "-m", "detent", *words, *more, "--json"],
            capture_output=True, text=True, env={**clean_environment(), "TERM": os.environ.get("TERM", "")},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)


def test_the_first_jobs_of_the_readme_work_as_written(up: Up) -> None:
    """Only the server's address and the place of the virtual environment are other ones here."""
    section = (
        (ROOT / "README.md")
        .read_text()
        .partition("## A first cron job")[2]
        .partition("Python functions are")[0]
    )
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    create, (logs, run, *_) = blocks[:3], blocks[3:]

    def typed(block: str) -> str:
        block = block.replace("http://127.0.0.1:8642", up.url).replace(
            ".venv/bin/", f"{Path(sys.executable).parent}/"
        )
        done = subprocess.run(
            ["bash", "-e", "-c", block],
            capture_output=True,
            text=True,
            env=clean_environment(DETENT_URL=up.url),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    for block, name in zip(create, ("hello-curl", "hello-python", "hello-cli"), strict=True):
        typed(block)
        job = up.json("job", "show", name)
        assert (job["status"], job["cron"], job["timezone"]) == ("scheduled", "* * * * *", "Europe/Berlin")
        assert up.detent("job", "run", name, "--wait").returncode == 0
    until(lambda: typed(logs) == "hello from curl\n", what="the output of the latest execution")
    shown = typed(run)
    assert shown.startswith("hello from the terminal\n")
    assert shown.count("succeeded") >= 2
    for block in blocks[5:]:
        assert "Mon" in typed(block)
    for name in ("hello-curl", "hello-python", "hello-cli"):
        assert up.detent("job", "cancel", name).returncode == 0


def test_jobs_are_loaded_from_json_lines_once_however_often(up: Up, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    jobs = [{"name": f"loaded {n}", "cron": "0 0 1 1 *", "tags": ["loaded"], "payload": n} for n in range(25)]
    file.write_text("\n".join(map(json.dumps, jobs[:12])))
    assert up.json("job", "load", str(file), "--batch", "5")["jobs"] == 12
    file.write_text("\n".join(map(json.dumps, jobs)))
    done = up.detent("job", "load", str(file), "--batch", "10")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("25 jobs are there")
    found = {job.name: job.raw["payload"] for job in client.jobs(tag="loaded")}
    assert found == {job["name"]: job["payload"] for job in jobs}
    assert sum(1 for _ in client.jobs(tag="loaded")) == 25


def test_a_wrong_line_of_a_load_is_named_with_its_field(up: Up, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"name": "good", "tags": ["half"]}\n\n{"name": "bad", "crom": "* * * * *"}\n')
    done = up.detent("job", "load", str(file))
    assert done.returncode == 2
    assert "line 3, crom: is no known field; did you mean 'cron'?" in done.stderr
    assert list(client.jobs(tag="half")) == []


def test_many_jobs_are_created_by_the_client(client: Client) -> None:
    bodies = [{"name": f"many {n}", "idempotency_key": f"many {n}"} for n in range(7)]
    made = list(client.create_many(iter(bodies), batch=3))
    assert [job.name for job in made] == [body["name"] for body in bodies]
    assert [job.job_id for job in client.create_many(bodies)] == [job.job_id for job in made]
