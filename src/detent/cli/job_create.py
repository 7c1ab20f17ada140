"""`detent job create`: from words in a terminal to a job."""

from __future__ import annotations

from typing import Any

import click

from detent.cli.describe import schedule_sentence, task_words
from detent.cli.inputs import JsonText, WithProgram, duration, payload, program
from detent.cli.output import as_json as print_json
from detent.cli.output import details
from detent.cli.own import hint
from detent.cli.remote import connect, talks_to_server
from detent.cli.times import both

PRIORITIES = ("critical", "high", "normal", "low")
BACKOFFS = ("exponential", "linear", "fixed")
SCHEDULES = {"cron": "--cron", "every": "--every", "scheduled_at": "--at", "delay": "--delay"}

EXAMPLES = """\b
Examples:
  detent job create hello --shell 'echo hello' --cron '* * * * *'
  detent job create report --task my.report --cron '0 9 * * MON-FRI' --timezone Europe/Berlin
  detent job create beat --every 30s -- curl -fsS https://example.org/ping
  detent job create remind --task send_mail --delay 2h --payload '{"to": "ops"}'
  detent job create quote --task quote --every 5m --timeout 20s --deadline 2m
  detent job create launch --at 2030-01-01T00:00:00Z --task launch --priority critical

Without --task, --shell or a program the job runs the Python task called NAME. Without a schedule it runs
only when asked to (detent job run). Durations: 30s, 5m, 2h, 1h30m, 1d, or ISO 8601 (PT30S).
"""


@click.command(cls=WithProgram, epilog=EXAMPLES)
@click.argument("name")
@click.option("--task", help="Run this registered Python task.")
@click.option("--shell", metavar="SCRIPT", help="Run this shell script.")
@click.option("--cron", metavar="EXPRESSION", help="Run at the instants of this cron expression.")
@click.option("--every", metavar="DURATION", callback=duration, help="Run this often.")
@click.option("--at", "scheduled_at", metavar="INSTANT", help="Run once, at this ISO 8601 instant.")
@click.option("--delay", metavar="DURATION", callback=duration, help="Run once, this long from now.")
@click.option("--timezone", "--tz", "timezone", metavar="ZONE", help="Zone of the cron expression.  [UTC]")
@click.option(
    "--start", "start_at", metavar="INSTANT", help="Nothing before this instant; --every counts from it."
)
@click.option("--end", "end_at", metavar="INSTANT", help="Nothing after this instant.")
@click.option("--payload", metavar="JSON|@FILE|-", callback=payload, help="What the task is given.")
@click.option("--priority", type=click.Choice(PRIORITIES), help="Who goes first.  [normal]")
@click.option("--timeout", "timeout_seconds", metavar="DURATION", callback=duration,
              help="End an attempt after this long.  [1h]")  # fmt: skip
@click.option("--deadline", "deadline_seconds", metavar="DURATION", callback=duration,
              help="End an execution this long after it was queued, retries included.  [never]")  # fmt: skip
@click.option("--max-retries", type=click.IntRange(0), metavar="N", help="Tries after the first.  [3]")
@click.option("--retry-delay", "retry_delay_seconds", metavar="DURATION", callback=duration,
              help="Pause before the first retry.  [30s]")  # fmt: skip
@click.option("--retry-backoff", type=click.Choice(BACKOFFS), help="How pauses grow.  [exponential]")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Label it; may be repeated.")
@click.option("--pool", metavar="NAME", help="Workers that run it.  [default]")
@click.option("--key", "idempotency_key", metavar="KEY",
              help="The same key again names the same job, and makes none.")  # fmt: skip
@talks_to_server
@click.pass_context
def create(ctx: click.Context, /, url: str | None, as_json: bool, **given: Any) -> None:
    """Create a job."""
    body = body_of(given, program(ctx), ctx)
    client = connect(url)
    job = client.create(body)
    if as_json:
        print_json(job.raw)
        return
    runs = client.next_runs(job.job_id) if job.next_run_at else []
    details(
        [
            ("job", job.job_id),
            ("name", job.name),
            ("task", task_words(job.task)),
            ("schedule", schedule_sentence(job.raw)),
            ("next runs", "\n".join(map(both, runs))),
            ("logs", hint(f"execution logs --job {_quoted(job.name)}", url)),
        ]
    )


def body_of(given: dict[str, Any], words: list[str] | None, ctx: click.Context) -> dict[str, Any]:
    """The request, or a usage error that says which options exclude each other."""
    schedules = [flag for field, flag in SCHEDULES.items() if given[field] is not None]
    if len(schedules) > 1:
        raise click.UsageError(f"{' and '.join(schedules)} exclude each other: a job has one schedule", ctx)
    task, shell = given.pop("task"), given.pop("shell")
    tasks = [
        flag for flag, value in (("--task", task), ("--shell", shell), ("--", words)) if value is not None
    ]
    if len(tasks) > 1:
        raise click.UsageError(f"{' and '.join(tasks)} exclude each other: a job has one task", ctx)
    body = {field: value for field, value in given.items() if value is not None and value != ()}
    if isinstance(body.get("payload"), JsonText):
        body["payload"] = body["payload"].value
    if shell is not None or words is not None:
        body["task"] = {"kind": "shell", "command": shell if shell is not None else words}
    elif task is not None:
        body["task"] = task
    if "tags" in body:
        body["tags"] = list(body["tags"])
    return body


def _quoted(name: str) -> str:
    import shlex

    return shlex.quote(name)
