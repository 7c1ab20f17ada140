"""The run of a torment: warm up, faults by a seed, heal, settle, final read, check.

A fault is a function that harms the running system; the ones that take it down altogether also start it
again. What a run does follows from its seed alone; what comes of it depends on the machine's timing as well.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import asyncpg
from checker import differences
from customer import Acknowledged, Customers, Orders
from killing import Systems, strike
from receiver import Receiver
from settling import caught_up, fleet_is, pause_recurring, shards_are_shared, until_nothing_is_open
from story import Story, ask, read_story
from systems import until

SETTLE_SECONDS = 45.0
WORDS = ("--slots", "20")

Fault = Callable[[Systems, random.Random], None]


def everything(systems: Systems, chance: random.Random) -> None:
    """All processes at once, with or without the programs that workers started."""
    systems.kill_everything(chance, programs=chance.random() < 0.5)
    systems.start(*WORDS).ready()


def everything_twice(systems: Systems, chance: random.Random) -> None:
    """And once more before it is up again."""
    systems.kill_everything(chance, programs=chance.random() < 0.5)
    killed_while_starting(systems, chance)
    systems.start(*WORDS).ready()


def killed_while_starting(systems: Systems, chance: random.Random) -> None:
    systems.start(*WORDS)
    time.sleep(chance.uniform(0.2, 2.0))
    systems.kill_everything(chance, programs=True)


def role(name: str) -> Fault:
    """kill -9 of all processes of one role, or of PostgreSQL, unless it is dead just now."""

    def kill_it(systems: Systems, chance: random.Random) -> None:
        for pid in systems.roles().get(name, ()):
            strike(pid)

    kill_it.__name__ = name
    return kill_it


def backend(systems: Systems, chance: random.Random) -> None:
    """kill -9 of one session of PostgreSQL, which then ends all of them."""
    sessions = sorted(pid for pid, words in systems.family().items() if words.startswith("postgres: detent"))
    if sessions:
        strike(chance.choice(sessions))


def one_of(name: str, how: signal.Signals = signal.SIGKILL) -> Fault:
    """kill -9 of one process of a role, or SIGTERM; the others go on."""

    def strike_it(systems: Systems, chance: random.Random) -> None:
        if pids := sorted(systems.roles().get(name, ())):
            strike(chance.choice(pids), how)

    strike_it.__name__ = f"one {name}" if how == signal.SIGKILL else f"one {name} leaves"
    return strike_it


def stopped(name: str, *, one: bool = False) -> Fault:
    """SIGSTOP of a role, past every lease, and then SIGCONT: it wakes up in a world that went on."""

    def stop_it(systems: Systems, chance: random.Random) -> None:
        pids = systems.roles().get(name, set())
        if one and pids:
            pids = {chance.choice(sorted(pids))}
        systems.zombies |= pids
        for pid in pids:
            strike(pid, signal.SIGSTOP)
        time.sleep(chance.uniform(0.5, 6.0))  # not a wait: how long it stands still is what the seed decides
        for pid in pids:
            strike(pid, signal.SIGCONT)

    stop_it.__name__ = f"{'one ' * one}{name} stands still"
    return stop_it


def terminated(systems: Systems, chance: random.Random) -> None:
    """Some sessions are ended by the server, as an administrator would."""
    share = chance.uniform(0.2, 1.0)
    with contextlib.suppress(OSError, AssertionError, asyncpg.PostgresError):
        ask(
            systems.database,
            "select count(pg_terminate_backend(pid)) from pg_stat_activity"
            " where application_name like 'detent %' and random() < $1::float8",
            share,
        )


def redeployed(systems: Systems, chance: random.Random) -> None:
    """A worker is asked to stop, hands back what it cannot finish, and another takes its place."""
    for pid in systems.roles().get("worker", ()):
        strike(pid, signal.SIGTERM)


PARTS: Sequence[Fault] = (backend, *map(role, ("postgres", "worker", "scheduler", "api", "keeper")))


# What a fleet of several nodes and workers must take in its stride.
SOME: Sequence[Fault] = (
    one_of("scheduler"),
    one_of("scheduler", signal.SIGTERM),
    stopped("scheduler", one=True),
    one_of("worker"),
    one_of("worker", signal.SIGTERM),
    stopped("worker", one=True),
)

ALL: Sequence[Fault] = (
    *PARTS,
    *SOME,
    everything,
    everything_twice,
    terminated,
    redeployed,
    *map(stopped, ("worker", "scheduler", "keeper", "api", "postgres")),
)
BY_NAME = {fault.__name__: fault for fault in ALL}


def for_minutes(minutes: float, seed: int, faults: Sequence[Fault] = ALL) -> Iterator[Fault]:
    """Faults one after the other, each as the seed decides, until the time is over."""
    chance = random.Random(f"faults {seed}")
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        yield chance.choice(faults)


def torment(systems: Systems, seed: int, faults: Iterable[Fault]) -> Story:
    """All of it; answers the story of the run, in which everything agrees."""
    with Receiver() as receiver, systems.explained():
        story = suffer(systems, seed, faults, receiver)
        tell(story)
        found = differences(story)
        assert not found, f"{len(found)} differences:\n" + "\n".join(found[:40])
        runs_on_time(systems, seed)
        systems.stop()
        assert not systems.complaints()
    return story


def suffer(systems: Systems, seed: int, faults: Iterable[Fault], receiver: Receiver) -> Story:
    """From the first start until everything is quiet again."""
    chance = random.Random(seed)
    killed_while_starting(systems, chance)
    systems.start(*WORDS).ready()
    owed = recurring_jobs(systems, seed)
    with Customers(systems.api, seed, systems.witness.path, receiver.url) as customers:
        for fault in faults:
            time.sleep(chance.uniform(0.6, 2.2))  # not a wait: when to kill is what the seed decides
            print(f"{time.strftime('%H:%M:%S')} {fault.__name__}")
            fault(systems, chance)
        time.sleep(chance.uniform(0.5, 1.5))
    story = settle(systems, owed + customers.acknowledged)
    story.runs, story.heard = customers.runs, receiver.heard
    return story


def settle(systems: Systems, owed: list[Acknowledged]) -> Story:
    until(lambda: fleet_is(systems, systems.workers), SETTLE_SECONDS, "a whole fleet of workers")
    until(lambda: shards_are_shared(systems), SETTLE_SECONDS, "an owner for each shard")
    until(lambda: caught_up(systems), SETTLE_SECONDS, "the catching up with all that was due")
    healed_at = time.time()
    paused_at = pause_recurring(systems, owed)
    until_nothing_is_open(systems, SETTLE_SECONDS)
    zombies = frozenset(systems.zombies)
    lines = systems.witness.lines()
    return read_story(
        systems.database, systems.api, owed, paused_at, lines,
        workers=systems.workers, zombies=zombies, healed_at=healed_at,
    )  # fmt: skip


def tell(story: Story) -> None:
    again = sum(job.tries > 1 for job in story.owed)
    print(
        f"{len(story.owed)} jobs, {again} of them asked for again, {len(story.tables['fires'])} ledger rows,"
        f" {len(story.tables['executions'])} executions, {story.losses} attempts lost with"
        f" {sum(row['status'] == 'lost' for row in story.tables['workers'])} workers"
    )


def recurring_jobs(systems: Systems, seed: int) -> list[Acknowledged]:
    orders = Orders(f"{seed}-recurring", systems.witness.path)
    bodies = [*(orders.recurring() for _ in range(5)), *(orders.minutely() for _ in range(2))]
    return [systems.api.create(body) for body in bodies]


def runs_on_time(systems: Systems, seed: int) -> None:
    """A job that is new at the end is not held up by anything that happened before."""
    orders = Orders(f"{seed}-fresh", systems.witness.path)
    job = systems.api.create(orders.plain("fault.looped", delay=1))
    ended = "select count(*) from detent.job_ends where status = 'completed' and job_id = $1"
    until(lambda: ask(systems.database, ended, job.job_id) == 1, 10, "the end of a fresh job")
    (fire,) = systems.api.all(f"/jobs/{job.job_id}/fires")
    (execution,) = systems.api.all(f"/jobs/{job.job_id}/executions")
    assert fire["decision"] == "fired"
    assert execution["attempt"] == 1
    assert 0 <= execution["lateness_ms"] < 1000
