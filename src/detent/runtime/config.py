"""Every setting: its default, its environment variable, and what is a valid value for it.

A flag beats the environment, the environment beats the default. This is the only module that reads the
environment. All problems are gathered and reported together, so that one try is enough to fix them.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from detent.model.errors import FieldError, StartupError

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


class BadConfiguration(StartupError):
    """One or more settings are wrong; names each with what would be right."""

    code = "configuration"

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{e.field}: {e.message}" for e in errors))
        self.errors = tuple(errors)


@dataclass(frozen=True, slots=True)
class Config:
    data: Path = Path(".detent")
    database: str | None = None
    host: str = "127.0.0.1"
    port: int = 8642
    url: str | None = None
    imports: tuple[str, ...] = ()
    slots: int = 10
    workers: int = 1
    schedulers: int = 1
    pools: tuple[str, ...] = ("default",)
    heartbeat: float = 10.0
    lease: float = 30.0
    grace: float = 10.0
    allow_private_callbacks: bool = False
    standby: bool = False
    retention_days: int = 30
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"

    @property
    def server_url(self) -> str:
        """Where the commands of a client find the server: as told, or where one with these settings is."""
        return self.url or self.address

    @property
    def address(self) -> str:
        """Where a server with these settings answers."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The effective configuration, and for each setting where it came from."""

    config: Config
    sources: Mapping[str, str]

    def shown(self) -> dict[str, Any]:
        """The values as text and numbers that may be shown: secrets in addresses are masked."""
        values: dict[str, Any] = {}
        for setting in fields(Config):
            value = getattr(self.config, setting.name)
            if setting.name == "url":
                value = self.config.server_url
            if setting.name in ("database", "url") and value:
                value = masked(value)
            values[setting.name] = str(value) if isinstance(value, Path) else value
        return values


def masked(url: str) -> str:
    """The address without its secrets. Also for a malformed one: whatever may be a password is hidden."""
    hidden = re.sub(r"^([^:]*://[^:/?#@]*):.*@", r"\1:***@", url, flags=re.DOTALL)
    return re.sub(r"([?&](?:password|passfile|sslpassword|sslkey)=)[^&]*", r"\1***", hidden)


def load(flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None) -> Loaded:
    """Read the settings. A flag that is None, or an empty tuple, was not given."""
    environment = os.environ if environment is None else environment
    given = {name: value for name, value in (flags or {}).items() if value is not None and value != ()}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    errors: list[FieldError] = []
    for name, (variable, read) in SETTINGS.items():
        if name in given:
            raw, source, label = given[name], "flag", FLAG_NAMES.get(name, f"--{name.replace('_', '-')}")
        elif environment.get(variable, "") != "":
            raw, source, label = environment[variable], variable, variable
        else:
            sources[name] = "default"
            continue
        sources[name] = source
        try:
            values[name] = read(raw)
        except ValueError as error:
            errors.append(FieldError(label, "invalid", str(error)))
    unknown = set(given) - set(SETTINGS)
    assert not unknown, f"no such settings: {unknown}"
    if errors:
        raise BadConfiguration(errors)
    config = Config(**values)
    if config.lease < 2 * config.heartbeat:
        wrong = f"is {config.lease:g} s, and must be at least twice the heartbeat of {config.heartbeat:g} s"
        label = sources["lease"] if sources["lease"].startswith("DETENT_") else "--lease"
        raise BadConfiguration([FieldError(label, "invalid", wrong)])
    return Loaded(config, sources)


def environment_of(config: Config, database: str) -> dict[str, str]:
    """The environment of a child process that runs a role with this configuration.

    Settings travel here and not as arguments, because anyone on the machine can read a process's
    arguments, and an address may hold a password.
    """
    environment = dict(os.environ)
    environment.update(
        DETENT_DATABASE=database,
        DETENT_DATA=str(config.data),
        DETENT_HOST=config.host,
        DETENT_PORT=str(config.port),
        DETENT_URL=config.address,
        DETENT_IMPORT=",".join(config.imports),
        DETENT_SLOTS=str(config.slots),
        DETENT_WORKERS="1",  # it is one of them
        DETENT_POOLS=",".join(config.pools),
        DETENT_HEARTBEAT=repr(config.heartbeat),
        DETENT_LEASE=repr(config.lease),
        DETENT_GRACE=repr(config.grace),
        DETENT_ALLOW_PRIVATE_CALLBACKS=str(config.allow_private_callbacks).lower(),
        DETENT_STANDBY=str(config.standby).lower(),
        DETENT_RETENTION_DAYS=str(config.retention_days),
        DETENT_LOG_LEVEL=config.log_level,
        DETENT_LOG_FORMAT=config.log_format,
    )
    return environment


def environment_of_child(bond: str) -> dict[str, str]:
    """Our environment, without our settings, for a system of its own that is bound to us."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DETENT_")}
    return {**kept, "DETENT_SUPERVISED": bond}


def supervision() -> str | None:
    """What a supervisor told this process about itself; None if nobody supervises it."""
    return os.environ.pop("DETENT_SUPERVISED", None)


def forget_secrets() -> None:
    """Keep the database's address from the programs that a worker starts."""
    os.environ.pop("DETENT_DATABASE", None)


