"""The peers: how each is run at its best here, and how many jobs of each kind it gets.

Numbers of jobs are such that a drain takes some seconds. What a peer cannot do has none: it is left out.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.peers import measure
from bench.step import Step

RATE = 100


@dataclass(frozen=True)
class Peer:
    """`kind` names the driver; `left` counts what is still to be done, and `table` is what workers claim from."""

    name: str
    kind: str
    drain: int
    left: str | None = None
    table: str | None = None
    batch: int = 0
    slots: int = 0
    processes: tuple[int, ...] = (1, 2)
    delayed: bool = True
    redis: bool = False
    hears: bool = True  # of jobs that are made while it runs
    lock: str = "exclusive"  # one that its first look at the queue must wait for
    loaded_per_second: int = 500  # delayed jobs that it is sure to make in time


_PGQUEUER = Peer(
    "PgQueuer (batch 100)", "pgqueuer", 100_000, "select count(*) from pgqueuer", "pgqueuer", batch=100
)
PEERS = (
    Peer(
        "Graphile Worker", "graphile", 200_000, "select count(*) from graphile_worker._private_jobs",
        "graphile_worker._private_jobs", batch=500, slots=24,
    ),
    _PGQUEUER,
    replace(_PGQUEUER, name="PgQueuer (batch 10)", batch=10, drain=40_000, delayed=False),
    Peer(
        "Procrastinate", "procrastinate", 8_000,
        "select count(*) from procrastinate_jobs where status <> 'succeeded'", "procrastinate_jobs", slots=20,
    ),
    Peer("Celery on Redis", "celery", 20_000, redis=True),
    Peer(
        "APScheduler 3", "apscheduler", 2_000, "select count(*) from apscheduler_jobs", "apscheduler_jobs",
        processes=(1,), hears=False, lock="access exclusive", loaded_per_second=300,
    ),
)  # fmt: skip


def drains(options: Namespace, folder: Path) -> Iterator[Step]:
    for peer in _chosen(options):
        n = max(50, round(peer.drain * options.peer_share))
        for workers in peer.processes:
            yield _step(f"drain_{workers}", peer, folder, measure.Order(n, workers))


def lateness(options: Namespace, folder: Path) -> Iterator[Step]:
    for peer in _chosen(options):
        if peer.delayed:
            n = round(RATE * options.seconds)
            yield _step(f"lateness_{RATE}", peer, folder, measure.Order(n, 1, rate=RATE, delayed=True))


def bursts(options: Namespace, folder: Path) -> Iterator[Step]:
    for peer in _chosen(options):
        if peer.delayed:
            yield _step("burst", peer, folder, measure.Order(options.burst, 1, delayed=True))


def _step(name: str, peer: Peer, folder: Path, order: measure.Order) -> Step:
    return Step(name, lambda url: measure.measure(url, peer, order, folder), peer=peer.name, migrated=False)


def _chosen(options: Namespace) -> list[Peer]:
    return [
        peer
        for peer in PEERS
        if not options.peer or any(word.lower() in peer.name.lower() for word in options.peer)
    ]
