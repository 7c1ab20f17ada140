"""The database's clock as a node keeps it: exact, deaf to the local clock, and slow to believe a jump."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from detent.runtime import clock as clocks
from detent.runtime.clock import CONFIRM_SECONDS, DRIFT_PPM, Clock

SECOND = 1_000_000_000
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTES = timedelta(minutes=10)
SECOND_AHEAD = timedelta(seconds=1)


class World:
    """The monotonic clock, the local wall clock and the database's, each moved by the test."""

    def __init__(self) -> None:
        self.monotonic = 5_000 * SECOND
        self.wall_off = timedelta(0)
        self.database = START
        self.trip = timedelta(milliseconds=1)

    def monotonic_ns(self) -> int:
        return self.monotonic

    def time_ns(self) -> int:
        return _ns(self.database + self.wall_off)

    def passes(self, time: timedelta) -> None:
        self.monotonic += int(time.total_seconds() * 1e9)
        self.database += time

    async def read(self) -> int:
        self.passes(self.trip / 2)
        answer = _ns(self.database) // 1000
        self.passes(self.trip / 2)
        return answer

    def error_of(self, clock: Clock) -> timedelta:
        return clock.now() - self.database


def _ns(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(clocks, "time", world)
    return world


@pytest.fixture
async def clock(world: World) -> Clock:
    clock = Clock()
    for _ in range(3):
        await clock.sample(world.read)
        world.passes(timedelta(seconds=2))
    return clock


async def sample_for(clock: Clock, world: World, seconds: float, every: float = 0.5) -> None:
    """So many seconds with a sample at the end of each half of one."""
    for _ in range(round(seconds / every)):
        world.passes(timedelta(seconds=every))
        await clock.sample(world.read)


async def test_it_tells_the_databases_time_and_not_the_machines(world: World) -> None:
    world.wall_off = timedelta(hours=1)
    clock = Clock()
    assert world.error_of(clock) == timedelta(hours=1)  # until the first sample there is nothing better
    await clock.sample(world.read)
    assert abs(world.error_of(clock)) < timedelta(milliseconds=1)
    assert clock.steady
    assert round(clock.skew_ms) == 3_600_000
    world.wall_off = timedelta(hours=-1)  # somebody sets the machine's clock while we run
    assert abs(world.error_of(clock)) < timedelta(milliseconds=1)
    assert round(clock.skew_ms) == -3_600_000


async def test_the_sample_with_the_shortest_trip_is_believed(world: World) -> None:
    clock = Clock()

    async def slow_on_the_way_back() -> int:
        answer = await world.read()
        world.passes(timedelta(milliseconds=400))
        return answer

    await clock.sample(slow_on_the_way_back)
    assert world.error_of(clock) < timedelta(milliseconds=-150)
    await clock.sample(world.read)
    assert abs(world.error_of(clock)) < timedelta(milliseconds=1)
    await clock.sample(slow_on_the_way_back)
    assert abs(world.error_of(clock)) < timedelta(milliseconds=1)
    assert clock.steady


@pytest.mark.parametrize("back", [0.0, 0.5, 1.0])
async def test_what_waits_until_it_is_certain_is_never_early_and_late_by_one_trip_at_most(
    world: World, back: float
) -> None:
    """Wherever on its way the database read its clock, and however the two clocks drift apart after that."""
    clock = Clock()

    async def lopsided() -> int:
        world.passes(world.trip * (1 - back))
        answer = await world.read()
        world.passes(world.trip * back)
        return answer

    for _ in range(3):
        await clock.sample(lopsided)
    world.passes(timedelta(seconds=20))
    drift = timedelta(seconds=20) * (DRIFT_PPM - 1) / 1_000_000
    for drifted in (-drift, 2 * drift):
        world.database += drifted
        at = world.database + SECOND_AHEAD
        wait = timedelta(microseconds=(clock.certain_ns(_ns(at) // 1000) - world.monotonic) / 1000)
        assert timedelta(0) <= wait - SECOND_AHEAD <= 2 * world.trip + 2 * drift


async def test_a_drift_is_followed_without_doubt(clock: Clock, world: World) -> None:
    for _ in range(60):
        world.database += timedelta(milliseconds=200)
        await sample_for(clock, world, 0.5)
        assert clock.steady
    assert abs(world.error_of(clock)) < timedelta(seconds=2)
    assert clock.jumps == 0


@pytest.mark.parametrize("jump", [MINUTES, -MINUTES, timedelta(seconds=6), timedelta(seconds=-6)])
async def test_a_jump_is_doubted_and_the_clock_runs_on(clock: Clock, world: World, jump: timedelta) -> None:
    before = clock.now()
    world.database += jump
    await clock.sample(world.read)
    assert not clock.steady
    assert round(clock.doubted_ms / 1000) == jump.total_seconds()
    await sample_for(clock, world, CONFIRM_SECONDS - 1)
    assert not clock.steady
    passed = clock.now() - before
    assert timedelta(seconds=8) < passed < timedelta(seconds=11)  # as if nothing had happened
    assert clock.jumps == 0


@pytest.mark.parametrize("jump", [MINUTES, -MINUTES])
async def test_a_jump_is_confirmed_once_samples_have_agreed_for_ten_seconds(
    clock: Clock, world: World, jump: timedelta
) -> None:
    world.database += jump
    await sample_for(clock, world, CONFIRM_SECONDS + 1)
    assert clock.steady
    assert clock.jumps == 1
    assert clock.doubted_ms == 0
    assert abs(world.error_of(clock)) < timedelta(milliseconds=1)
    await sample_for(clock, world, 5)  # samples from before the jump are forgotten
    assert clock.steady and clock.jumps == 1
    assert abs(world.error_of(clock)) < timedelta(milliseconds=1)


async def test_time_alone_confirms_nothing_it_takes_another_sample(clock: Clock, world: World) -> None:
    world.database += MINUTES
    await clock.sample(world.read)
    world.passes(timedelta(minutes=5))
    assert not clock.steady
    await clock.sample(world.read)
    assert clock.steady and clock.jumps == 1


async def test_a_single_wild_sample_that_goes_back_does_nothing(clock: Clock, world: World) -> None:
    for wild in (MINUTES, -MINUTES, timedelta(days=400)):
        world.database += wild
        await clock.sample(world.read)
        assert not clock.steady
        world.database -= wild
        await clock.sample(world.read)
        assert clock.steady
        assert clock.jumps == 0
        assert abs(world.error_of(clock)) < timedelta(milliseconds=1)


async def test_samples_that_disagree_with_each_other_start_the_wait_again(clock: Clock, world: World) -> None:
    for _ in range(4):
        world.database += MINUTES
        await sample_for(clock, world, CONFIRM_SECONDS - 1)
        assert not clock.steady
    assert clock.jumps == 0
    await sample_for(clock, world, 2)
    assert clock.steady and clock.jumps == 1
    assert abs(world.error_of(clock)) < timedelta(milliseconds=1)


async def test_going_back_and_forth_never_confirms(clock: Clock, world: World) -> None:
    for _ in range(30):
        world.database += MINUTES
        await sample_for(clock, world, 1)
        world.database -= MINUTES
        await sample_for(clock, world, 1)
    assert clock.steady and clock.jumps == 0


async def test_a_slow_answer_is_not_a_jump(clock: Clock, world: World) -> None:
    """Ten seconds on the way: what it says may be that old, so it proves nothing."""
    world.trip = timedelta(seconds=20)
    await clock.sample(world.read)
    assert clock.steady
    assert abs(world.error_of(clock)) < timedelta(milliseconds=1)


async def test_the_first_sample_is_believed_whatever_the_machine_says(world: World) -> None:
    world.wall_off = timedelta(days=-3650)
    clock = Clock()
    await clock.sample(world.read)
    assert clock.steady
    assert abs(world.error_of(clock)) < timedelta(milliseconds=1)


async def test_an_instant_has_its_place_on_the_monotonic_clock(clock: Clock, world: World) -> None:
    at = world.database + timedelta(seconds=3)
    assert clock.monotonic_of(at) == pytest.approx(world.monotonic / 1e9 + 3, abs=0.001)
