"""What a person should know: alerts are raised once, count up and are resolved; a clock in doubt stops firing
and rescuing, and says so."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from detent.finish import rescuer as rescuers
from detent.fire.firer import IN_DOUBT, Firer
from detent.model.errors import StoreUnavailable
from detent.observe import clockwatch
from detent.observe.clockwatch import ClockWatch
from detent.runtime import clock as clocks
from detent.runtime.clock import Clock
from detent.store import timers
from detent.store.alerts import open_alerts, raise_alert, resolve_alert
from detent.store.database import Database
from detent.store.sql import Queries
from stage import HOUR, MINUTE, TENANT, Stage, unreliable

queries = Queries.load()
MINUTES = timedelta(minutes=10)


async def alerts(stage: Stage, kind: str) -> list[tuple[str, int, bool]]:
    """Subject, how often it was raised, whether it is open."""
    rows = await stage.db.fetch(
        "select subject, times, resolved_at is null as open from detent.alerts where kind = $1 order by alert_id",
        kind,
    )
    return [tuple(row) for row in rows]


# Alerts


async def test_an_alert_that_is_raised_again_counts_up_and_keeps_its_instant(stage: Stage) -> None:
    for message in ("first", "second", "third"):
        await raise_alert(stage.db, "odd", "it", message)
    await raise_alert(stage.db, "odd", "another", "one")
    other, alert = await open_alerts(stage.db, TENANT, 10)
    assert (other.subject, other.times) == ("another", 1)
    assert (alert.kind, alert.subject, alert.message, alert.times) == ("odd", "it", "third", 3)
    assert alert.raised_at < alert.last_at
    assert await open_alerts(stage.db, TENANT + 1, 10) == []


async def test_a_resolved_alert_is_not_open_and_the_next_one_is_new(stage: Stage) -> None:
    await raise_alert(stage.db, "odd", "it", "first")
    await resolve_alert(stage.db, "odd", "it")
    await resolve_alert(stage.db, "odd", "it")  # nothing more to resolve
    assert await open_alerts(stage.db, TENANT, 10) == []
    await raise_alert(stage.db, "odd", "it", "again")
    [alert] = await open_alerts(stage.db, TENANT, 10)
    assert (alert.times, alert.message) == (1, "again")
    assert await alerts(stage, "odd") == [("it", 1, False), ("it", 1, True)]


async def test_the_newest_open_alerts_are_read_first_and_no_more_than_asked(stage: Stage) -> None:
    for number in range(5):
        await raise_alert(stage.db, "odd", str(number), "message")
    await resolve_alert(stage.db, "odd", "3")
    assert [alert.subject for alert in await open_alerts(stage.db, TENANT, 3)] == ["4", "2", "1"]


# The clock


class Shifted:
    """The database's clock as it would be read if it had been set. What the test shifts is what the samples
    see; the server itself keeps the time it has.
    """

    def __init__(self) -> None:
        self.by = timedelta(0)

    async def clock_us(self, database: Database) -> int:
        return await timers.clock_us(database) + self.by // timedelta(microseconds=1)


@pytest.fixture
def shifted(monkeypatch: pytest.MonkeyPatch) -> Shifted:
    shifted = Shifted()
    monkeypatch.setattr(clockwatch, "timers", shifted)
    return shifted


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second sample that agrees is enough."""
    monkeypatch.setattr(clocks, "CONFIRM_SECONDS", 0.0)


@pytest.mark.parametrize("jump", [MINUTES, -MINUTES])
@pytest.mark.usefixtures("at_once")
async def test_a_jump_raises_an_alert_that_its_confirmation_resolves(
    stage: Stage, shifted: Shifted, jump: timedelta
) -> None:
    jumped: list[bool] = []
    watch = ClockWatch(stage.db, stage.clock, lambda: jumped.append(stage.clock.steady))
    assert await watch.run_once() is None
    assert await alerts(stage, "clock_jump") == []
    shifted.by = jump
    assert await watch.run_once() == clockwatch.IN_DOUBT
    [alert] = [one for one in await open_alerts(stage.db, TENANT, 10) if one.kind == "clock_jump"]
    assert alert.subject == "database"
    assert f"{jump.total_seconds():+.1f} s" in alert.message
    assert jumped == []
    assert await watch.run_once() is None
    assert await alerts(stage, "clock_jump") == [("database", 1, False)]
    assert jumped == [True]


async def test_a_jump_that_goes_on_is_told_once(stage: Stage, shifted: Shifted) -> None:
    watch = ClockWatch(stage.db, stage.clock)
    shifted.by = MINUTES
    for _ in range(5):
        await watch.run_once()
    assert await alerts(stage, "clock_jump") == [("database", 1, True)]


