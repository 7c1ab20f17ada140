"""What an ended attempt means for its execution. Pure: everything it needs is in the arguments.

succeeded            → closed, succeeded
cancelled            → closed, cancelled
released             → back to the queue, uncounted; after a pause when its worker does not know the task
failed | timed_out   → waits for its next attempt while there is one, the error allows it and the deadline
                       is after it; else dead_lettered, or its own outcome when the job opted out of that
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from detent.finish.retry import retry_delay
from detent.model.execution import ClosedStatus
from detent.model.work import UNKNOWN_TASK, Finished


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
            if finished.error is None or finished.error.type != UNKNOWN_TASK:
                return _RELEASED
            return PutBack("queued", _pause_of(finished.claim.attempt), 0, finished.error.message)
        case "failed" | "timed_out" as outcome:
            spec = finished.claim.spec
            failures = finished.claim.failures + 1
            if finished.retryable and failures <= spec.max_retries:
                delay = retry_delay(spec, failures)
                deadline = finished.claim.deadline_at
                if deadline is None or finished.finished_at + delay < deadline:
                    return PutBack("retrying", delay, 1, f"attempt {outcome}; will retry")
                why = "deadline"
            else:
                why = "out_of_attempts" if finished.retryable else "not_retryable"
            return Close("dead_lettered" if spec.dead_letter else outcome, 1, why)


def quarantine(finished: Finished) -> Close:
    """No worker knows its task, and none has for a while: a person has to see to it."""
    return Close("dead_lettered" if finished.claim.spec.dead_letter else "failed", 0, "unknown_task")


def _pause_of(attempt: int) -> timedelta:
    """How long work that was handed back as unknown is left alone: 1, 2, 4 … 32 s."""
    return timedelta(seconds=2.0 ** min(max(attempt, 1) - 1, 5))
