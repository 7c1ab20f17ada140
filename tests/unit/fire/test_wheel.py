"""The wheel against a sorted list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from detent.fire.wheel import Wheel
from detent.store.timers import DueTimer

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MS = timedelta(milliseconds=1)
US = timedelta(microseconds=1)


def timer(job: int, due_at: datetime, version: int = 1) -> DueTimer:
    return DueTimer(UUID(int=job), 1, due_at, version, 1, job % 256, 1, "{}", NOON)


def test_an_empty_wheel_has_nothing_due() -> None:
    wheel = Wheel()
    assert wheel.next_due() is None
    assert wheel.pop_due(NOON, 10) == []
    assert len(wheel) == 0


def test_what_is_due_comes_out_once_and_what_is_not_stays() -> None:
    wheel = Wheel()
    wheel.insert(timer(1, NOON))
    wheel.insert(timer(2, NOON + MS))
    assert wheel.next_due() == NOON
    assert [t.job_id.int for t in wheel.pop_due(NOON, 10)] == [1]
    assert wheel.pop_due(NOON, 10) == []
    assert wheel.next_due() == NOON + MS
    assert len(wheel) == 1


def test_nothing_is_due_a_microsecond_early() -> None:
    wheel = Wheel()
    wheel.insert(timer(1, NOON + 700 * US))
    wheel.insert(timer(2, NOON + 300 * US))
    assert wheel.next_due() == NOON + 300 * US
    assert wheel.pop_due(NOON + 299 * US, 10) == []
    assert [t.job_id.int for t in wheel.pop_due(NOON + 300 * US, 10)] == [2]
    assert wheel.next_due() == NOON + 700 * US
    assert [t.job_id.int for t in wheel.pop_due(NOON + 700 * US, 10)] == [1]


def test_a_limit_leaves_the_rest_for_the_next_time() -> None:
    wheel = Wheel()
    for job in range(10):
        wheel.insert(timer(job, NOON))
    taken = [wheel.pop_due(NOON, 4) for _ in range(4)]
    assert [len(batch) for batch in taken] == [4, 4, 2, 0]
    assert {t.job_id.int for batch in taken for t in batch} == set(range(10))


def test_a_newer_version_replaces_and_an_older_or_equal_one_does_not() -> None:
    wheel = Wheel()
    wheel.insert(timer(1, NOON, version=5))
    wheel.insert(timer(1, NOON - MS, version=4))
    wheel.insert(timer(1, NOON - MS, version=5))
    assert wheel.next_due() == NOON
    wheel.insert(timer(1, NOON + MS, version=6))
    assert len(wheel) == 1
    assert wheel.pop_due(NOON, 10) == []
    assert wheel.next_due() == NOON + MS


def test_a_removed_timer_does_not_come_up() -> None:
    wheel = Wheel()
    wheel.insert(timer(1, NOON))
    wheel.remove(UUID(int=1))
    wheel.remove(UUID(int=2))
    assert wheel.next_due() is None
    assert wheel.pop_due(NOON + MS, 10) == []


def test_a_timer_that_was_removed_may_come_back_with_any_version() -> None:
    wheel = Wheel()
    wheel.insert(timer(1, NOON, version=9))
    wheel.remove(UUID(int=1))
    wheel.insert(timer(1, NOON, version=3))
    assert [t.version for t in wheel.pop_due(NOON, 10)] == [3]


def test_a_cleared_wheel_starts_over() -> None:
    wheel = Wheel()
    for job in range(5):
        wheel.insert(timer(job, NOON + job * MS))
    wheel.clear()
    assert (len(wheel), wheel.next_due(), wheel.pop_due(NOON + timedelta(days=1), 10)) == (0, None, [])
    wheel.insert(timer(1, NOON))
    assert len(wheel.pop_due(NOON, 10)) == 1


def test_a_count_says_how_many_are_due_until_then() -> None:
    wheel = Wheel()
    for job in range(100):
        wheel.insert(timer(job, NOON + job * 256 * MS))
    assert [wheel.count(NOON + job * 256 * MS) for job in (0, 10, 98, 99, 500)] == [1, 11, 99, 100, 100]
    wheel.remove(UUID(int=5))
    wheel.insert(timer(6, NOON + timedelta(days=1), version=2))
    wheel.pop_due(NOON + 1024 * MS, 100)
    assert wheel.count(NOON + 2560 * MS) == 4
    assert wheel.count(NOON - MS) == 0


def test_what_has_left_leaves_nothing_behind() -> None:
    wheel = Wheel()
    for job in range(1000):
        wheel.insert(timer(job, NOON + job * timedelta(hours=job)))
    for job in range(0, 1000, 2):
        wheel.remove(UUID(int=job))
    assert len(wheel.pop_due(NOON + timedelta(days=100_000), 1000)) == 500
    assert not any((wheel._slot_of, wheel._slots, wheel._counts, *wheel._taken))


def test_instants_before_1970_are_due() -> None:
    wheel = Wheel()
    wheel.insert(timer(1, datetime(1960, 1, 1, tzinfo=UTC)))
    assert len(wheel.pop_due(NOON, 1)) == 1


near = st.integers(0, 12_000).map(lambda us: NOON + us * US)  # twelve slots: many meet in one
apart = st.integers(-(10**9), 10**9).map(lambda ms: NOON + ms * MS)  # a clock that jumps by days
instants = near | apart
jobs = st.integers(0, 15)
steps = st.one_of(
    st.tuples(st.just("insert"), jobs, instants, st.integers(1, 6)),
    st.tuples(st.just("remove"), jobs),
    st.tuples(st.just("pop"), instants, st.integers(1, 5)),
    st.tuples(st.just("next")),
    st.tuples(st.just("count"), instants),
    st.tuples(st.just("clear")),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(steps, max_size=60))
def test_the_wheel_behaves_as_a_sorted_list_does(script: list[tuple[object, ...]]) -> None:
    wheel, model = Wheel(), dict[UUID, DueTimer]()
    for step in script:
        match step:
            case ("insert", int(job), datetime() as due_at, int(version)):
                one = timer(job, due_at, version)
                wheel.insert(one)
                known = model.get(one.job_id)
                if known is None or known.version < version:
                    model[one.job_id] = one
            case ("remove", int(job)):
                wheel.remove(UUID(int=job))
                model.pop(UUID(int=job), None)
            case ("clear",):
                wheel.clear()
                model.clear()
            case ("pop", datetime() as now, int(limit)):
                check_popped(wheel.pop_due(now, limit), model, now, limit)
            case ("count", datetime() as until):
                check_counted(wheel.count(until), model, until)
            case _:
                assert wheel.next_due() == min((t.due_at for t in model.values()), default=None)
        assert len(wheel) == len(model)
    last = NOON + timedelta(days=100)
    check_popped(wheel.pop_due(last, 100), model, last, 100)
    assert not model


def check_counted(counted: int, model: dict[UUID, DueTimer], until: datetime) -> None:
    """All that are due by then, and none that is due a quarter of a second later."""
    assert sum(t.due_at <= until for t in model.values()) <= counted
    assert counted <= sum(t.due_at <= until + 256 * MS for t in model.values())


def check_popped(popped: list[DueTimer], model: dict[UUID, DueTimer], now: datetime, limit: int) -> None:
    """As many as are due, the earliest first (to the millisecond), each as the list has it."""
    due = sorted(t.due_at for t in model.values() if t.due_at <= now)
    assert len(popped) == min(limit, len(due))
    milliseconds = [(t.due_at - NOON) // MS for t in popped]
    assert milliseconds == [(at - NOON) // MS for at in due[: len(popped)]]
    for one in popped:
        assert model.pop(one.job_id) == one
        assert one.due_at <= now
