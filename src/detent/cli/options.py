"""Options that several commands share. Each is a setting: flag, then environment, then default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from detent.runtime.config import LOG_FORMATS, LOG_LEVELS, SETTINGS, Config

F = TypeVar("F", bound=Callable[..., Any])

_DEFAULTS = Config()

# setting: declarations, metavar, help
_OPTIONS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "data": (("--data",), "DIR", "Folder of the embedded database."),
    "database": (("--database",), "URL", "Use this PostgreSQL instead of the embedded one."),
    "host": (("--host",), "ADDRESS", "Address to listen on; only loopback ones are allowed."),
    "port": (("--port",), "N", "Port to listen on; 0 takes any free one."),
    "url": (("--url",), "URL", "Address of the server."),
    "imports": (("--import", "imports"), "MODULE", "Import this module with tasks; may be repeated."),
    "slots": (("--slots",), "N", "Attempts that one worker process runs at once."),
    "workers": (("--processes", "--workers", "workers"), "N", "Worker processes."),
    "schedulers": (("--schedulers",), "N", "Scheduler processes."),
    "pools": (("--pool", "pools"), "NAME", "Take work from this pool; may be repeated."),
    "heartbeat": (("--heartbeat",), "SECONDS", "A worker says this often that it lives."),
    "lease": (("--lease",), "SECONDS", "A worker silent for this long is taken for lost."),
    "grace": (("--grace",), "SECONDS", "On stop, running work gets this long before it is handed back."),
    "standby": (("--standby",), "", "Own nothing while another scheduler that is not on standby lives."),
    "retention_days": (("--retention-days",), "N", "Drop history older than this; 0 keeps it for ever."),
    "allow_private_callbacks": (
        ("--allow-private-callbacks",),
        "",
        "Send callbacks to private addresses too.",
    ),
    "log_level": (("--log-level",), "|".join(LOG_LEVELS), "What to say on standard error."),
    "log_format": (("--log-format",), "|".join(LOG_FORMATS), "Lines for people or for machines."),
}
EVERY_ROLE = ("data", "database", "log_level", "log_format")
WORKER = ("imports", "workers", "slots", "pools", "heartbeat", "lease", "grace")
API = ("host", "port")
KEEPER = ("heartbeat", "lease", "retention_days", "allow_private_callbacks")
FLAGS = ("standby", "allow_private_callbacks")


def settings(*names: str) -> Callable[[F], F]:
    """Give a command the flags of these settings; one that was not given arrives as None or ()."""

    def decorate(function: F) -> F:
        for name in reversed(names):
            declarations, metavar, text = _OPTIONS[name]
            if name in FLAGS:
                option = click.option(
                    *declarations, is_flag=True, default=None, help=f"{text}  {_origin(name)}"
                )
            else:
                many = name in ("imports", "pools")
                option = click.option(
                    *declarations,
                    metavar=metavar,
                    multiple=many,
                    default=None,
                    help=f"{text}  {_origin(name)}",
                )
            function = option(function)
        return function

    return decorate


def _origin(name: str) -> str:
    default = _DEFAULTS.server_url if name == "url" else getattr(_DEFAULTS, name)
    if isinstance(default, tuple):
        default = ",".join(default)
    if isinstance(default, bool):
        default = ""
    if isinstance(default, float):
        default = f"{default:g}"
    shown = "" if default in (None, "") else f"; default {default}"
    return f"[{SETTINGS[name][0]}{shown}]"


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
