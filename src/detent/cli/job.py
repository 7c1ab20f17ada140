"""`detent job ...`: what to run, and when."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from detent.cli.describe import schedule_sentence, schedule_words, task_words
from detent.cli.job_create import create
from detent.cli.job_load import load
from detent.cli.output import as_json as print_json
from detent.cli.output import details, table
from detent.cli.own import hint
from detent.cli.remote import connect, find_job, talks_to_server
from detent.cli.times import both, local, milliseconds, relative

if TYPE_CHECKING:
    from detent.sdk.client import Client
    from detent.sdk.records import Execution, Job

STATUSES = ("scheduled", "paused", "running", "completed", "failed", "cancelled")
RECENT = 5


@click.group()
def job() -> None:
    """Create, list, show, pause, resume, cancel and run jobs.

    A job is named by its id, or by its name where only one job has it.
    """


job.add_command(create)
job.add_command(load)


@job.command("list", epilog="""\b
Examples:
  detent job list --status scheduled
  detent job list --tag billing --all --json
""")  # fmt: skip
@click.option("--status", type=click.Choice(STATUSES), help="Only jobs with this status.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--name", help="Only jobs with this name.")
@click.option("--pool", help="Only jobs of this pool.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@talks_to_server
def list_(url: str | None, as_json: bool, limit: int, everything: bool, **filters: str | None) -> None:
    """List jobs, newest first."""
    client = connect(url)
    wanted = None if everything else limit + 1  # one more tells whether there are more
    found = list(client.jobs(limit=wanted, **filters))
    shown = found if everything else found[:limit]
    if as_json:
        print_json([one.raw for one in shown])
        return
    rows = (
        (one.job_id, one.name, one.status, schedule_words(one.raw), relative(one.next_run_at) or "–")
        for one in shown
    )
    table(("id", "name", "status", "schedule", "next"), rows, empty=_none(filters))
    if len(found) > len(shown):
        click.echo(f"… and more: --limit {limit * 5} or --all shows them")


@job.command("show", epilog="""\b
Examples:
  detent job show hello
  detent job show 01998c2e-5c7a-7b3e-9f00-0123456789ab --json
""")  # fmt: skip
@click.argument("job_id", metavar="ID|NAME")
@talks_to_server
def show(job_id: str, url: str | None, as_json: bool) -> None:
    """Show a job, its next runs and its latest executions."""
    client = connect(url)
    found = find_job(client, job_id)
    if as_json:
        print_json(found.raw)
        return
    details(_facts(client, found))
    recent = list(client.executions(job_id=found.job_id, limit=RECENT))
    if recent:
        click.echo()
        table(("id", "status", "scheduled for", "took", "late"), map(_recent, recent), empty="")


def _facts(client: Client, found: Job) -> list[tuple[str, str]]:
    raw = found.raw
    return [
        ("job", found.job_id),
        ("name", found.name),
        ("status", found.status),
        ("why", str(raw.get("parked_reason") or "")),
        ("task", task_words(found.task)),
        ("payload", "" if found.payload is None else _compact(found.payload)),
        ("schedule", schedule_sentence(raw)),
        ("next runs", "\n".join(map(both, next_runs(client, found)))),
        ("priority", str(raw.get("priority", ""))),
        ("timeout", milliseconds(raw["timeout_seconds"] * 1000) if raw.get("timeout_seconds") else ""),
        ("max retries", str(raw.get("max_retries", ""))),
        ("pool", str(raw.get("pool", ""))),
        ("tags", ", ".join(found.tags)),
        ("revision", str(found.revision)),
        ("created", both(found.created_at)),
        ("updated", both(found.updated_at) if found.updated_at != found.created_at else ""),
    ]


def next_runs(client: Client, found: Job) -> list[Any]:
    if found.next_run_at is None:
        return []
    return list(islice(client.next_runs(found.job_id), 3))


def _recent(one: Execution) -> tuple[str, ...]:
    took, late = milliseconds(one.duration_ms), milliseconds(one.lateness_ms)
    return one.execution_id, one.status, local(one.scheduled_for), took, late


@job.command()
@click.argument("job_id", metavar="ID|NAME")
@talks_to_server
def pause(job_id: str, url: str | None, as_json: bool) -> None:
    """Hold a job's schedule until it is resumed. What runs now goes on."""
    client = connect(url)
    _done(client.pause(find_job(client, job_id).job_id), "paused", as_json)


@job.command()
@click.argument("job_id", metavar="ID|NAME")
@talks_to_server
def resume(job_id: str, url: str | None, as_json: bool) -> None:
    """Let a paused job's schedule go on."""
    client = connect(url)
    _done(client.resume(find_job(client, job_id).job_id), "resumed", as_json)


@job.command()
@click.argument("job_id", metavar="ID|NAME")
@talks_to_server
def cancel(job_id: str, url: str | None, as_json: bool) -> None:
    """End a job for good, and what it runs now. It stays readable."""
    client = connect(url)
    _done(client.cancel(find_job(client, job_id).job_id), "cancelled", as_json)


@job.command(epilog="""\b
Examples:
  detent job run hello
  detent job run hello --wait        # and show what it wrote
""")  # fmt: skip
@click.argument("job_id", metavar="ID|NAME")
@click.option("--key", help="The same key again names the same run, and runs nothing.")
@click.option("--wait", is_flag=True, help="Wait for its end, show its output; exit code 1 if it failed.")
@talks_to_server
def run(job_id: str, key: str | None, wait: bool, url: str | None, as_json: bool) -> int:
    """Run a job now, besides its schedule."""
    client = connect(url)
    started = client.run(find_job(client, job_id).job_id, key=key)
    if not wait:
        if as_json:
            print_json(started.raw)
        else:
            click.echo(f"execution {started.execution_id} is {started.status}")
            click.echo(f"see: {hint(f'execution logs {started.execution_id} -f', url)}")
        return 0
    done = client.wait(started, timeout=86_400.0)
    if as_json:
        print_json(done.raw)
    else:
        click.echo(client.logs(done.execution_id), nl=False)
        click.echo(f"execution {done.execution_id} {done.status}", err=True)
    return 0 if done.succeeded else 1


def _done(changed: Job, word: str, as_json: bool) -> None:
    if as_json:
        print_json(changed.raw)
        return
    following = f"; next run {both(changed.next_run_at)}" if changed.next_run_at else ""
    click.echo(f"{word} job {changed.job_id} {changed.name}: it is {changed.status}{following}")


def _none(filters: dict[str, str | None]) -> str:
    if any(filters.values()):
        return "no such jobs"
    return "no jobs yet; make one: detent job create hello --shell 'echo hello' --cron '* * * * *'"


def _compact(payload: Any) -> str:
    import json

    text = json.dumps(payload, ensure_ascii=False)
    return text if len(text) <= 500 else f"{text[:500]}… ({len(text):,} characters; --json shows all)"
