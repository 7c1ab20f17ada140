"""`/`: the whole at a glance."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

from detent.api.pages import tables, words
from detent.api.pages.markup import Child, Markup, el, join
from detent.api.pages.parts import badge, job_link, quiet, section
from detent.model.execution import Execution
from detent.model.ids import SHARDS
from detent.model.job import Job
from detent.store.alerts import Alert
from detent.store.stats import CAP, CAP_IN_A_SHARD, Fleet, Overview

DEFAULT_ADDRESS = "http://127.0.0.1:8642"
SHOWN_ALERTS = 5
_ALERTS = {
    "parked": "A job is parked",
    "dead_letter": "Dead letters wait",
    "clock_jump": "The database's clock jumped",
    "clock_skew": "A clock is off",
}
_OPEN = ("running", "queued", "retrying", "held")
_JOBS = ("scheduled", "running", "paused", "completed", "failed", "cancelled")
_CLOSED = ("succeeded", "failed", "timed_out", "dead_lettered", "cancelled", "skipped")


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that the page shows, read at `now`."""

    now: datetime
    address: str
    figures: Overview
    upcoming: Sequence[Mapping[str, Any]]
    executions: Sequence[Execution]
    names: Mapping[UUID, str]
    jobs: Sequence[Job]


def content(seen: Seen) -> Markup:
    return join(
        el("h1", "Overview"),
        warnings(seen.figures.fleet, seen.figures.alerts, seen.names),
        _figures(seen.figures),
        _first_job(seen.address) if not seen.jobs else _lists(seen),
    )


def warnings(
    fleet: Fleet, alerts: Sequence[Alert] = (), names: Mapping[UUID, str] = MappingProxyType({})
) -> Markup:
    """What keeps jobs from happening, and what to do about it."""
    found: list[Markup] = []
    if fleet.read_only:
        found.append(_warning("The database takes no writes", "It is a replica, or it was set read-only."))
    if fleet.shards_leased == 0:
        found.append(
            _warning("Nobody fires", "No scheduler is running: schedules stand still.", "detent scheduler")
        )
    elif fleet.shards_leased < SHARDS:
        told = f"Schedulers hold {fleet.shards_leased} of {SHARDS} shards: jobs of the others wait."
        found.append(_warning("Not every shard is held", told, "detent scheduler"))
    if fleet.workers_live == 0:
        found.append(_warning("Nobody works", "No worker is running: what is fired waits.", "detent worker"))
    found.extend(_alert(one, names) for one in alerts[:SHOWN_ALERTS])
    if len(alerts) > SHOWN_ALERTS:
        found.append(_warning("And more", f"{len(alerts) - SHOWN_ALERTS} further alerts are open."))
    return el("div", found, class_="warnings") if found else join()


def _alert(one: Alert, names: Mapping[UUID, str]) -> Markup:
    title = _ALERTS.get(one.kind, one.kind)
    about = None
    if one.job_id is not None:
        about = join(" See ", job_link(one.job_id, names.get(one.job_id)), ".")
    return el("p", el("strong", title), " ", one.message, ".", about, class_="warning", role="note")


def jobs_named(ran: Iterable[Execution], alerts: Sequence[Alert]) -> set[UUID]:
    """The jobs that the page calls by their names."""
    told = (one.job_id for one in alerts[:SHOWN_ALERTS])
    return {one.job_id for one in ran} | {job_id for job_id in told if job_id is not None}


def _warning(title: str, told: str, command: str | None = None) -> Markup:
    cure = join(" Start one with ", el("code", command), ".") if command else None
    return el("p", el("strong", title), " ", told, cure, class_="warning", role="note")


def _figures(one: Overview) -> Markup:
    fleet = one.fleet
    most_due = CAP_IN_A_SHARD * SHARDS
    cards = (
        _card("Jobs", _total(one.jobs.values()), _parts(one.jobs, _JOBS, "/jobs")),
        _card("Open executions", _total(one.open.values()), _parts(one.open, _OPEN, "/executions")),
        _card(
            "Closed, last hour",
            _total(one.closed_last_hour.values()),
            _parts(one.closed_last_hour, _CLOSED, "/executions"),
        ),
        _card(
            "Due, next hour",
            words.count(one.due_next_hour, most_due),
            [_part(el("span", "next minute"), words.count(one.due_next_minute, most_due))],
        ),
        _card(
            "Workers",
            f"{fleet.workers_live:,}",
            [
                _part(el("span", "slots"), f"{fleet.slots_live:,}"),
                _part(el("span", "shards"), f"{fleet.shards_leased}/{SHARDS}"),
            ],
        ),
    )
    return el("section", el("h2", "Figures", class_="unseen", id="figures"), cards, aria_labelledby="figures",
              class_="figures")  # fmt: skip


def _card(title: str, figure: str, parts: Child) -> Markup:
    return el("div", el("h3", title), el("p", figure, class_="figure"), el("ul", parts), class_="card")


def _parts(counts: Mapping[str, int], order: Iterable[str], where: str) -> list[Markup]:
    shown = [status for status in order if counts.get(status)]
    return [
        _part(el("a", badge(status), href=f"{where}?status={status}"), words.count(counts[status], CAP))
        for status in shown
    ] or [el("li", el("span", "none", class_="quiet"))]


def _part(label: Markup, figure: str) -> Markup:
    return el("li", label, " ", el("b", figure))


def _total(counts: Iterable[int]) -> str:
    found = list(counts)
    return f"{sum(found):,}" + ("+" if any(one >= CAP for one in found) else "")


def _lists(seen: Seen) -> Markup:
    now = seen.now
    ran = (
        tables.executions("Recent executions, newest first", seen.executions, now, seen.names)
        if seen.executions
        else quiet("Nothing has run yet.")
    )
    upcoming = (
        tables.upcoming("Jobs that fire next", seen.upcoming, now)
        if seen.upcoming
        else quiet("Nothing is scheduled: every job is paused, over, or run by hand.")
    )
    all_executions = el("a", "All executions", href="/executions")
    all_jobs = el("a", "All jobs", href="/jobs")
    return join(
        el(
            "div",
            section("Recent executions", ran, aside=all_executions),
            section("Next fires", upcoming),
            class_="columns",
        ),
        section("Newest jobs", tables.jobs("Newest jobs", seen.jobs, now), aside=all_jobs),
    )


def _first_job(address: str) -> Markup:
    where = "" if address == DEFAULT_ADDRESS else f" --url {shlex.quote(address)}"
    command = f"detent job create hello --shell 'echo hello' --every 10s{where}"
    body = '{"name": "hello", "task": {"kind": "shell", "command": "echo hello"}, "every": 10}'
    target = shlex.quote(f"{address}/api/v1/jobs")
    curl = f"curl {target} \\\n  -H 'content-type: application/json' \\\n  -d '{body}'"
    return section(
        "Your first job",
        el("p", "There are no jobs yet. This makes one that says hello every ten seconds:"),
        el("pre", command, tabindex=0, role="region", aria_label="A first job, by the command line"),
        el("p", "The same over HTTP:"),
        el("pre", curl, tabindex=0, role="region", aria_label="A first job, over HTTP"),
        el("p", "This page shows it as soon as it is there, and what it does from then on.", class_="quiet"),
        kind="first",
    )