def inherited() -> dict[str, str]:
    """The environment that programs started by a worker may take from."""
    return dict(os.environ)


def wants_colour() -> bool:
    """Whether the user has not asked for plain output, as no-color.org has it."""
    return not os.environ.get("NO_COLOR")


def _text(raw: Any) -> str:
    return str(raw).strip()


def _path(raw: Any) -> Path:
    if "\0" in str(raw):
        raise ValueError("must be a path")
    return Path(raw)


def _whole(least: int, most: int, meaning: str) -> Callable[[Any], int]:
    def read(raw: Any) -> int:
        wrong = f"is {_text(raw)!r}, and must be {meaning} from {least} to {most}"
        try:
            value = int(_text(raw))
        except ValueError:
            raise ValueError(wrong) from None
        if not least <= value <= most:
            raise ValueError(wrong)
        return value

    return read


def _seconds(least: float, most: float) -> Callable[[Any], float]:
    def read(raw: Any) -> float:
        wrong = f"is {_text(raw)!r}, and must be a number of seconds from {least:g} to {most:g}"
        try:
            value = float(_text(raw))
        except ValueError:
            raise ValueError(wrong) from None
        if not (math.isfinite(value) and least <= value <= most):
            raise ValueError(wrong)
        return value

    return read


def _switch(raw: Any) -> bool:
    match _text(raw).lower():
        case "true" | "yes" | "on" | "1":
            return True
        case "false" | "no" | "off" | "0":
            return False
    raise ValueError(f"is {_text(raw)!r}, and must be true or false")


def _choice(words: Sequence[str]) -> Callable[[Any], str]:
    def read(raw: Any) -> str:
        value = _text(raw).lower()
        if value not in words:
            raise ValueError(f"is {_text(raw)!r}, and must be one of {', '.join(words)}")
        return value

    return read


def _words(pattern: str, meaning: str) -> Callable[[Any], tuple[str, ...]]:
    def read(raw: Any) -> tuple[str, ...]:
        parts = [raw] if isinstance(raw, str) else list(raw)
        words = [word.strip() for part in parts for word in str(part).split(",") if word.strip()]
        for word in words:
            if not re.fullmatch(pattern, word):
                raise ValueError(f"has {word!r}, and must be {meaning}")
        if not words:
            raise ValueError(f"is empty, and must be {meaning}")
        return tuple(dict.fromkeys(words))

    return read


def _database(raw: Any) -> str:
    text = _text(raw)
    right = "must look like postgresql://user:password@host:5432/name"
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - reading it checks it
    except ValueError as error:
        raise ValueError(f"is no database address ({error}); it {right}") from None
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError(f"is {masked(text)!r}; it {right}")
    return text


def _http(raw: Any) -> str:
    text = _text(raw).rstrip("/")
    try:
        parts = urlsplit(text)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine or parts.query or parts.fragment:
        raise ValueError(f"is {text!r}, and must look like http://127.0.0.1:8642")
    return text


def _loopback(raw: Any) -> str:
    import ipaddress

    text = _text(raw).strip("[]")
    try:
        fine = text == "localhost" or ipaddress.ip_address(unquote(text)).is_loopback
    except ValueError:
        fine = False
    if not fine:
        raise ValueError(
            f"is {text!r}, and must be a loopback address such as 127.0.0.1: "
            "whoever reaches the server can run commands on it, and it asks for no key"
        )
    return text


FLAG_NAMES = {"imports": "--import", "pools": "--pool"}

SETTINGS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "data": ("DETENT_DATA", _path),
    "database": ("DETENT_DATABASE", _database),
    "host": ("DETENT_HOST", _loopback),
    "port": ("DETENT_PORT", _whole(0, 65535, "a port, or 0 for any free one,")),
    "url": ("DETENT_URL", _http),
    "imports": ("DETENT_IMPORT", _words(r"[^\W\d]\w*(\.[^\W\d]\w*)*", "names of modules, such as my.tasks")),
    "slots": ("DETENT_SLOTS", _whole(1, 200_000, "a number")),
    "workers": ("DETENT_WORKERS", _whole(1, 64, "a number of processes")),
    "schedulers": ("DETENT_SCHEDULERS", _whole(1, 64, "a number of processes")),
    "pools": ("DETENT_POOLS", _words(r"[a-z0-9_-]{1,63}", "names of pools, such as default")),
    "heartbeat": ("DETENT_HEARTBEAT", _seconds(0.1, 3600)),
    "lease": ("DETENT_LEASE", _seconds(0.2, 86_400)),
    "grace": ("DETENT_GRACE", _seconds(0, 86_400)),
    "standby": ("DETENT_STANDBY", _switch),
    "retention_days": ("DETENT_RETENTION_DAYS", _whole(0, 36_500, "a number of days, or 0 for ever,")),
    "allow_private_callbacks": ("DETENT_ALLOW_PRIVATE_CALLBACKS", _switch),
    "log_level": ("DETENT_LOG_LEVEL", _choice(LOG_LEVELS)),
    "log_format": ("DETENT_LOG_FORMAT", _choice(LOG_FORMATS)),
}
