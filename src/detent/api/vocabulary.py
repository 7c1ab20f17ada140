"""The names a job's definition may use on the wire.

Real names, other spellings that are understood, names of features that are not built yet (refused as such,
never ignored), and names that only answers have.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from detent.api.refusals import Refusals

SCHEDULES = ("scheduled_at", "delay", "cron", "every")

DEFINITION = (
    "name", "task", "payload", *SCHEDULES, "timezone", "dst", "start_at", "end_at", "priority",
    "timeout_seconds", "max_retries", "retry_backoff", "retry_delay_seconds",
    "deadline_seconds", "callback_url", "tags", "pool", "dead_letter",
)  # fmt: skip

# Other spellings of one field. `at` and `schedule` stand for whichever schedule their text is.
ALIASES = {"timeout_ms": "timeout_seconds", "config": "payload", "params": "payload"}
EITHER_SCHEDULE = ("at", "schedule")

LATER = frozenset({
    "event", "retry", "start_deadline_seconds", "concurrency_policy", "misfire",
    "resources", "labels", "calendar", "jitter_seconds", "window_seconds", "max_runs",
    "rate_limit", "delivery", "depends_on", "hooks",
})  # fmt: skip

ANSWERS_ONLY = frozenset(
    {"job_id", "status", "next_run_at", "revision", "created_at", "updated_at", "parked_reason"}
)

KNOWN = frozenset({*DEFINITION, *ALIASES, *EITHER_SCHEDULE, "type", "idempotency_key"})


class Given:
    """The fields of a request by their real names, each with the name that the request used."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, Any]] = {}

    def put(self, name: str, label: str, value: Any, refusals: Refusals) -> None:
        if name in self._values:
            other = self._values[name][0]
            refusals.add(label, f"says the same as {other!r}: give only one of them", "conflicting_fields")
            return
        self._values[name] = (label, value)

    def __iter__(self) -> Iterator[tuple[str, str, Any]]:
        """Each one's real name, the name that the request used, and its value."""
        return ((name, label, value) for name, (label, value) in self._values.items())

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def label(self, name: str) -> str:
        return self._values[name][0]

    def value(self, name: str) -> Any:
        """The raw value; None also for a field that is absent."""
        found = self._values.get(name)
        return None if found is None else found[1]


def refuse_unknown(names: Iterable[str], known: Iterable[str], refusals: Refusals, within: str = "") -> None:
    """Refuse every name that is not known, with the nearest one that is."""
    known = sorted(known)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name[:64], known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
            refusals.add(f"{within}{name[:100]}", f"is no known field{hint}", "unknown_field")


def sort_fields(
    fields: Mapping[str, Any], refusals: Refusals, *, more: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The fields that may be read; the others are refused, each for its own reason."""
    usable: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in fields.items():
        if name in KNOWN or name in more:
            usable[name] = value
        elif name in LATER:
            refusals.add(name, "is not available yet", "not_available")
        elif name in ANSWERS_ONLY:
            refusals.add(name, "is set by the server and cannot be given", "read_only")
        else:
            unknown.append(name)
    if unknown:
        refuse_unknown(unknown, KNOWN | more, refusals)
    return usable
