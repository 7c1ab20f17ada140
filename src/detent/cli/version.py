"""`detent version`."""

from __future__ import annotations

import platform

import click

from detent import __version__
from detent.cli.options import as_json_option
from detent.cli.output import as_json as print_json


@click.command()
@as_json_option
def version(as_json: bool) -> None:
    """Show the version of Detent and of the Python that runs it."""
    if as_json:
        print_json({"detent": __version__, "python": platform.python_version()})
    else:
        click.echo(f"detent {__version__} (Python {platform.python_version()})")