async def test_a_wild_sample_that_goes_back_resolves_its_alert_and_replans_nothing(
    stage: Stage, shifted: Shifted
) -> None:
    jumped: list[int] = []
    watch = ClockWatch(stage.db, stage.clock, lambda: jumped.append(1))
    shifted.by = -MINUTES
    await watch.run_once()
    shifted.by = timedelta(0)
    await watch.run_once()
    assert await alerts(stage, "clock_jump") == [("database", 1, False)]
    assert jumped == []


@pytest.mark.usefixtures("at_once")
async def test_an_alert_about_the_clock_that_could_not_be_written_is_written_by_the_next_tick(
    stage: Stage, shifted: Shifted
) -> None:
    jumped: list[int] = []
    watch = ClockWatch(stage.db, stage.clock, lambda: jumped.append(1))
    await watch.run_once()
    shifted.by = MINUTES
    watch._database = failing(stage, queries.raise_alert)
    with pytest.raises(StoreUnavailable):
        await watch.run_once()
    assert await alerts(stage, "clock_jump") == []
    shifted.by = -MINUTES  # disagrees with the first one: still in doubt
    watch._database = stage.db
    await watch.run_once()
    assert await alerts(stage, "clock_jump") == [("database", 1, True)]

    watch._database = failing(stage, queries.resolve_alert)
    with pytest.raises(StoreUnavailable):
        await watch.run_once()
    assert await alerts(stage, "clock_jump") == [("database", 1, True)]
    watch._database = stage.db
    await watch.run_once()
    assert await alerts(stage, "clock_jump") == [("database", 1, False)]
    assert jumped == [1]


def failing(stage: Stage, statement: str) -> Any:
    class Failing:
        async def execute(self, query: str, *args: Any) -> str:
            if query == statement:
                raise StoreUnavailable("the test says so")
            return await stage.db.execute(query, *args)

        def __getattr__(self, name: str) -> Any:
            return getattr(stage.db, name)

    return Failing()


async def test_an_alert_that_a_process_left_behind_is_resolved_by_the_next_one(stage: Stage) -> None:
    host = clockwatch.platform.node()
    await raise_alert(stage.db, "clock_jump", "database", "left behind")
    await raise_alert(stage.db, "clock_skew", host, "left behind")
    await raise_alert(stage.db, "clock_skew", "elsewhere", "not ours")
    await ClockWatch(stage.db, stage.clock).run_once()
    assert [alert.subject for alert in await open_alerts(stage.db, TENANT, 10)] == ["elsewhere"]


