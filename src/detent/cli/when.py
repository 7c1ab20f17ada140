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
from detent.when.every import parse_every
from detent.when.instant import format_instant, parse_instant
from detent.when.rule import Every, Rule, cron_rule, fires
from detent.when.strange import hints
from detent.when.words import in_words
from detent.when.zone import zone

EXAMPLES = """\b
Examples:
  detent when '0 9 * * MON-FRI' --tz Europe/Berlin
  detent when '30 2 * * *' --tz America/New_York --from 2026-03-07T00:00:00Z -n 3
  detent when --every 90m
"""


@click.command(epilog=EXAMPLES)
@click.argument("cron", metavar="[CRON]", required=False)
@click.option(
    "--every", metavar="DURATION", callback=duration, help="A fixed interval instead: 30s, 2h, PT5M."
)
@click.option("--tz", "--timezone", "timezone", metavar="ZONE", default="UTC", show_default=True,
              help="Zone of the wall clock, such as Europe/Berlin.")  # fmt: skip
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many.")
@click.option("--from", "start", metavar="INSTANT", help="Strictly after this instant.  [now]")
@as_json_option
def when(
    cron: str | None, every: float | str | None, timezone: str, count: int, start: str | None, as_json: bool
) -> None:
    """Explain a schedule: in words, and the instants at which it fires."""
    if (cron is None) == (every is None):
        raise click.UsageError("give a cron expression, for example '0 9 * * *', or --every 30s")
    after = parse_instant("--from", start) if start else now()
    rule: Rule
    if cron is not None:
        rule = cron_rule(cron, timezone)
    else:
        zone(timezone)
        rule = Every(parse_every(every, "--every"), after)
    instants = list(islice(fires(rule, after), count))
    if as_json:
        shown = [format_instant(at) for at in instants]
        print_json({"sentence": in_words(rule), "fires": shown, "hints": hints(cron or "")})
        return
    sentence = in_words(rule)
    click.echo(f"{sentence[:1].upper()}{sentence[1:]}\n")
    rows = [_row(at, timezone) for at in instants]
    if timezone == "UTC":
        table(("UTC", "when"), [(row[1], row[2]) for row in rows], empty="never again")
    else:
        table((timezone, "UTC", "when"), rows, empty="never again")
    for hint in hints(cron or ""):
        click.echo(f"\nNote: {hint}")


def _row(at: datetime, timezone: str) -> tuple[str, str, str]:
    there = at.astimezone(zone(timezone))
    return f"{there:%a %Y-%m-%d %H:%M:%S %Z}", f"{at.astimezone(UTC):%a %Y-%m-%d %H:%M:%S}", relative(at)
