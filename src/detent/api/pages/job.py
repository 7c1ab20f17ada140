"""`/jobs/{id}`: one job, what comes next, what was decided, what ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

import msgspec

from detent.api.pages import tables, times, words
from detent.api.pages.markup import Child, Markup, el, join
from detent.api.pages.parts import (
    Column,
    Row,
    badge,
    block,
    dash,
    execution_link,
    facts,
    name,
    quiet,
    section,
    table,
)
from detent.model.execution import Execution
from detent.model.job import Job, ShellTask
from detent.store.jobs import Fire
from detent.when.of import rule_of
from detent.when.rule import fires
from detent.when.zone import zone

NEXT_FIRES = 5
LONGEST_FORMATTED = 65_536


@dataclass(frozen=True, slots=True)
class Seen:
    now: datetime
    job: Job
    ledger: Sequence[Fire]
    executions: Sequence[Execution]


def content(seen: Seen) -> Markup:
    job, now = seen.job, seen.now
    parked = None
    if job.parked_reason:
        told = f"Its schedule could not be followed, so it does not fire: {job.parked_reason}"
        parked = el("p", el("strong", "Parked"), " ", told, class_="warning", role="note")
    payload = (
        block(pretty(job.payload), "Payload") if job.payload != "null" else quiet("It is given nothing.")
    )
    ran = (
        tables.executions("The last executions of this job", seen.executions, now)
        if seen.executions
        else quiet("It has not run yet.")
    )
    return join(
        el("p", el("a", "Jobs", href="/jobs"), class_="trail"),
        el(
            "h1",
            name(job.spec.name),
            " ",
            badge("parked" if job.parked_reason else job.status),
            class_="title",
        ),
        el("p", tables.schedule(job, now), class_="lead"),
        parked,
        el(
            "div",
            el("div", section("Next fires", _next(job, now)), section("Payload", payload)),
            section("Definition", _definition(job, now)),
            class_="columns even",
        ),
        section("Executions", ran),
        section("Ledger", _ledger(seen.ledger, now)),
    )


def _next(job: Job, now: datetime) -> Markup:
    if job.next_run_at is None:
        return quiet(_why_never(job))
    try:
        rule = rule_of(job.spec, job.armed_at, job.job_id.int)
        following = islice(fires(rule, job.next_run_at), NEXT_FIRES - 1)
        instants = [job.next_run_at, *following]
        local = zone(job.spec.timezone)
    except words.UNREADABLE:
        instants, local = [job.next_run_at], zone("UTC")
    zoned = job.spec.timezone != "UTC"
    columns = [Column("When"), Column("UTC", "time")]
    if zoned:
        columns.append(Column(job.spec.timezone, "time"))
    rows = [
        Row(
            f"at-{position}",
            (
                times.coming(at, now) if position == 0 else times.relative(at, now),
                times.clock(at, now, UTC),
                *([times.clock(at, now, local)] if zoned else []),
            ),
        )
        for position, at in enumerate(instants)
    ]
    return table("The next instants of this job", columns, rows)


def _why_never(job: Job) -> str:
    if job.parked_reason:
        return "It does not fire while it is parked. Edit its schedule to let it go on."
    match job.status:
        case "paused":
            return "It does not fire while it is paused."
        case "scheduled":
            return "It has no schedule: it runs when somebody asks for it."
        case "running":
            return "Its only instant has been fired, and it is running."
        case _:
            return f"It is over: {job.status}."


def _definition(job: Job, now: datetime) -> Markup:
    spec = job.spec
    task = spec.task
    daylight = f"gap: {words.spaced(spec.dst.gap)}, fold: {spec.dst.fold}" if spec.cron else None
    retries = words.plural(spec.max_retries, "retry").replace("retrys", "retries")
    if spec.max_retries:
        retries += f", {spec.retry_backoff} from {_seconds(spec.retry_delay_seconds)}"
    shell = task if isinstance(task, ShellTask) else None
    return facts(
        [
            (words.task_kind(task), el("code", words.task(task), class_="long")),
            ("Folder", el("code", shell.cwd) if shell and shell.cwd else None),
            ("Environment", el("code", ", ".join(sorted(shell.env))) if shell and shell.env else None),
            ("Cron", el("code", spec.cron) if spec.cron else None),
            ("Zone", spec.timezone if spec.cron else None),
            ("Daylight saving", daylight),
            ("Priority", spec.priority),
            ("Pool", name(spec.pool)),
            ("Tags", tables.tags(spec.tags) if spec.tags else None),
            ("Timeout", _seconds(spec.timeout_seconds)),
            ("Retries", retries),
            ("Out of attempts", "becomes a dead letter" if spec.dead_letter else "ends as failed"),
            ("Callback", el("code", spec.callback_url, class_="long") if spec.callback_url else None),
            (
                "Idempotency key",
                el("code", job.idempotency_key, class_="long") if job.idempotency_key else None,
            ),
            ("Revision", job.revision),
            ("Created", times.both(job.created_at, now)),
            ("Updated", times.both(job.updated_at, now) if job.updated_at != job.created_at else None),
            ("Id", el("code", str(job.job_id))),
        ]
    )


def _seconds(value: float) -> str:

    return times.span(timedelta(seconds=value)) if value < 1e9 else f"{value:g} s"


def _ledger(ledger: Sequence[Fire], now: datetime) -> Markup:
    if not ledger:
        return quiet("No instant of its schedule has been decided yet.")
    columns = (
        Column("Instant", "time"),
        Column("Decision", "wide"),
        Column("Execution"),
        Column("Decided after", "number"),
    )
    rows = [
        Row(
            f"f-{one.nominal_at.timestamp():.6f}-{one.generation}",
            (
                times.clock(one.nominal_at, now),
                _decision(one, now),
                execution_link(one.execution_id) if one.execution_id else dash(),
                times.span(one.decided_at - one.nominal_at) if one.instants is None else dash(),
            ),
        )
        for one in ledger
    ]
    return table("What was decided about the instants of this job", columns, rows)


def _decision(one: Fire, now: datetime) -> Markup:
    said: list[Child] = [badge(one.decision, words.DECISIONS.get(one.decision, words.spaced(one.decision)))]
    if one.instants and one.through_at and one.instants > 1:
        instants = f" {one.instants:,} instants through "
        said.append(el("span", instants, times.clock(one.through_at, now), class_="quiet"))
    if one.reason:
        said.append(el("span", one.reason, class_="quiet reason"))
    return join(said)


def pretty(raw: str) -> str:
    """JSON with line breaks, if it is short enough to be read."""
    if len(raw) > LONGEST_FORMATTED:
        return raw
    try:
        return msgspec.json.format(raw, indent=2)
    except (msgspec.DecodeError, RecursionError):
        return raw