async def test_a_machine_whose_clock_is_off_raises_an_alert_until_it_is_right(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = clockwatch.platform.node()
    off = 0.0
    monkeypatch.setattr(Clock, "skew_ms", property(lambda self: off))
    watch = ClockWatch(stage.db, stage.clock)
    await watch.run_once()
    assert await alerts(stage, "clock_skew") == []
    off = -3_600_000.0
    await watch.run_once()
    await watch.run_once()
    assert await alerts(stage, "clock_skew") == [(host, 1, True)]
    [alert] = await open_alerts(stage.db, TENANT, 10)
    assert "-3600000 ms off the database's" in alert.message
    off = 20.0
    await watch.run_once()
    assert await alerts(stage, "clock_skew") == [(host, 1, False)]
    assert stage.clock.steady  # the machine's clock is nobody's clock


# Firing and rescuing while the clock is in doubt


async def clock_off_by(stage: Stage, off: timedelta) -> Clock:
    """A clock that runs as the database's did before it jumped by the opposite of this."""
    clock = Clock()

    async def read() -> int:
        return await timers.clock_us(stage.hot) + off // timedelta(microseconds=1)

    await clock.sample(read)
    return clock


async def firer_with(stage: Stage, clock: Clock) -> Firer:
    firer = await stage.firer()
    return Firer(stage.hot, clock, firer._node, stage.notifier)


async def sample(stage: Stage, clock: Clock) -> None:
    await clock.sample(lambda: timers.clock_us(stage.hot))


async def ledger(stage: Stage, job_id: UUID) -> Counter[Any]:
    """How often each instant of an hourly job was decided."""
    decided: Counter[Any] = Counter()
    for row in await stage.rows("fires", job_id):
        at = row["nominal_at"]
        while at <= (row["through_at"] or row["nominal_at"]):
            decided[at] += 1
            at += HOUR
    return decided


@pytest.mark.usefixtures("at_once")
async def test_a_leap_ahead_fires_nothing_until_it_is_confirmed_and_then_each_instant_once(
    stage: Stage,
) -> None:
    clock = await clock_off_by(stage, -5 * HOUR)  # it will have jumped five hours ahead
    hourly = await stage.every(3600, first_ago=4 * HOUR + MINUTE)
    once = await stage.once(ago=HOUR)
    firer = await firer_with(stage, clock)
    await firer.run_once()
    assert firer.fired == 0  # five hours ago nothing was due

    await sample(stage, clock)
    assert not clock.steady
    before = await stage.everything()
    assert await firer.run_once() == IN_DOUBT
    assert await stage.everything() == before

    await sample(stage, clock)
    assert clock.steady
    firer.clock_jumped()
    for _ in range(3):
        await firer.run_once()
    assert firer.fired == 2
    assert len(await stage.rows("live", once)) == len(await stage.rows("live", hourly)) == 1
    assert sorted((await ledger(stage, hourly)).values()) == [1] * 5
    assert sorted((await ledger(stage, once)).values()) == [1]


@pytest.mark.usefixtures("at_once")
async def test_a_leap_back_fires_nothing_twice_and_nothing_early(stage: Stage) -> None:
    hourly = await stage.every(3600, first_ago=MINUTE)
    assert await stage.fire() == 1
    clock = await clock_off_by(stage, MINUTES)  # it will have jumped ten minutes back
    soon = await stage.job(stage.now() + 5 * MINUTE, scheduled_at=stage.now() + 5 * MINUTE)
    firer = await firer_with(stage, clock)
    before = await stage.everything()
    await firer.run_once()
    assert await stage.everything() == before  # due on its own clock, not on the database's
    assert not clock.steady  # and it asked why nothing was fired
    assert await firer.run_once() == IN_DOUBT
    await sample(stage, clock)
    assert clock.steady
    firer.clock_jumped()
    for _ in range(3):
        wait = await firer.run_once()
        assert wait is not None
    assert wait > 0  # it waits for the instant instead of asking for it again and again
    assert await stage.everything() == before
    assert firer._wheel.next_due() is None  # five minutes are beyond the horizon
    assert sorted((await ledger(stage, hourly)).values()) == [1]
    assert await stage.rows("fires", soon) == []


async def test_a_wild_sample_only_delays_a_fire(stage: Stage) -> None:
    job_id = await stage.once()
    firer = await stage.firer()

    async def wild() -> int:
        return stage.clock.now_us() + 600_000_000

    await stage.clock.sample(wild)
    assert await firer.run_once() == IN_DOUBT
    assert firer.fired == 0
    await sample(stage, stage.clock)
    await firer.run_once()
    assert firer.fired == 1
    assert (await stage.row("live", job_id))["state"] == "queued"


class Monotonic:
    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at


async def status_of(stage: Stage, worker_id: UUID) -> str:
    status: str = await stage.db.fetchval("select status from detent.workers where worker_id = $1", worker_id)
    return status


async def test_nobody_is_rescued_while_the_clock_is_in_doubt(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monotonic = Monotonic()
    monkeypatch.setattr(rescuers, "time", monotonic)
    worker_id, _ = await stage.running()
    await stage.db.execute("update detent.workers set beat_at = clock_timestamp() - interval '10 minutes'")
    rescuer = stage.rescuer()
    await rescuer.run_once()

    async def wild() -> int:
        return stage.clock.now_us() + 600_000_000

    await stage.clock.sample(wild)
    before = await stage.everything()
    for _ in range(60):
        monotonic.at += 1
        await rescuer.run_once()
    assert await status_of(stage, worker_id) == "live"
    assert await stage.everything() == before

    await sample(stage, stage.clock)
    for _ in range(20):
        monotonic.at += 1
        await rescuer.run_once()
    assert await status_of(stage, worker_id) == "live"  # the time in doubt does not count
    for _ in range(12):
        monotonic.at += 1
        await rescuer.run_once()
    assert await status_of(stage, worker_id) == "lost"


async def test_a_worker_that_died_before_the_clock_was_set_back_is_rescued_all_the_same(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monotonic = Monotonic()
    monkeypatch.setattr(rescuers, "time", monotonic)
    dead, claim = await stage.running()
    alive = await stage.worker()
    await stage.db.execute("update detent.workers set beat_at = clock_timestamp() + interval '10 minutes'")
    rescuer = stage.rescuer()
    await rescuer.run_once()
    for second in range(31):
        monotonic.at += 1
        if second % 10 == 0:
            await stage.db.execute(queries.beat_worker, alive, 0, None, 0)
        await rescuer.run_once()
    assert await status_of(stage, dead) == "lost"
    assert await status_of(stage, alive) == "live"
    assert (await stage.row("live", claim.job_id))["state"] == "queued"


async def test_a_lost_answer_about_present_workers_condemns_nobody_in_doubt(stage: Stage) -> None:
    """A clock in doubt is asked first: the store is not even read."""
    rescuer = stage.rescuer()
    rescuer._database = unreliable(stage.db, queries.present_workers)

    async def wild() -> int:
        return stage.clock.now_us() - 600_000_000

    await stage.clock.sample(wild)
    assert await rescuer.run_once() is None
