"""`detent dead-letter ...`: work that ran out of attempts and waits for a person."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from detent.cli import inputs
from detent.cli.describe import task_words
from detent.cli.output import as_json as print_json
from detent.cli.output import details, table
from detent.cli.own import hint
from detent.cli.remote import connect, find_job, talks_to_server
from detent.cli.times import both, local

if TYPE_CHECKING:
    from detent.sdk.records import DeadLetter

STATUSES = ("waiting", "replayed", "discarded")
SHOWN_PAYLOAD = 2_000


@click.group("dead-letter")
def dead_letter() -> None:
    """List, show, replay and discard work that ran out of attempts."""


@dead_letter.command("list", epilog="""\b
Examples:
  detent dead-letter list
  detent dead-letter list --job nightly --status replayed --json
""")  # fmt: skip
@click.option("--job", metavar="ID|NAME", help="Only those of this job.")
@click.option("--status", type=click.Choice(STATUSES), default="waiting", show_default=True)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@talks_to_server
def list_(job: str | None, status: str, limit: int, url: str | None, as_json: bool) -> None:
    """List dead letters, newest first."""
    client = connect(url)
    job_id = find_job(client, job).job_id if job else None
    found = list(client.dead_letters(job_id=job_id, status=status, limit=limit + 1))
    shown = found[:limit]
    if as_json:
        print_json([one.raw for one in shown])
        return
    rows = ((one.execution_id, one.name, one.reason, local(one.died_at), _error(one.error)) for one in shown)
    table(("id", "job", "reason", "died", "error"), rows, empty=f"no dead letters are {status}")
    if len(found) > len(shown):
        click.echo(f"… and more: --limit {limit * 5} shows them")


@dead_letter.command("show")
@click.argument("execution_id", metavar="ID")
@talks_to_server
def show(execution_id: str, url: str | None, as_json: bool) -> None:
    """Show a dead letter with its payload, attempts and output."""
    found = connect(url).dead_letter(execution_id)
    if as_json:
        print_json(found.raw)
        return
    details(_facts(found))
    execution = found.raw.get("execution") or {}
    attempts = execution.get("attempts") or ()
    if attempts:
        click.echo()
        rows = ((str(a["attempt"]), a["outcome"], _error(a.get("error"))) for a in attempts)
        table(("attempt", "outcome", "error"), rows, empty="")
    if found.error and found.error.get("traceback"):
        click.echo(f"\n{str(found.error['traceback']).rstrip()}")


def _facts(found: DeadLetter) -> list[tuple[str, str]]:
    raw = found.raw
    execution: dict[str, Any] = raw.get("execution") or {}
    payload = json.dumps(raw.get("payload"), ensure_ascii=False)
    return [
        ("execution", found.execution_id),
        ("job", f"{found.name}  {found.job_id}"),
        ("status", found.status),
        ("reason", found.reason),
        ("died", both(found.died_at)),
        ("replayed as", found.replayed_as or ""),
        ("note", str(raw.get("note") or "")),
        ("task", task_words(raw["task"])),
        ("payload", payload if len(payload) <= SHOWN_PAYLOAD else f"{payload[:SHOWN_PAYLOAD]}…"),
        ("revision", str(raw["revision"])),
        ("error", _error(found.error)),
        ("stdout", str(execution.get("stdout") or "").rstrip()),
        ("stderr", str(execution.get("stderr") or "").rstrip()),
    ]


@dead_letter.command("replay", epilog="""\b
Examples:
  detent dead-letter replay 01998c2e-5c7a-8b3e-9f00-0123456789ab
  detent dead-letter replay 01998c2e-5c7a-8b3e-9f00-0123456789ab --payload '{"to": "right@example.org"}'
""")  # fmt: skip
@click.argument("execution_id", metavar="ID")
@click.option("--payload", metavar="JSON", callback=inputs.payload, help="Another payload, or @FILE or -.")
@click.option("--reason", help="Why, for whoever reads the letter later.")
@talks_to_server
def replay(
    execution_id: str, payload: inputs.JsonText | None, reason: str | None, url: str | None, as_json: bool
) -> None:
    """Run its work once more, as a new execution of the job as it is now."""
    given: Any = ... if payload is None else payload.value
    started = connect(url).replay(execution_id, payload=given, reason=reason)
    if as_json:
        print_json(started.raw)
    else:
        click.echo(f"execution {started.execution_id} is {started.status}")
        click.echo(f"see: {hint(f'execution logs {started.execution_id} -f', url)}")


@dead_letter.command("discard")
@click.argument("execution_id", metavar="ID")
@click.option("--reason", help="Why, for whoever reads the letter later.")
@talks_to_server
def discard(execution_id: str, reason: str | None, url: str | None, as_json: bool) -> None:
    """Let a dead letter rest. It stays readable."""
    settled = connect(url).discard(execution_id, reason=reason)
    if as_json:
        print_json(settled.raw)
    else:
        click.echo(f"dead letter {settled.execution_id} is {settled.status}")


def _error(error: object) -> str:
    return f"{error.get('type')}: {error.get('message')}" if isinstance(error, dict) else ""
