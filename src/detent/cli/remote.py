"""The server that a command talks to, and how a person names things there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from detent.cli.exits import Absent, Ambiguous
from detent.cli.options import as_json_option, settings
from detent.cli.own import hint
from detent.cli.times import local
from detent.runtime.config import load

if TYPE_CHECKING:
    from detent.sdk.client import Client
    from detent.sdk.records import Job

F = TypeVar("F", bound=Callable[..., Any])

ENDED = frozenset({"completed", "failed", "cancelled"})
SHOWN_CANDIDATES = 10


def talks_to_server(function: F) -> F:
    """Give a command --url and --json."""
    return settings("url")(as_json_option(function))


def connect(url: str | None, *, timeout: float = 10.0) -> Client:
    from detent.sdk.client import Client

    return Client(load({"url": url}).config.server_url, timeout)


def is_id(text: str) -> bool:
    return len(text) == 36 and text.count("-") == 4


def find_job(client: Client, text: str) -> Job:
    """A job by its id, or by a name that only one job has; one that is not over is preferred."""
    if is_id(text):
        return client.job(text)
    named = [job for job in client.jobs(name=text, limit=500) if job.name == text]
    if not named:
        raise Absent(f"there is no job with the name or id {text!r}; see: {hint('job list')}")
    going = [job for job in named if job.status not in ENDED]
    candidates = going or named
    if len(candidates) > 1:
        raise Ambiguous(
            f"{len(candidates)} jobs are called {text!r}: name one by its id",
            [_candidate(job) for job in candidates[:SHOWN_CANDIDATES]],
        )
    return candidates[0]


def _candidate(job: Job) -> str:
    return f"{job.job_id}  {job.status}, created {local(job.created_at)}"
