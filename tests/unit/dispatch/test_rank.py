"""Where claims begin to look: never past what may still come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from detent.dispatch.rank import (
    COMMIT_US,
    HEAD_START,
    HIGHEST,
    LOOK_AGAIN_US,
    LOWEST,
    Bounds,
    Range,
    rank_floor,
)

NOW = 1_800_000_000_000_000
SECOND = 1_000_000
NORMAL = 2


def low_of(bounds: Bounds, now_us: int, klass: int = NORMAL) -> int:
    return next(r.low for r in bounds.ranges(now_us, 10) if r.klass == klass)


def test_the_first_claim_looks_at_everything() -> None:
    for found in Bounds().ranges(NOW, 10):
        assert (found.low, found.high, found.most) == (LOWEST, HIGHEST, 10)


def test_after_a_claim_that_took_all_the_next_begins_just_before_it() -> None:
    bounds = Bounds()
    bounds.took([], NOW, all_of_it=True)
    assert low_of(bounds, NOW + SECOND) == rank_floor(NORMAL, NOW - COMMIT_US)


def test_after_a_claim_that_left_some_the_next_begins_at_the_last_one_taken() -> None:
    bounds = Bounds()
    last = rank_floor(NORMAL, NOW - 60 * SECOND) + 7
    bounds.took([(NORMAL, last - 5), (NORMAL, last)], NOW, all_of_it=False)
    assert low_of(bounds, NOW) == last
    assert low_of(bounds, NOW, klass=0) == LOWEST


def test_a_row_that_was_taken_ahead_of_its_instant_moves_the_bound_only_up_to_now() -> None:
    bounds = Bounds()
    bounds.took([(NORMAL, rank_floor(NORMAL, NOW + 3 * SECOND))], NOW, all_of_it=False)
    assert low_of(bounds, NOW + 10 * SECOND) == rank_floor(NORMAL, NOW - COMMIT_US)


def test_a_clock_that_was_set_back_moves_the_bound_back() -> None:
    bounds = Bounds()
    bounds.took([], NOW, all_of_it=True)
    earlier = NOW - 600 * SECOND
    assert low_of(bounds, earlier) == rank_floor(NORMAL, earlier - COMMIT_US)


def ahead_of(bounds: Bounds, now_us: int) -> Range:
    return next(r for r in bounds.ahead(now_us, 4, 3 * SECOND) if r.klass == NORMAL)


def test_claims_ahead_look_from_just_before_now_to_the_end_of_the_lead() -> None:
    found = ahead_of(Bounds(), NOW)
    assert found == (NORMAL, rank_floor(NORMAL, NOW - COMMIT_US), rank_floor(NORMAL, NOW + 3 * SECOND), 4)


def test_what_comes_due_between_a_claim_and_a_claim_ahead_is_seen_by_one_of_them() -> None:
    bounds = Bounds()
    [due] = [r for r in bounds.ranges(NOW, 10) if r.klass == NORMAL]
    ahead = ahead_of(bounds, NOW + COMMIT_US)
    assert ahead.low <= rank_floor(NORMAL, NOW) < due.high


def test_a_claim_ahead_begins_behind_the_last_one_and_now_and_then_at_the_start() -> None:
    bounds = Bounds()
    ahead_of(bounds, NOW)
    taken = rank_floor(NORMAL, NOW + SECOND) + 7
    bounds.took_ahead([(NORMAL, taken), (NORMAL, taken - 3)])
    assert ahead_of(bounds, NOW + SECOND // 10).low == taken + 1
    assert ahead_of(bounds, NOW + LOOK_AGAIN_US).low == rank_floor(NORMAL, NOW + LOOK_AGAIN_US - COMMIT_US)
    assert ahead_of(bounds, NOW + LOOK_AGAIN_US).low < taken


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-3600, 3600)), max_size=20),
    st.integers(0, 10),
    st.booleans(),
)
def test_what_is_queued_after_a_claim_is_seen_by_the_next(
    claimed: list[tuple[int, int]], later: int, all_of_it: bool
) -> None:
    bounds = Bounds()
    bounds.took(
        [(klass, rank_floor(klass, NOW + at * SECOND)) for klass, at in claimed], NOW, all_of_it=all_of_it
    )
    now = NOW + later * SECOND
    for found in bounds.ranges(now, 10):
        for queued_at in (NOW, now):
            assert found.low <= rank_floor(found.klass, queued_at) < found.high


def test_nothing_that_comes_much_later_goes_before_the_lowest_class() -> None:
    lowest = rank_floor(len(HEAD_START) - 1, NOW)
    for klass, seconds in enumerate(HEAD_START):
        assert rank_floor(klass, NOW + seconds * SECOND) >= lowest
        assert klass == len(HEAD_START) - 1 or rank_floor(klass, NOW + (seconds - 1) * SECOND) < lowest
