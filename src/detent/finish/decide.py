"""What an ended attempt means for its execution. Pure: everything it needs is in the arguments.

succeeded            → closed, succeeded
cancelled            → closed, cancelled
released             → back to the queue, uncounted
failed | timed_out   → waits for its next attempt while there is one and the error allows it;
                       else dead_lettered, or its own outcome when the job opted out of dead letters
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from detent.finish.retry import retry_delay
from detent.model.execution import ClosedStatus
from detent.model.work import Finished


@dataclass(frozen=True, slots=True)
class Close:
    status: ClosedStatus
    counted: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PutBack:
    state: str
    delay: timedelta
    counted: int
    reason: str | None = None


Decision = Close | PutBack

_SUCCEEDED = Close("succeeded")
_CANCELLED = Close("cancelled", reason="cancelled on request")
_RELEASED = PutBack("queued", timedelta(0), 0, "handed back by its worker")


def decide(finished: Finished) -> Decision:
    match finished.outcome:
        case "succeeded":
            return _SUCCEEDED
        case "cancelled":
            return _CANCELLED
        case "released" | "worker_lost":
            return _RELEASED
        case "failed" | "timed_out" as outcome:
            spec = finished.claim.spec
            failures = finished.claim.failures + 1
            if finished.retryable and failures <= spec.max_retries:
                return PutBack("retrying", retry_delay(spec, failures), 1, f"attempt {outcome}; will retry")
            why = "out_of_attempts" if finished.retryable else "not_retryable"
            return Close("dead_lettered" if spec.dead_letter else outcome, 1, why)
