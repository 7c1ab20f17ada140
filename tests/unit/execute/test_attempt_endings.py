"""How attempts end, seen through a worker that runs them."""

from __future__ import annotations

import asyncio
import contextvars
import decimal
import threading
import time

import msgspec
import pytest
from scripted_port import ScriptedPort, claim_of, until, working

from detent.execute.ending import MESSAGE_LIMIT, TRACEBACK_LIMIT, NonRetryable
from detent.execute.registry import Registry
from detent.model.job import RESULT_LIMIT, ShellTask
from detent.model.work import Finished


@pytest.fixture
def registry() -> Registry:
    return Registry()


async def ended(registry: Registry, *claims, **settings) -> list[Finished]:
    """Run claims to their recorded ends, in the order of the claims."""
    port = ScriptedPort(claims)
    async with working(port, registry, **settings):
        await until(lambda: len(port.finished) == len(claims), 20)
    order = {claim.execution_id: n for n, claim in enumerate(claims)}
    return sorted(port.finished, key=lambda f: order[f.claim.execution_id])


async def end_of(registry: Registry, function, payload: str = "null", timeout: float = 60.0) -> Finished:
    registry.register("it", function)
    (finished,) = await ended(registry, claim_of("it", payload, timeout))
    return finished


async def test_what_a_coroutine_returns_is_the_result(registry):
    async def double(payload):
        await asyncio.sleep(0)
        return {"twice": payload * 2}

    finished = await end_of(registry, double, "21")
    assert (finished.outcome, finished.result, finished.error) == ("succeeded", '{"twice":42}', None)
    assert finished.started_at <= finished.finished_at


async def test_a_plain_function_runs_in_a_thread(registry):
    finished = await end_of(registry, lambda: threading.current_thread().name)
    assert finished.outcome == "succeeded"
    assert "detent-task" in finished.result


async def test_nothing_returned_is_no_result(registry):
    assert (await end_of(registry, lambda: None)).result is None


async def test_a_plain_wrapper_around_a_coroutine_is_awaited(registry):
    async def inner():
        return 7

    assert (await end_of(registry, lambda: inner())).result == "7"


@pytest.mark.parametrize(
    "value", [object(), {1, object()}, float, lambda: 1, "\udcff"], ids=lambda value: type(value).__name__
)
async def test_a_result_that_is_not_json_fails_and_says_so(registry, value):
    finished = await end_of(registry, lambda: value)
    assert (finished.outcome, finished.error.type) == ("failed", "ResultNotJson")
    assert type(value).__qualname__ in finished.error.message
    assert not finished.retryable


async def test_a_result_of_64_kib_fits_and_one_byte_more_does_not(registry):
    registry.register("fits", lambda: "x" * (RESULT_LIMIT - 2))
    registry.register("exceeds", lambda: "x" * (RESULT_LIMIT - 1))
    fits, exceeds = await ended(registry, claim_of("fits"), claim_of("exceeds"))
    assert (fits.outcome, len(fits.result)) == ("succeeded", RESULT_LIMIT)
    assert (exceeds.outcome, exceeds.error.type) == ("failed", "ResultTooLarge")
    assert "65,537 bytes" in exceeds.error.message


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
async def test_an_exception_is_told_with_the_users_frames_only(registry, is_async):
    def break_it():
        raise LookupError("no such customer")

    async def breaks():
        break_it()

    finished = await end_of(registry, breaks if is_async else break_it)
    assert (finished.outcome, finished.retryable) == ("failed", True)
    assert (finished.error.type, finished.error.message) == ("LookupError", "no such customer")
    assert "break_it" in finished.error.traceback
    assert "detent/execute" not in finished.error.traceback


async def test_nonretryable_says_that_trying_again_would_not_help(registry):
    class Unpayable(NonRetryable): ...

    async def pay():
        raise Unpayable("account closed")

    finished = await end_of(registry, pay)
    assert (finished.outcome, finished.retryable, finished.error.message) == (
        "failed",
        False,
        "account closed",
    )


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), StopIteration(1), BaseException("odd")], ids=repr
)
async def test_whatever_user_code_raises_fails_its_attempt_only(registry, error, is_async):
    def raises():
        raise error

    async def raises_async():
        raise error

    registry.register("bad", raises_async if is_async else raises)
    registry.register("good", lambda: "fine")
    bad, good = await ended(registry, claim_of("bad"), claim_of("good"), slots=1)
    assert bad.outcome == "failed"
    assert good.result == '"fine"'


async def test_hostile_errors_are_bounded_and_storable(registry):
    class Hostile(Exception):
        def __str__(self):
            raise RuntimeError("not telling")

    def deep(n):
        return deep(n - 1) if n else 1 / 0

    registry.register("hostile", lambda: (_ for _ in ()).throw(Hostile()))
    registry.register("long", lambda: (_ for _ in ()).throw(ValueError("a\0b\udcff" * 1_000_000)))
    registry.register("deep", lambda: deep(500))
    hostile, long, deep_one = await ended(registry, claim_of("hostile"), claim_of("long"), claim_of("deep"))
    assert "cannot be shown" in hostile.error.message
    assert len(long.error.message) < MESSAGE_LIMIT + 100
    assert "\0" not in long.error.message + long.error.traceback
    msgspec.json.encode(long.error)
    assert len(long.error.traceback) < TRACEBACK_LIMIT + 100
    assert deep_one.error.traceback.rstrip().endswith("ZeroDivisionError: division by zero")
    assert len(deep_one.error.traceback) < TRACEBACK_LIMIT + 100


