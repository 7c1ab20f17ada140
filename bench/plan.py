"""What is measured, in which order: a raw limit and the peers stand right before what is held against them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from bench import (
    api,
    attempts,
    chain,
    drain,
    fire,
    lateness,
    pipeline,
    plain,
    raw,
    snapshot,
    stored,
    takeover,
)
from bench.peers import catalogue
from bench.step import Step
from detent.store.embedded import Embedded

RATES = (100, 1667)
SNAPSHOT_RATE = 1000


def plan(server: Embedded, options: Namespace, folder: Path) -> Iterator[Step]:
    wanted = set(options.scenarios)
    peers = not options.no_peers
    log = server.data / "postgres.log"
    if "drain" in wanted:
        if peers:
            yield from catalogue.drains(options, folder)
        for _ in range(options.rounds):
            yield from _drain(options, folder)
    for _ in range(options.rounds):
        if "fire" in wanted:
            yield Step("raw_fire", lambda url: fire.measure_raw(url, options.timers))
            yield Step("fire", lambda url: fire.measure(url, options.timers, folder), raw="raw_fire")
        if "pipeline" in wanted:
            yield Step("raw_pipeline", lambda url: pipeline.measure_raw(url, options.timers))
            yield Step(
                "pipeline", lambda url: pipeline.measure(url, options.timers, folder), raw="raw_pipeline"
            )
    if "lateness" in wanted:
        if peers:
            yield from catalogue.lateness(options, folder)
        for rate in RATES:
            yield from _lateness(rate, options.seconds, folder)
    if "burst" in wanted:
        if peers:
            yield from catalogue.bursts(options, folder)
        yield Step("burst", lambda url: lateness.burst(url, options.burst, folder))
        yield Step("burst_schedules", lambda url: lateness.schedules_at_once(url, options.schedules, folder))
    if "attempts" in wanted:
        n, hold = options.attempts, options.hold
        yield Step("attempts_async", lambda url: attempts.measure_async(url, n, hold, folder, log))
        yield Step("attempts_http", lambda url: attempts.measure_http(url, folder))
    if "api" in wanted:
        yield Step("api", lambda url: api.measure(url, options.api_seconds, folder))
    if "takeover" in wanted:
        yield Step("takeover", lambda url: takeover.measure(url, options.takeovers, folder), limit=1200)
    if "snapshot" in wanted:
        seconds = options.snapshot
        yield Step(
            "snapshot",
            lambda url: snapshot.measure(url, SNAPSHOT_RATE, seconds, folder, log),
            limit=seconds + 200,
        )
    if "stored" in wanted:
        yield from _stored(options, folder)
    if "peers" in wanted and peers:
        yield from catalogue.drains(options, folder)
        yield from catalogue.lateness(options, folder)
        yield from catalogue.bursts(options, folder)


def _drain(options: Namespace, folder: Path) -> Iterator[Step]:
    n = options.n
    yield Step("plain_queue", lambda url: plain.measure(url, n))
    yield Step("raw_claim_close", lambda url: raw.measure(url, n), raw="plain_queue")
    yield Step("drain_1", lambda url: drain.measure(url, n, 1, folder), raw="raw_claim_close")
    yield Step("drain_2", lambda url: drain.measure(url, n, 2, folder), raw="raw_claim_close")


def _lateness(rate: int, seconds: float, folder: Path) -> Iterator[Step]:
    if rate <= chain.MOST_PER_SECOND:
        yield Step(f"raw_lateness_{rate}", lambda url: chain.measure_raw(url, rate, seconds))
    yield Step(
        f"lateness_{rate}",
        lambda url: lateness.measure(url, rate, seconds, folder),
        raw=f"raw_lateness_{RATES[0]}",
    )


def _stored(options: Namespace, folder: Path) -> Iterator[Step]:
    jobs, rate, timers = options.jobs, options.fires, options.timers
    yield Step("lateness_few", lambda url: stored.lateness_small(url, rate, folder))
    yield Step(
        "stored",
        lambda url: stored.measure(url, jobs, rate, timers, folder),
        limit=300 + jobs / 5000,
    )
