"""`detent when`: the instants of a schedule, asked of the same function that fires jobs. Needs no server."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import click

from detent.cli.inputs import duration
from detent.cli.options import as_json_option
from detent.cli.output import as_json as print_json
from detent.cli.output import table
from detent.cli.times import now, relative
from detent.when.dst import FOLDS, GAPS
from detent.when.every import parse_every
from detent.when.instant import format_instant, parse_instant
from detent.when.marks import mark, skipped
from detent.when.rule import Every, Rule, cron_rule, fires
from detent.when.strange import hash_hints, hints
from detent.when.words import in_words
from detent.when.zone import zone

EXAMPLES = """\b
Examples:
  detent when '0 9 * * MON-FRI' --tz Europe/Berlin
  detent when '0 9 LW * *' --tz Europe/Berlin -n 12
  detent when '30 2 * * *' --tz America/New_York --from 2026-03-07T00:00:00Z -n 3
  detent when '30 2 * * *' --tz Europe/Berlin --from 2026-10-24T00:00:00Z --fold both
  detent when --every 90m
"""

DAY_AND_TIME = "%a %Y-%m-%d %H:%M:%S"


@click.command(epilog=EXAMPLES)
@click.argument("cron", metavar="[CRON]", required=False)
@click.option(
    "--every", metavar="DURATION", callback=duration, help="A fixed interval instead: 30s, 2h, PT5M."
)
@click.option("--tz", "--timezone", "timezone", metavar="ZONE", default="UTC", show_default=True,
              help="Zone of the wall clock, such as Europe/Berlin.")  # fmt: skip
@click.option("--gap", type=click.Choice(GAPS), default=GAPS[0], show_default=True,
              help="What happens to local times that a change of the clock leaves out.")  # fmt: skip
@click.option("--fold", type=click.Choice(FOLDS), default=FOLDS[0], show_default=True,
              help="Which of the local times that come twice.")  # fmt: skip
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many.")
@click.option("--from", "start", metavar="INSTANT", help="Strictly after this instant.  [now]")
@as_json_option
def when(
    cron: str | None,
    every: float | str | None,
    timezone: str,
    gap: str,
    fold: str,
    count: int,
    start: str | None,
    as_json: bool,
) -> None:
    """Explain a schedule: in words, and the instants at which it fires."""
    if (cron is None) == (every is None):
        raise click.UsageError("give a cron expression, for example '0 9 * * *', or --every 30s")
    after = parse_instant("--from", start) if start else now()
    rule: Rule
    if cron is not None:
        rule = cron_rule(cron, timezone, gap, fold)
    else:
        zone(timezone)
        rule = Every(parse_every(every, "--every"), after)
    instants = list(islice(fires(rule, after), count))
    marks = [mark(rule, at) for at in instants]
    if as_json:
        _print_json(rule, cron, instants, marks)
        return
    sentence = in_words(rule)
    click.echo(f"{sentence[:1].upper()}{sentence[1:]}\n")
    lost = list(skipped(rule, after, instants[-1])) if instants else []
    _print_table(timezone, instants, marks, lost)
    for hint in (*hints(cron or ""), *hash_hints(cron or "")):
        click.echo(f"\nNote: {hint}")


def _print_json(rule: Rule, cron: str | None, instants: list[datetime], marks: list[str]) -> None:
    print_json(
        {
            "sentence": in_words(rule),
            "fires": [format_instant(at) for at in instants],
            "marks": {format_instant(at): note for at, note in zip(instants, marks, strict=True) if note},
            "hints": [*hints(cron or ""), *hash_hints(cron or "")],
        }
    )


def _print_table(
    timezone: str, instants: list[datetime], marks: list[str], lost: list[tuple[datetime, str]]
) -> None:
    if timezone == "UTC":  # its clock never changes
        table(("UTC", "when"), [(_in_utc(at), relative(at)) for at in instants], empty="never again")
        return
    tz = zone(timezone)
    rows = {at: (f"{at.astimezone(tz):{DAY_AND_TIME} %Z}", _in_utc(at), relative(at)) for at in instants}
    notes = {at: note for at, note in zip(instants, marks, strict=True) if note}
    for at, note in lost:
        rows.setdefault(at, ("–", _in_utc(at), "does not fire"))
        notes[at] = note
    columns = (timezone, "UTC", "when", "daylight saving") if notes else (timezone, "UTC", "when")
    shown = [(*rows[at], notes.get(at, ""))[: len(columns)] for at in sorted(rows)]
    table(columns, shown, empty="never again")


def _in_utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):{DAY_AND_TIME}}"