async def test_an_unknown_task_is_told_what_would_help(registry):
    (finished,) = await ended(registry, claim_of("billing.invoice"))
    assert (finished.outcome, finished.retryable, finished.error.type) == ("released", True, "UnknownTask")
    assert "'billing.invoice'" in finished.error.message
    assert "--import" in finished.error.message


async def test_a_payload_that_is_not_json_fails_its_attempt(registry):
    finished = await end_of(registry, lambda payload: None, "{nope")
    assert (finished.outcome, finished.error.type) == ("failed", "DecodeError")


async def test_a_coroutine_past_its_timeout_is_cancelled(registry):
    cleaned = []

    async def slow():
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(True)

    started = time.monotonic()
    finished = await end_of(registry, slow, timeout=0.1)
    assert (finished.outcome, finished.error.type) == ("timed_out", "Timeout")
    assert "0.1 s" in finished.error.message
    assert cleaned
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("turns_into", ["success", "error"])
async def test_a_timeout_stays_one_whatever_the_handler_makes_of_the_cancellation(registry, turns_into):
    async def slow():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if turns_into == "error":
                raise ValueError("instead") from None
            return "managed"

    finished = await end_of(registry, slow, timeout=0.05)
    assert (finished.outcome, finished.result) == ("timed_out", None)


async def test_the_users_own_timeouts_and_cancellations_are_not_the_workers(registry):
    async def own_timeout():
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    async def own_cancel():
        asyncio.current_task().cancel()
        await asyncio.sleep(60)

    async def pending_cancel():
        asyncio.current_task().cancel()

    async def group():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(0))
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
        return "fine"

    for function in (own_timeout, own_cancel, pending_cancel, group):
        registry.register(function.__name__, function)
    names = ["own_timeout", "own_cancel", "group", "pending_cancel", "group"]
    endings = await ended(registry, *map(claim_of, names), slots=1)
    assert [f.outcome for f in endings] == ["failed", "failed", "succeeded", "succeeded", "succeeded"]
    assert endings[0].error.type == "TimeoutError"
    assert endings[1].error.type == "CancelledError"


async def test_a_thread_past_its_timeout_is_left_behind_and_its_result_ignored(registry, caplog):
    go_on = threading.Event()
    seen = []

    def stuck(ctx):
        go_on.wait(20)
        seen.append((ctx.cancelled, ctx.still_mine()))
        ctx.log("too late")
        return "too late"

    registry.register("stuck", stuck)
    registry.register("next", lambda: "ran")
    port = ScriptedPort([claim_of("stuck", timeout=0.1)])
    async with working(port, registry, slots=1) as worker:
        await until(lambda: port.finished)
        assert port.finished[0].outcome == "timed_out"
        port.waiting.append(claim_of("next"))
        worker.wake()
        await until(lambda: len(port.finished) == 2)  # its slot is free again
        go_on.set()
        await until(lambda: seen and worker._threads.abandoned == 0)
    assert seen == [(True, False)]
    assert [f.outcome for f in port.finished] == ["timed_out", "succeeded"]
    assert not port.chunks
    assert "left behind" in caplog.text


async def test_a_program_past_its_timeout_is_ended_and_keeps_its_output(registry):
    port = ScriptedPort([claim_of(ShellTask("echo begun; sleep 60"), timeout=0.3)])
    async with working(port, registry):
        await until(lambda: port.finished)
    assert port.finished[0].outcome == "timed_out"
    assert port.text("stdout") == "begun\n"


async def test_logged_lines_are_stored_before_the_end_is_recorded(registry):
    async def talks(ctx):
        ctx.log("from the loop")
        await asyncio.to_thread(ctx.log, "from a thread")

    registry.register("talks", talks)
    registry.register("threaded", lambda ctx: ctx.log({"n": 1}))
    port = ScriptedPort([claim_of("talks"), claim_of("threaded"), claim_of(ShellTask("echo shell"))])
    async with working(port, registry):
        await until(lambda: len(port.finished) == 3)
    assert sorted(port.text("log").splitlines()) == ["from a thread", "from the loop", "{'n': 1}"]
    for finished in port.finished:
        about = [what for what, whose in port.story if whose == finished.claim.execution_id]
        assert about[-1] == "finish"
        assert "log" in about


async def test_context_variables_do_not_leak_into_the_next_attempt(registry):
    colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")

    async def paints():
        before = colour.get()
        colour.set("red")
        decimal.getcontext().prec = 3
        await asyncio.sleep(0)
        return before

    def paints_in_a_thread():
        before = colour.get()
        colour.set("red")
        return before

    registry.register("async", paints)
    registry.register("thread", paints_in_a_thread)
    endings = await ended(registry, *(claim_of(name) for name in ["async", "thread"] * 10), slots=1)
    assert {f.result for f in endings} == {'"none"'}
