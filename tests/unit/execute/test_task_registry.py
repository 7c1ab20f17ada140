from __future__ import annotations

import functools

import pytest
from scripted_port import AT, claim_of

import detent.sdk.task as sdk
from detent.execute.context import Context
from detent.execute.registry import Registry
from detent.model.errors import Conflict, InvalidInput


def context(payload: str = '{"n": 3}') -> Context:
    return Context(
        claim_of("any", payload), open_output=lambda claim: None, trusted=lambda: True, tell=lambda told: None
    )  # type: ignore[arg-type,return-value]


def called(function):
    ctx = context()
    return Registry().register("any", function).call(ctx), ctx


def test_a_function_without_parameters_is_given_nothing():
    assert called(lambda: "ran")[0] == "ran"


def test_one_parameter_is_the_payload_whatever_it_is_called():
    assert called(lambda order: order)[0] == {"n": 3}


def test_two_parameters_are_the_payload_and_the_context():
    result, ctx = called(lambda order, rest: (order, rest))
    assert result == ({"n": 3}, ctx)


def test_a_parameter_called_ctx_gets_the_context_alone():
    result, ctx = called(lambda ctx: ctx)
    assert result is ctx


def test_a_parameter_annotated_context_gets_it_in_any_position():
    def swapped(about: Context, order):
        return about, order

    def alone(about: sdk.Context):
        return about

    def named(order, *, about: Context):
        return order, about

    def behind(order, limit=5, ctx=None):
        return order, limit, ctx

    result, ctx = called(swapped)
    assert result == (ctx, {"n": 3})
    result, ctx = called(alone)
    assert result is ctx
    result, ctx = called(named)
    assert result == ({"n": 3}, ctx)
    result, ctx = called(behind)
    assert result == ({"n": 3}, 5, ctx)


def test_parameters_with_defaults_keep_them():
    assert called(lambda order, retries=4: (order, retries))[0] == ({"n": 3}, 4)
    assert called(lambda order=None: order)[0] == {"n": 3}


@pytest.mark.parametrize(
    "function",
    [lambda a, b, c: None, lambda a, *, b: None, lambda ctx, a, b: None],
    ids=["three", "keyword", "context-and-two"],
)
def test_what_cannot_be_filled_is_refused_when_it_is_registered(function):
    with pytest.raises(InvalidInput, match=r"requires '[bc]'"):
        Registry().register("any", function)


def test_generators_are_refused():
    def numbers(payload):
        yield payload

    async def more(payload):
        yield payload

    for function in (numbers, more):
        with pytest.raises(InvalidInput, match="generator"):
            Registry().register("any", function)


def test_whether_a_function_is_async_is_seen_through_partials_and_objects():
    async def plain(payload): ...

    class Called:
        async def __call__(self, payload): ...

    registry = Registry()
    assert registry.register("a", plain).is_async
    assert registry.register("b", functools.partial(plain)).is_async
    assert registry.register("c", Called()).is_async
    assert not registry.register("d", lambda payload: None).is_async


def test_another_function_under_a_taken_name_is_refused_and_names_both():
    def first(): ...
    def second(): ...

    registry = Registry()
    registry.register("report", first)
    registry.register("report", first)
    with pytest.raises(Conflict, match=r"'report'.*first.*second") as refused:
        registry.register("report", second)
    assert refused.value.code == "duplicate_task"
    assert registry.names() == ("report",)


def test_a_module_imported_twice_registers_its_functions_twice_without_complaint(tmp_path):
    source = tmp_path / "jobs.py"
    source.write_text("def report(payload):\n    return 1\n")
    registry = Registry()
    for name in ("jobs", "__main__"):
        module: dict[str, object] = {"__name__": name}
        exec(compile(source.read_text(), str(source), "exec"), module)
        registry.register("report", module["report"])  # type: ignore[arg-type]
    assert len(registry) == 1


def test_the_decorator_leaves_the_function_as_it_is():
    registry = Registry()

    @sdk.task("billing.invoice", registry=registry)
    def invoice(payload):
        return payload * 2

    assert invoice(21) == 42
    assert registry.get("billing.invoice").function is invoice  # type: ignore[union-attr]


def test_the_bare_decorator_uses_the_functions_own_name():
    @sdk.task
    async def registry_test_cleanup(): ...

    @sdk.task()
    def registry_test_sweep(): ...

    assert sdk.default_registry.get("registry_test_cleanup").is_async  # type: ignore[union-attr]
    assert not sdk.default_registry.get("registry_test_sweep").is_async  # type: ignore[union-attr]


def test_a_lambda_needs_a_name():
    with pytest.raises(InvalidInput, match="no name"):
        sdk.task(lambda: None)


def test_the_context_tells_about_its_attempt():
    ctx = context('["a"]')
    assert (ctx.attempt, ctx.token, ctx.scheduled_for, ctx.payload) == (1, 7, AT, ["a"])
    assert not ctx.cancelled
    assert ctx.still_mine()
