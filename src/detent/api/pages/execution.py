"""`/executions/{id}`: one execution, its attempts, its error, what it returned and wrote."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from detent.api.pages import tables, times, words
from detent.api.pages.job import pretty
from detent.api.pages.markup import Child, Markup, el, join
from detent.api.pages.parts import (
    Column,
    Row,
    badge,
    block,
    dash,
    execution_link,
    facts,
    job_link,
    quiet,
    section,
    short,
    table,
)
from detent.model.execution import Attempt, ErrorInfo, Execution
from detent.store.executions import Detail, Output, Progressed


def content(detail: Detail, job_name: str | None, now: datetime) -> Markup:
    one = detail.execution
    return join(
        el("p", el("a", "Executions", href="/executions"), class_="trail"),
        el("h1", "Execution of ", job_link(one.job_id, job_name), " ", badge(one.status), class_="title"),
        el("p", words.reason(one.reason), class_="lead") if one.reason else None,
        _error(one.error) if one.error else None,
        el(
            "div",
            section("Facts", _facts(one, detail.progress, now)),
            el(
                "div",
                section("Attempts", _attempts(detail.attempts, now)),
                section("Result", block(pretty(one.result), "Result")) if one.result is not None else None,
            ),
            class_="columns even",
        ),
        _output(one.execution_id, detail.output),
    )


def _error(error: ErrorInfo) -> Markup:
    trace = None
    if error.traceback:
        trace = el(
            "details", el("summary", "Traceback"), block(error.traceback, "Traceback", end=True), open=True
        )
    said = el("p", el("strong", error.type), ": ", el("span", error.message, class_="long"), class_="what")
    return section("Error", said, trace, kind="error")


def _facts(one: Execution, progress: Progressed | None, now: datetime) -> Markup:
    return facts(
        [
            ("Cause", words.CAUSES.get(one.cause, one.cause)),
            ("Scheduled for", times.both(one.scheduled_for, now)),
            ("Queued", times.both(one.queued_at, now)),
            ("First started", times.both(one.started_at, now)),
            ("Finished", times.both(one.finished_at, now)),
            ("Lateness", tables.lateness(one, now)),
            ("Duration", tables.duration(one, now)),
            ("Progress", _progress(progress)),
            ("Attempts", one.attempt or None),
            ("Exit code", one.error.exit_code if one.error else None),
            ("Worker", el("code", str(one.worker_id)) if one.worker_id else None),
            ("Source", execution_link(one.source_id) if one.source_id else None),
            ("Revision of the job", one.revision),
            ("Id", el("code", str(one.execution_id))),
        ]
    )


def _progress(told: Progressed | None) -> str | None:
    if told is None:
        return None
    return f"{told.pct:g} %" + (f", {told.message}" if told.message else "")


def _attempts(attempts: Sequence[Attempt], now: datetime) -> Markup:
    if not attempts:
        return quiet("No worker has taken it yet.")
    columns = (
        Column("Attempt"),
        Column("Outcome", "wide"),
        Column("Started", "time"),
        Column("Duration", "number"),
        Column("Worker"),
    )
    rows = [
        Row(
            f"a-{one.attempt}",
            (
                one.attempt,
                join(badge(one.outcome), _brief(one.error)),
                times.clock(one.started_at, now) if one.started_at else dash(),
                _duration(one, now),
                el("code", short(one.worker_id), title=str(one.worker_id)) if one.worker_id else dash(),
            ),
        )
        for one in attempts
    ]
    return table("The attempts of this execution", columns, rows)


def _brief(error: ErrorInfo | None) -> Markup | None:
    return el("span", f"{error.type}: {error.message}"[:300], class_="quiet reason") if error else None


def _duration(one: Attempt, now: datetime) -> Child:
    if one.started_at is None:
        return dash()
    if one.finished_at is None:
        return el("span", f"{times.span(now - one.started_at)} so far", class_="quiet")
    return times.span(one.finished_at - one.started_at)


def _output(execution_id: UUID, output: Output) -> Markup:
    whole = el("a", "Whole log", href=f"/api/v1/executions/{execution_id}/logs")
    shown: list[Child] = []
    for label, written in (("Standard output", output.stdout), ("Standard error", output.stderr)):
        if written:
            shown += [el("h3", f"{label}, its end"), block(written, label, end=True)]
    return section("Output", shown or quiet("It has written nothing."), aside=whole)
