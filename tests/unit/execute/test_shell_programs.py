"""Real programs, real process trees."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from pathlib import Path

import pytest
from scripted_port import claim_of, until

from detent.execute.guard import Guard
from detent.execute.output import Output
from detent.execute.shell import ShellExecutor, inherited
from detent.model.job import ShellTask
from detent.runtime.clock import Clock


class Run:
    """Runs one command and keeps what it printed."""

    def __init__(self) -> None:
        self.executor = ShellExecutor({"PATH": os.environ["PATH"], "SECRET": "hidden", "LC_ALL": "C.UTF-8"})
        self.chunks = []

    async def __call__(self, command, payload: str = "null", **task):
        claim = claim_of(ShellTask(command, **task), payload)
        output = Output(claim, Clock(), lambda _: None)
        try:
            return await self.executor.run(claim.spec.task, claim, output)
        finally:
            self.chunks = [*output.close()]

    def text(self, stream: str) -> str:
        return "".join(c.text for c in self.chunks if c.stream == stream)


@pytest.fixture
def run():
    run = Run()
    yield run
    run.executor.close()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def pids(path: Path, count: int) -> list[int]:
    await until(lambda: path.exists() and len(path.read_text().split()) >= count)
    return [int(pid) for pid in path.read_text().split()]


async def test_exit_zero_is_success_and_both_streams_are_kept(run):
    ending = await run("echo out; echo err >&2; printf 'no newline'")
    assert (ending.outcome, ending.result) == ("succeeded", '{"exit_code":0}')
    assert run.text("stdout") == "out\nno newline"
    assert run.text("stderr") == "err\n"


async def test_another_exit_code_fails_with_the_last_error_line(run):
    ending = await run("echo first >&2; echo 'disk full' >&2; exit 3")
    assert ending.outcome == "failed"
    assert ending.retryable
    assert (ending.error.type, ending.error.exit_code) == ("ExitCode", 3)
    assert ending.error.message == "exit code 3: disk full"


async def test_death_by_signal_is_told_as_such(run):
    ending = await run("kill -SEGV $$")
    assert (ending.error.type, ending.error.exit_code) == ("Signal", 139)
    assert "SIGSEGV" in ending.error.message


async def test_a_list_is_run_without_a_shell(run):
    ending = await run(("printf", "%s|", "$HOME; exit 1", "*"))
    assert ending.outcome == "succeeded"
    assert run.text("stdout") == "$HOME; exit 1|*|"


async def test_what_cannot_be_started_says_why(run, tmp_path):
    text = tmp_path / "not-executable"
    text.write_text("hello")
    assert "'no-such-program' was not found" in (await run(("no-such-program",))).error.message
    assert (await run("no-such-program")).error.exit_code == 127
    assert "not-executable" in (await run((str(text),))).error.message
    assert "'/no/such/folder' is not a directory" in (await run("true", cwd="/no/such/folder")).error.message
    for bad in (("echo", "a\0b"), ()):
        assert (await run(bad)).outcome == "failed"
    for env in ({"A=B": "c"}, {"A": "b\0c"}, {"": "x"}):
        assert "environment" in (await run("true", env=env)).error.message
    assert "could not be started" in (await run(("echo", "x" * 3_000_000))).error.message


async def test_the_environment_tells_about_the_attempt_and_keeps_secrets_out(run, tmp_path):
    ending = await run("pwd; env; cat", '{"a": 1}', env={"COLOUR": "blue"}, cwd=str(tmp_path))
    assert ending.outcome == "succeeded"
    told = run.text("stdout")
    assert told.startswith(f"{tmp_path}\n")
    for line in (
        "DETENT_ATTEMPT=1",
        "DETENT_TOKEN=7",
        'DETENT_PAYLOAD={"a": 1}',
        "COLOUR=blue",
        "LC_ALL=C.UTF-8",
    ):
        assert f"{line}\n" in told
    assert "DETENT_SCHEDULED_FOR=2026-01-01T00:00:00Z\n" in told
    assert "DETENT_EXECUTION_ID=" in told
    assert "DETENT_JOB_ID=" in told
    assert "SECRET" not in told
    assert told.endswith('{"a": 1}')


def test_a_worker_without_a_path_still_finds_programs():
    assert inherited({"DETENT_DATABASE": "postgresql://secret"}) == {"PATH": os.defpath}


async def test_a_big_payload_comes_on_standard_input_only(run):
    payload = '"' + "p" * 200_000 + '"'
    ending = await run('test -z "$DETENT_PAYLOAD" && wc -c', payload)
    assert ending.outcome == "succeeded"
    assert run.text("stdout").strip() == "200002"


async def test_a_program_that_never_reads_its_input_is_not_harmed(run):
    assert (await run("exec 0<&-; echo done", '"' + "p" * 250_000 + '"')).outcome == "succeeded"


async def test_a_program_that_closes_its_output_early_is_waited_for(run):
    started = time.monotonic()
    ending = await run("exec 1>&- 2>&-; sleep 0.3; exit 5")
    assert ending.error.exit_code == 5
    assert time.monotonic() - started >= 0.3


async def test_bad_utf8_and_nul_bytes_are_replaced(run):
    await run(r"printf 'a\377b\000c\n'")
    assert run.text("stdout") == "a\ufffdb\ufffdc\n"


async def test_a_hundred_megabytes_pass_in_constant_memory(run):
    await run("echo warm")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ending = await run("head -c 100000000 /dev/zero | tr '\\0' x; echo; echo end")
    assert ending.outcome == "succeeded"
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert growth < 24 * 1024, f"{growth} KiB"
    told = run.text("stdout")
    assert told.endswith("x\nend\n")
    assert "98,951,429 bytes left out" in told
    assert len(told) < 1024 * 1024 + 100


async def test_cancelling_ends_the_whole_tree(run, tmp_path):
    seen = tmp_path / "pids"
    script = f"sh -c 'sleep 300 & echo $! >> {seen}; wait' & echo $! >> {seen}; echo $$ >> {seen}; wait"
    task = asyncio.create_task(run(script))
    tree = await pids(seen, 3)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 2
    assert not any(alive(pid) for pid in tree)


async def test_a_tree_that_ignores_sigterm_is_killed(run, tmp_path):
    seen = tmp_path / "pids"
    loop = "while :; do sleep 1; done"
    script = f"trap '' TERM; (trap '' TERM; {loop}) & echo $! $$ >> {seen}; {loop}"
    task = asyncio.create_task(run(script))
    tree = await pids(seen, 2)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 2.5 < time.monotonic() - started < 8
    assert not any(alive(pid) for pid in tree)


async def test_told_twice_there_is_no_more_patience(run, tmp_path):
    seen = tmp_path / "pids"
    task = asyncio.create_task(run(f"trap '' TERM; echo $$ >> {seen}; while :; do sleep 1; done"))
    (pid,) = await pids(seen, 1)
    started = time.monotonic()
    task.cancel()
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 2.5
    assert not alive(pid)


async def test_a_program_may_clean_up_when_it_is_asked_to_end(run, tmp_path):
    seen = tmp_path / "pids"
    task = asyncio.create_task(
        run(f"trap 'echo cleaned; exit 1' TERM; echo $$ >> {seen}; while :; do sleep 0.1; done")
    )
    await pids(seen, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.text("stdout") == "cleaned\n"


async def test_what_stays_in_the_background_ends_with_the_attempt(run, tmp_path):
    seen = tmp_path / "pids"
    started = time.monotonic()
    ending = await run(f"sleep 300 & echo $! >> {seen}; echo started")
    assert ending.outcome == "succeeded"
    assert run.text("stdout") == "started\n"
    assert time.monotonic() - started < 5
    assert not alive(int(seen.read_text()))


async def test_a_descendant_that_left_the_group_and_keeps_the_pipe_does_not_hold_the_attempt(run, tmp_path):
    seen = tmp_path / "pids"
    daemon = "import os, time; os.setsid(); open({0!r}, 'w').write(str(os.getpid())); time.sleep(300)"
    script = (sys.executable, "-c", f"import os\nif os.fork() == 0:\n  exec({daemon.format(str(seen))!r})")
    started = time.monotonic()
    ending = await run(script)
    (pid,) = await pids(seen, 1)
    os.kill(pid, 9)
    assert ending.outcome == "succeeded"
    assert time.monotonic() - started < 5


async def test_no_descriptor_is_left_open(run):
    await run("true")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        await run("echo x; echo y >&2")
        await run(("no-such-program",))
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


WORKER = """
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from scripted_port import claim_of, until
from detent.execute.output import Output
from detent.execute.shell import ShellExecutor
from detent.model.job import ShellTask
from detent.runtime.clock import Clock

