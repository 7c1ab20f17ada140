"""`detent config`: what the settings are, and why."""

from __future__ import annotations

from typing import Any

import click

from detent.cli.options import API, EVERY_ROLE, FLAGS, WORKER, as_json_option, settings
from detent.cli.output import as_json as print_json
from detent.cli.output import table
from detent.runtime.config import SETTINGS, load

EXAMPLES = """\b
Examples:
  detent config
  DETENT_PORT=9000 detent config --json
  detent config --slots 50         # what --slots 50 would make of it
"""


@click.command(epilog=EXAMPLES)
@settings(*EVERY_ROLE, *API, "url", *WORKER, "schedulers", *FLAGS, "retention_days")
@as_json_option
def config(as_json: bool, **flags: Any) -> None:
    """Show the effective settings and where each comes from: flag, environment or default.

    Passwords are not shown.
    """
    loaded = load(flags)
    shown = loaded.shown()
    if as_json:
        print_json({name: {"value": shown[name], "from": loaded.sources[name]} for name in SETTINGS})
        return
    rows = [(name, _text(shown[name]), loaded.sources[name], SETTINGS[name][0]) for name in SETTINGS]
    table(("setting", "value", "from", "variable"), rows, empty="")


def _text(value: Any) -> str:
    if value is None or value == ():
        return "–"
    if isinstance(value, tuple):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
