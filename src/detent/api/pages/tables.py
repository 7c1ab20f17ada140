"""Executions and jobs as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from detent.api.pages import times, words
from detent.api.pages.markup import Child, Markup, el, join
from detent.api.pages.parts import Column, Row, badge, dash, execution_link, job_link, table
from detent.model.execution import OPEN, Execution
from detent.model.job import Job


def executions(
    caption: str, found: Sequence[Execution], now: datetime, names: Mapping[UUID, str] | None = None
) -> Markup:
    """With `names` each row says whose execution it is."""
    columns = [
        *([Column("Job", "wide")] if names is not None else []),
        Column("Execution"),
        Column("Status"),
        Column("Scheduled for", "time"),
        Column("Lateness", "number"),
        Column("Duration", "number"),
        Column("Attempt", "number"),
    ]
    rows = [
        Row(
            f"e-{one.execution_id}",
            (
                *([job_link(one.job_id, names.get(one.job_id))] if names is not None else []),
                execution_link(one.execution_id),
                status(one),
                times.clock(one.scheduled_for, now),
                lateness(one, now),
                duration(one, now),
                one.attempt or dash(),
            ),
        )
        for one in found
    ]
    return table(caption, columns, rows)


def status(one: Execution) -> Markup:
    why = el("span", words.reason(one.reason), class_="quiet reason") if one.reason else None
    return join(badge(one.status), why)


def lateness(one: Execution, now: datetime) -> Child:
    """How long after its instant it was first started."""
    if one.started_at is not None:
        return times.span(one.started_at - one.scheduled_for)
    if one.status in OPEN and one.scheduled_for < now:
        return el("span", f"{times.span(now - one.scheduled_for)} so far", class_="quiet")
    return dash()


def duration(one: Execution, now: datetime) -> Child:
    if one.started_at is None:
        return dash()
    if one.finished_at is not None:
        return times.span(one.finished_at - one.started_at)
    return el("span", f"{times.span(now - one.started_at)} so far", class_="quiet")


def jobs(caption: str, found: Iterable[Job], now: datetime) -> Markup:
    columns = (
        Column("Job", "wide"),
        Column("Status"),
        Column("Schedule", "wide"),
        Column("Next fire", "time"),
        Column("Task", "wide"),
        Column("Created", "time"),
    )
    rows = [
        Row(
            f"j-{one.job_id}",
            (
                join(job_link(one.job_id, one.spec.name), tags(one.spec.tags)),
                join(badge("parked" if one.parked_reason else one.status)),
                schedule(one, now),
                next_fire(one, now),
                el("code", words.task(one.spec.task), class_="clamp"),
                times.ago(one.created_at, now),
            ),
        )
        for one in found
    ]
    return table(caption, columns, rows)


def schedule(one: Job, now: datetime) -> Markup:
    if one.spec.once:
        at = one.spec.scheduled_at or one.armed_at + timedelta(seconds=one.spec.delay or 0)
        return join("once at ", times.clock(at, now))
    return join(words.schedule(one.spec, one.armed_at, one.job_id.int))


def next_fire(one: Job, now: datetime) -> Markup:
    if one.next_run_at is None:
        return dash()
    said = el("span", times.coming(one.next_run_at, now), class_="quiet")
    return join(times.clock(one.next_run_at, now), " ", said)


def tags(found: Iterable[str]) -> Markup:
    return join([join(" ", el("bdi", tag, class_="tag")) for tag in found])


def upcoming(caption: str, found: Iterable[Mapping[str, Any]], now: datetime) -> Markup:
    columns = (Column("Job", "wide"), Column("When", "time"))
    rows = [
        Row(
            f"n-{one['job_id']}",
            (
                job_link(one["job_id"], one["name"]),
                join(
                    el("span", times.coming(one["due_at"], now), class_="when"),
                    el("span", times.clock(one["due_at"], now), class_="quiet at"),
                ),
            ),
        )
        for one in found
    ]
    return table(caption, columns, rows)
