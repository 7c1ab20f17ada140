"""How long to wait before the next attempt. Pure."""

from __future__ import annotations

from datetime import timedelta

from detent.model.job import JobSpec

CAP_SECONDS = 24 * 3600.0


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