async def main():
    executor = ShellExecutor(os.environ)
    claim = claim_of(ShellTask("sleep 300 & echo $! $$ >> {seen}; wait"))
    output = Output(claim, Clock(), lambda _: None)
    running = asyncio.create_task(executor.run(claim.spec.task, claim, output))
    await until(lambda: executor._guard._groups)
    Path("{seen}.guarded").touch()
    await running

asyncio.run(main())
"""


async def test_programs_die_with_a_worker_that_is_killed(tmp_path):
    seen = tmp_path / "pids"
    code = WORKER.format(here=str(Path(__file__).parent), seen=seen)
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    tree = await pids(seen, 2)
    await until((tmp_path / "pids.guarded").exists)
    assert all(alive(pid) for pid in tree)
    worker.kill()
    await worker.wait()
    try:
        await until(lambda: not any(alive(pid) for pid in tree))
    finally:
        for pid in filter(alive, tree):
            os.kill(pid, 9)


async def test_a_guard_that_is_killed_is_replaced_and_knows_the_groups(tmp_path):
    guard = Guard()
    first, second = [
        await asyncio.create_subprocess_exec("sleep", "300", start_new_session=True) for _ in range(2)
    ]
    guard.begin(first.pid)
    guard._process.kill()
    guard._process.wait()
    guard.begin(second.pid)
    guard.close()  # as if the worker were gone
    await asyncio.wait_for(asyncio.gather(first.wait(), second.wait()), 10)


async def test_the_guard_leaves_alone_what_has_ended(tmp_path):
    guard = Guard()
    spared, ended = [
        await asyncio.create_subprocess_exec("sleep", "300", start_new_session=True) for _ in range(2)
    ]
    for program in (spared, ended):
        guard.begin(program.pid)
    guard.end(spared.pid)
    watched = guard._process
    guard.close()
    await asyncio.wait_for(ended.wait(), 10)
    await asyncio.to_thread(watched.wait, 10)
    assert spared.returncode is None
    spared.kill()
    await spared.wait()
