"""How long to wait before the next attempt. Pure."""

from __future__ import annotations

from datetime import timedelta

from detent.model.job import JobSpec

# As long as the longest pause that a job may ask for: what was asked is never cut, only what grew out of it.
CAP_SECONDS = 30 * 86_400.0


def retry_delay(spec: JobSpec, failures: int) -> timedelta:
    """The pause after the n-th counted failure: exponential is 30, 60, 120 s … by default."""
    match spec.retry_backoff:
        case "exponential":
            factor = 2.0 ** min(failures - 1, 40)
        case "linear":
            factor = float(failures)
        case "fixed":
            factor = 1.0
    return timedelta(seconds=min(CAP_SECONDS, spec.retry_delay_seconds * factor))
