"""`detent execution ...`: what ran, how it went, and what it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from detent.cli.exits import Absent
from detent.cli.output import as_json as print_json
from detent.cli.output import details, table
from detent.cli.remote import connect, find_job, talks_to_server
from detent.cli.times import both, local, milliseconds

if TYPE_CHECKING:
    from detent.sdk.client import Client
    from detent.sdk.records import Attempt, Execution

STATUSES = (
    "held", "queued", "running", "retrying",
    "succeeded", "failed", "timed_out", "cancelled", "skipped", "dead_lettered",
)  # fmt: skip
LOOK_BACK = 20


@click.group()
def execution() -> None:
    """List and show executions, read their logs, cancel them."""


@execution.command("list", epilog="""\b
Examples:
  detent execution list --job hello
  detent execution list --status dead_lettered --json
""")  # fmt: skip
@click.option("--job", metavar="ID|NAME", help="Only executions of this job.")
@click.option("--status", type=click.Choice(STATUSES), help="Only executions with this status.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@talks_to_server
def list_(
    job: str | None, status: str | None, limit: int, everything: bool, url: str | None, as_json: bool
) -> None:
    """List executions, newest first."""
    client = connect(url)
    job_id = find_job(client, job).job_id if job else None
    wanted = None if everything else limit + 1
    found = list(client.executions(job_id=job_id, status=status, limit=wanted))
    shown = found if everything else found[:limit]
    if as_json:
        print_json([one.raw for one in shown])
        return
    names = _names(client, shown)
    rows = (
        (
            one.execution_id,
            names[one.job_id],
            one.status,
            local(one.scheduled_for),
            milliseconds(one.lateness_ms),
            milliseconds(one.duration_ms),
            str(one.attempt),
        )
        for one in shown
    )
    columns = ("id", "job", "status", "scheduled for", "late", "took", "attempt")
    table(columns, rows, empty="no such executions" if job or status else "no executions yet")
    if len(found) > len(shown):
        click.echo(f"… and more: --limit {limit * 5} or --all shows them")


def _names(client: Client, shown: list[Execution]) -> dict[str, str]:
    """Names of the jobs on one page; a page of many jobs keeps their ids."""
    ids = dict.fromkeys(one.job_id for one in shown)
    return {job_id: client.job(job_id).name if len(ids) <= 50 else job_id for job_id in ids}


@execution.command("show", epilog="""\b
Examples:
  detent execution show 01998c2e-5c7a-8b3e-9f00-0123456789ab
  detent execution show --job hello      # its latest one
""")  # fmt: skip
@click.argument("execution_id", metavar="ID", required=False)
@click.option("--job", metavar="ID|NAME", help="The latest execution of this job.")
@talks_to_server
def show(execution_id: str | None, job: str | None, url: str | None, as_json: bool) -> None:
    """Show an execution with all its attempts."""
    client = connect(url)
    found = client.execution(_which(client, execution_id, job))
    if as_json:
        print_json(found.raw)
        return
    details(_facts(client, found))
    if len(found.attempts) > 1 or (found.attempts and not found.succeeded):
        click.echo()
        table(("attempt", "outcome", "started", "took", "error"), map(_attempt, found.attempts), empty="")
    if found.error and found.error.get("traceback"):
        click.echo(f"\n{found.error['traceback'].rstrip()}")


def _facts(client: Client, found: Execution) -> list[tuple[str, str]]:
    import json

    result = "" if found.result is None else json.dumps(found.result, ensure_ascii=False)
    return [
        ("execution", found.execution_id),
        ("job", f"{client.job(found.job_id).name}  {found.job_id}"),
        ("status", found.status),
        ("why", str(found.raw.get("reason") or "")),
        ("cause", found.cause),
        ("scheduled for", both(found.scheduled_for)),
        (
            "started",
            f"{both(found.started_at)}, {milliseconds(found.lateness_ms)} late" if found.started_at else "",
        ),
        ("finished", f"{both(found.finished_at)}" if found.finished_at else ""),
        ("took", milliseconds(found.duration_ms) if found.duration_ms is not None else ""),
        ("attempt", str(found.attempt)),
        ("worker", found.worker_id or ""),
        ("progress", _progress(found)),
        ("result", result if len(result) <= 2000 else f"{result[:2000]}…"),
        ("error", _error(found.error)),
        ("stdout", (found.stdout or "").rstrip()),
        ("stderr", (found.stderr or "").rstrip()),
    ]


def _progress(found: Execution) -> str:
    if found.progress_pct is None:
        return ""
    return f"{found.progress_pct:g} %" + (f", {found.progress_message}" if found.progress_message else "")


def _attempt(one: Attempt) -> tuple[str, ...]:
    took = "–"
    if one.started_at and one.finished_at:
        took = milliseconds((one.finished_at - one.started_at).total_seconds() * 1000)
    return str(one.attempt), one.outcome, local(one.started_at), took, _error(one.error)


def _error(error: object) -> str:
    if not isinstance(error, dict):
        return ""
    code = error.get("exit_code")
    return f"{error.get('type')}: {error.get('message')}" + (
        f" (exit code {code})" if code is not None else ""
    )


@execution.command("logs", epilog="""\b
Examples:
  detent execution logs --job hello          # of its latest execution
  detent execution logs 01998c2e-5c7a-8b3e-9f00-0123456789ab -f
""")  # fmt: skip
@click.argument("execution_id", metavar="ID", required=False)
@click.option("--job", metavar="ID|NAME", help="The latest execution of this job.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the execution is over.")
@talks_to_server
def logs(execution_id: str | None, job: str | None, follow: bool, url: str | None, as_json: bool) -> None:
    """Show what an execution wrote."""
    client = connect(url)
    wanted = _which(client, execution_id, job)
    if follow:
        for piece in client.follow(wanted):
            click.echo(piece, nl=False)
    elif as_json:
        print_json({"execution_id": wanted, "text": client.logs(wanted)})
    else:
        text = client.logs(wanted)
        click.echo(text, nl=not text.endswith("\n") and text != "")
        if not text:
            click.echo(f"execution {wanted} is {client.execution(wanted).status} and wrote nothing", err=True)


@execution.command("cancel")
@click.argument("execution_id", metavar="ID")
@talks_to_server
def cancel(execution_id: str, url: str | None, as_json: bool) -> None:
    """Stop an execution. Its job and schedule stay."""
    cancelled = connect(url).cancel_execution(execution_id)
    if as_json:
        print_json(cancelled.raw)
    else:
        running = " (its worker has been told to stop it)" if cancelled.status == "running" else ""
        click.echo(f"execution {cancelled.execution_id} is {cancelled.status}{running}")


def _which(client: Client, execution_id: str | None, job: str | None) -> str:
    if (execution_id is None) == (job is None):
        raise click.UsageError("name an execution by its ID, or a job with --job for its latest one")
    if execution_id is not None:
        return execution_id
    assert job is not None
    found = find_job(client, job)
    newest = list(client.executions(job_id=found.job_id, limit=LOOK_BACK))
    if not newest:
        following = f"; its next run is {both(found.next_run_at)}" if found.next_run_at else ""
        raise Absent(f"job {found.name} has not run yet{following}")
    # One that waits for its instant has nothing to show yet.
    return next((one for one in newest if one.started_at), newest[0]).execution_id
