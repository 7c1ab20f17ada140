"""What an edit, a pause or a resume does to a job: pure, from where the job stands and what time it is.

The rules that keep "each instant once" true through changes: an instant up to `decided_through` is never
decided again, except that a one-time job set to such an instant gets a new generation, which makes it another
instant; what passed while a job was paused goes into the ledger as skipped, once; and what a job has open
when its schedule changes no longer decides about the job's end.
"""

from __future__ import annotations

from datetime import datetime

from detent.api.job_fields import Definition
from detent.api.values import to_millisecond
from detent.model.errors import Conflict, InvalidInput
from detent.model.job import JobSpec
from detent.store.jobs import Change, Revision, Skipped, Standing
from detent.when.hashed import PREVIEW_SEED
from detent.when.of import rule_of
from detent.when.rule import NextFires, Once, count_fires, last_fire, next_fire

_remembered = NextFires()


def armed(now: datetime) -> datetime:
    """The instant from which a schedule set now counts: on a whole millisecond, as answers show it."""
    return to_millisecond(now)


def first_due(
    spec: JobSpec, armed_at: datetime, after: datetime, seed: int = PREVIEW_SEED
) -> datetime | None:
    """When a schedule is due first: a one-time job at its instant, also a past one; a recurring one at its
    first instant after `after`; None for a job without a schedule.
    """
    rule = rule_of(spec, armed_at, seed)
    if isinstance(rule, Once):
        return rule.at
    due = _remembered.next_fire(rule, after)
    if due is None and spec.recurring:
        field = "end_at" if spec.end_at is not None else "cron" if spec.cron is not None else "every"
        raise InvalidInput.of(field, "leaves no instant to fire at", "never_fires")
    return due


def pause(standing: Standing) -> Change | None:
    """Fire nothing until resumed."""
    _refuse_ended(standing, "paused")
    if standing.timer_status == "paused":
        return None
    # A one-time job that fired already has nothing left to be late for.
    due_at = None if standing.timer_status == "done" else standing.due_at
    return Change("paused", due_at, _decided(standing), standing.generation)


def resume(standing: Standing, now: datetime) -> Change | None:
    """Fire again: a one-time job at its instant, or late; a recurring one from the next instant on."""
    _refuse_ended(standing, "resumed")
    if standing.timer_status not in ("paused", "parked"):
        return None
    spec, due_at, decided = standing.job.spec, standing.due_at, _decided(standing)
    if not spec.recurring:
        status = "scheduled" if due_at is not None else "done" if spec.once else "idle"
        return Change(status, due_at, decided, _generation(standing, spec, due_at, decided))
    skipped = _missed(standing, now)
    if skipped is not None:
        decided = skipped.last
    rule = rule_of(spec, standing.job.armed_at, standing.job.job_id.int)
    due_at = _remembered.next_fire(rule, _later(now, decided))
    status = "done" if due_at is None else "scheduled"  # its last instant may have passed meanwhile
    return Change(status, due_at, decided, standing.generation, skipped=skipped)


def _decided(standing: Standing) -> datetime | None:
    """Through which instant everything is decided. One that parked its timer is in the ledger as such."""
    if standing.timer_status != "parked" or standing.due_at is None:
        return standing.decided_through
    return _later(standing.due_at, standing.decided_through)


def _generation(standing: Standing, spec: JobSpec, due_at: datetime | None, decided: datetime | None) -> int:
    """One more for a one-time job that is set to an instant which was decided before."""
    again = spec.once and due_at is not None and decided is not None and due_at <= decided
    return standing.generation + again


def _missed(standing: Standing, now: datetime) -> Skipped | None:
    """The instants that passed while the job did not fire, of which the ledger knows nothing yet."""
    first, decided = standing.due_at, _decided(standing)
    if first is None or first > now:
        return None
    rule = rule_of(standing.job.spec, standing.job.armed_at, standing.job.job_id.int)
    if decided is not None and first <= decided:
        first = next_fire(rule, decided)
        if first is None or first > now:
            return None
    last = last_fire(rule, first, now) or first
    return Skipped(first, last, 1 + count_fires(rule, first, now), standing.timer_status)


def _later(at: datetime, other: datetime | None) -> datetime:
    return at if other is None else max(at, other)


def edit(standing: Standing, wanted: Definition, now: datetime, status: str | None = None) -> Change | None:
    """Give the job another definition, and pause or resume it if `status` says so."""
    if standing.ended == "cancelled":
        raise Conflict("wrong_state", "the job was cancelled: create a new one")
    job = standing.job
    rescheduled = wanted.spec.schedule != job.spec.schedule
    if rescheduled:
        change = _reschedule(standing, wanted, now)
    elif (wanted.spec, wanted.payload) != (job.spec, job.payload):
        change = Change(
            standing.timer_status,
            standing.due_at,
            standing.decided_through,
            standing.generation,
            Revision(wanted.spec, wanted.payload, job.armed_at),
        )
    else:
        return _to_status(standing, status, now)
    return _with_status(standing, change, status, now)


def _reschedule(standing: Standing, wanted: Definition, now: datetime) -> Change:
    spec, decided = wanted.spec, _decided(standing)
    armed_at = armed(now)
    # What passed under the schedule before goes into the ledger; a parked rule cannot be asked.
    skipped = _missed(standing, now) if standing.timer_status == "paused" else None
    if skipped is not None:
        decided = skipped.last
    due_at = first_due(spec, armed_at, _later(now, decided), standing.job.job_id.int)
    if standing.timer_status == "paused" and standing.ended is None:
        status = "paused"
    else:
        status = "idle" if due_at is None else "scheduled"
    return Change(
        status,
        due_at,
        decided,
        _generation(standing, spec, due_at, decided),
        Revision(spec, wanted.payload, armed_at),
        skipped,
        revive=standing.ended is not None,
        detach=True,
    )


def _with_status(standing: Standing, change: Change, status: str | None, now: datetime) -> Change:
    """The same change, with the job paused or resumed besides."""
    assert change.revision is not None
    if status is None or (standing.ended is not None and not change.revive):
        if status is not None:
            _refuse_ended(standing, "paused" if status == "paused" else "resumed")
        return change
    spec = change.revision.spec
    if status == "paused":
        due_at = None if change.timer_status == "done" else change.due_at
        return _replaced(change, "paused", due_at)
    if change.timer_status not in ("paused", "parked"):
        return change
    if change.detach:  # a new schedule: it has no past
        return _replaced(change, "idle" if change.due_at is None else "scheduled", change.due_at)
    resumed = resume(standing, now)
    assert resumed is not None
    return Change(
        resumed.timer_status,
        resumed.due_at,
        resumed.decided_through,
        resumed.generation,
        Revision(spec, change.revision.payload, change.revision.armed_at),
        skipped=resumed.skipped,
    )


def _to_status(standing: Standing, status: str | None, now: datetime) -> Change | None:
    if status is None:
        return None
    return pause(standing) if status == "paused" else resume(standing, now)


def _replaced(change: Change, status: str, due_at: datetime | None) -> Change:
    return Change(
        status,
        due_at,
        change.decided_through,
        change.generation,
        change.revision,
        change.skipped,
        change.revive,
        change.detach,
    )


def _refuse_ended(standing: Standing, verb: str) -> None:
    if standing.ended is not None:
        raise Conflict("wrong_state", f"the job is {standing.ended}: it cannot be {verb}")
