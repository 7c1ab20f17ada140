"""Holds the accounts of a run against what was promised, and names every difference.

Scheduling is exactly once: each instant that was owed has one ledger row, or lies in one range that says
why it did not run, and each fired row has one execution of its own, which is closed once. Besides, the instants that were owed are computed from what was asked for, and
matched to what was witnessed, whatever the tables say of one another.

Running is at least once, and that fixes which way each inclusion goes. An attempt is committed before it
starts, so everything witnessed is recorded: the same execution, attempt and token, also when its worker
died. A task's last line is written before its end is reported, so an attempt recorded as succeeded or failed
was witnessed to its end. The other way round nothing is promised: what was witnessed to its end may be
recorded as lost with its worker, and then another attempt must follow it.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

from customer import Acknowledged, instant
from story import Row, Story
from witness import said

FIRED = ("fired", "fired_late")
RAN = ("succeeded", "failed")
# An instant is answered for within this, counted from when nothing was broken any more.
ANSWERED_WITHIN = 60.0
# Between a nominal instant and its decision in a system at rest.
DECIDED_WITHIN = timedelta(seconds=1)
WIRE_PRECISION = timedelta(milliseconds=1)
# The witness and the database read the same clock of the same machine; it may be slewed.
CLOCK_TOLERANCE = 0.005


def differences(story: Story) -> list[str]:
    """Everything in which the accounts differ from the promises or from each other."""
    return [f"{check.__name__.lstrip('_')}: {what}" for check in CHECKS for what in check(story)]


def jobs_are_those_acknowledged(story: Story) -> Iterator[str]:
    owed = Counter(job.job_id for job in story.owed)
    yield from (f"job {job} was answered for {n} keys" for job, n in owed.items() if n > 1)
    stored = {row["job_id"] for row in story.tables["jobs"]}
    yield from (f"acknowledged job {job} is gone" for job in owed if job not in stored)
    yield from (f"job {job} was made by a repeated request" for job in stored - set(owed))
    yield from (f"the API does not list job {job}" for job in stored - set(story.api_jobs))


def every_instant_is_decided_once(story: Story) -> Iterator[str]:
    ledger = _grouped(story.tables["fires"], "job_id")
    timers = {row["job_id"]: row for row in story.tables["timers"]}
    for job in story.owed:
        rows = sorted(ledger[job.job_id], key=lambda row: row["nominal_at"])
        for row in rows:
            if row["decision"] not in FIRED and not row["reason"]:
                yield f"{job.job_id} at {row['nominal_at']}: {row['decision']} without a reason"
            if row["decision"] == "parked":
                yield f"{job.job_id} was parked: {row['reason']}"
        if job.manual:
            yield from (f"{job.job_id} has no schedule, and fired at {row['nominal_at']}" for row in rows)
        elif job.recurring:
            yield from _tiles(job, rows, timers[job.job_id], story)
        else:
            yield from _once(job, rows)
    yield from (f"a ledger row of no job: {job}" for job in ledger.keys() - {j.job_id for j in story.owed})


def _once(job: Acknowledged, rows: list[Row]) -> Iterator[str]:
    due = job.created_at + timedelta(seconds=job.body["delay"])
    if [row["nominal_at"] for row in rows] != [due]:
        yield f"{job.job_id} is due once at {due}; the ledger has {[str(r['nominal_at']) for r in rows]}"
    yield from (f"{job.job_id}: {row['decision']}" for row in rows if row["decision"] not in FIRED)


def _first_and_step(job: Acknowledged) -> tuple[datetime, timedelta]:
    """Of a recurring job."""
    if "every" in job.body:
        step = timedelta(seconds=job.body["every"])
        return job.created_at + step, step
    step = timedelta(minutes=1)
    return job.created_at.replace(second=0, microsecond=0) + step, step


def _tiles(job: Acknowledged, rows: list[Row], timer: Row, story: Story) -> Iterator[str]:
    """A recurring job's rows and ranges follow each other without a gap, from its first instant on."""
    following, step = _first_and_step(job)
    for row in rows:
        through = row["through_at"] or row["nominal_at"]
        if row["nominal_at"] != following:
            yield f"{job.job_id}: the ledger goes on at {row['nominal_at']} instead of {following}"
        if row["through_at"] and row["instants"] != (through - row["nominal_at"]) // step + 1:
            yield f"{job.job_id}: the range from {row['nominal_at']} counts {row['instants']} instants"
        following = through + step
    paused = datetime.fromtimestamp(story.paused_at, UTC)
    if following < paused - DECIDED_WITHIN:
        yield f"{job.job_id}: {following} was not decided, and it was paused at {paused}"
    if timer["due_at"] != following:
        yield f"{job.job_id}: its timer says {timer['due_at']}, its ledger leads to {following}"


def every_owed_instant_ran(story: Story) -> Iterator[str]:
    """Each job's instants, as a customer computes them, against the executions that were seen to run, each for one
    of them and within its window. The one whose window ends first is served first, which finds a matching
    if there is one. What has none is in the ledger with a reason.
    """
    began: dict[UUID, float] = {}
    for line in story.lines:
        began[line.execution_id] = min(line.at, began.get(line.execution_id, line.at))
    starts = defaultdict(list)
    for row in story.tables["executions"]:
        if row["execution_id"] in began and row["cause"] == "schedule":
            starts[row["job_id"]].append(began[row["execution_id"]])
    due = {row["job_id"]: row["due_at"] for row in story.tables["timers"]}
    excused = _grouped([row for row in story.tables["fires"] if row["decision"] not in FIRED], "job_id")
    for job in story.owed:
        if job.manual:
            continue
        owed = [
            at
            for at in _owed(job, due[job.job_id])
            if not any(row["nominal_at"] <= at <= (row["through_at"] or at) for row in excused[job.job_id])
        ]
        yield from _matched(job, owed, sorted(starts[job.job_id]), story.healed_at)


def _owed(job: Acknowledged, until: datetime | None) -> Iterator[datetime]:
    """The instants that were owed; those of a recurring job as far as its timer has come."""
    if not job.recurring:
        yield job.created_at + timedelta(seconds=job.body["delay"])
        return
    at, step = _first_and_step(job)
    while until is not None and at < until:
        yield at
        at += step


def _matched(job: Acknowledged, owed: list[datetime], starts: list[float], healed: float) -> Iterator[str]:
    waiting: list[tuple[float, float]] = []  # the ends of windows that are open, and when they began
    coming = [at.timestamp() for at in reversed(owed)]
    for start in starts:
        while coming and coming[-1] <= start + CLOCK_TOLERANCE:
            at = coming.pop()
            heapq.heappush(waiting, (max(at, healed) + ANSWERED_WITHIN, at))
        if not waiting:
            yield f"{job.job_id} ran at {start} for no instant that was owed"
            continue
        end, at = heapq.heappop(waiting)
        if start > end:
            yield f"{job.job_id} ran at {start} for {at}: too late"
    yield from (f"{job.job_id} never ran for {at}" for at in [*(at for _, at in waiting), *coming])


def every_fire_has_its_execution(story: Story) -> Iterator[str]:
    fired = [row for row in story.tables["fires"] if row["decision"] in FIRED]
    closed = {row["execution_id"]: row for row in story.tables["executions"]}
    if len(closed) != len(story.tables["executions"]):
        yield "an execution was closed twice"
    for execution, n in Counter(row["execution_id"] for row in fired).items():
        if n > 1:
            yield f"execution {execution} stands for {n} instants"
    for row in fired:
        execution = closed.get(row["execution_id"])
        if execution is None:
            yield f"{row['job_id']} at {row['nominal_at']} has no closed execution {row['execution_id']}"
        elif (execution["job_id"], execution["scheduled_for"]) != (row["job_id"], row["nominal_at"]):
            yield f"execution {row['execution_id']} is of another instant than its ledger row"
    by_hand = {one for one, row in closed.items() if row["cause"] == "manual"}
    yield from (f"execution {one} was promised and is not there" for one in set(story.runs) - by_hand)
    yield from (f"execution {one} was asked for by nobody" for one in by_hand - set(story.runs))
    for stray in closed.keys() - {row["execution_id"] for row in fired} - by_hand:
        yield f"execution {stray} has no ledger row"


def nothing_is_left_open(story: Story) -> Iterator[str]:
    yield from (f"{row['execution_id']} is still {row['state']}" for row in story.tables["live"])
    known = {row["execution_id"] for row in story.tables["executions"]}
    for row in story.tables["attempts"]:
        if row["execution_id"] not in known:
            yield f"attempt {row['attempt']} of {row['execution_id']} has no execution"
    present = [row for row in story.tables["workers"] if row["status"] in ("live", "draining")]
    if len(present) != story.workers:
        yield f"{len(present)} workers are present instead of {story.workers}"
    due = [row for row in story.tables["timers"] if row["status"] == "scheduled"]
    yield from (f"{row['job_id']} is still due at {row['due_at']}" for row in due)


def every_execution_ended_as_it_must(story: Story) -> Iterator[str]:
    owed = {job.job_id: job for job in story.owed}
    attempts = _grouped(story.tables["attempts"], "execution_id")
    letters = Counter(row["execution_id"] for row in story.tables["dead_letters"])
    for row in story.tables["executions"]:
        name, job, tried = row["execution_id"], owed.get(row["job_id"]), attempts[row["execution_id"]]
        if job is None:
            continue
        if row["status"] != job.ends:
            yield f"{name} ended {row['status']} instead of {job.ends}"
        outcomes = Counter(attempt["outcome"] for attempt in tried)
        if outcomes["succeeded"] != (job.ends == "succeeded"):
            yield f"{name} has {outcomes['succeeded']} successes"
        if row["failures"] != outcomes["failed"] or row["losses"] != outcomes["worker_lost"]:
            yield f"{name} counts {row['failures']} failures and {row['losses']} losses, and had {outcomes}"
        if job.ends == "dead_lettered" and outcomes["failed"] != job.body["max_retries"] + 1:
            yield f"{name} died after {outcomes['failed']} failures"
        if letters[name] != (job.ends == "dead_lettered"):
            yield f"{name} has {letters[name]} dead letters"
        numbers = sorted(attempt["attempt"] for attempt in tried)
        if numbers != list(range(1, row["attempt"] + 1)):
            yield f"{name} has attempts {numbers}, the last being {row['attempt']}"
        if sum(outcomes.values()) != sum(outcomes[known] for known in (*RAN, "worker_lost", "released")):
            yield f"{name} had {outcomes}"


def attempts_follow_each_other(story: Story) -> Iterator[str]:
    """One lease at a time, each under a higher token, and a retry not before its pause is over."""
    owed = {job.job_id: job for job in story.owed}
    jobs = {row["execution_id"]: row["job_id"] for row in story.tables["executions"]}
    for execution, tried in _grouped(story.tables["attempts"], "execution_id").items():
        tried.sort(key=lambda attempt: attempt["attempt"])
        job = owed.get(jobs.get(execution, execution))
        for before, after in pairwise(tried):
            if before["token"] >= after["token"]:
                yield f"{execution}: token {after['token']} follows {before['token']}"
            pause = job.body["retry_delay_seconds"] if job and before["outcome"] == "failed" else 0.0
            earliest = before["finished_at"] + timedelta(seconds=pause - CLOCK_TOLERANCE)
            if after["started_at"] is not None and after["started_at"] < earliest:
                yield f"{execution}: attempt {after['attempt']} began before {earliest}"


def witness_and_history_agree(story: Story) -> Iterator[str]:
    recorded = {(r["execution_id"], r["attempt"], r["token"]): r for r in story.tables["attempts"]}
    lines = defaultdict(list)
    for line in story.lines:
        lines[line.key].append(line)
    for key, told in lines.items():
        events = [line.event for line in told]
        if key not in recorded:
            yield f"{key} was witnessed ({events}) and never recorded"
        if events not in (["start"], ["start", "done"], ["start", "fail"]):
            yield f"{key} was witnessed as {events}"
    for key, row in recorded.items():
        witnessed = lines[key][-1].event if lines[key] else None
        expected = {"succeeded": "done", "failed": "fail"}.get(row["outcome"])
        if expected is not None and witnessed != expected:
            yield f"{key} is recorded as {row['outcome']} ({row.get('error')}), and the witness saw {witnessed}"


def output_is_kept(story: Story) -> Iterator[str]:
    """An end is recorded after the output, so what ended by itself has its words, once, and no others."""
    kept = defaultdict(list)
    for row in story.tables["logs"]:
        kept[row["execution_id"], row["attempt"]].append(row["text"])
    for row in story.tables["attempts"]:
        words = kept[row["execution_id"], row["attempt"]]
        expected = [f"{said(row['execution_id'], row['attempt'])}\n"]
        if words != expected and (row["outcome"] in RAN or words):
            yield f"attempt {row['attempt']} of {row['execution_id']} ({row['outcome']}) wrote {words}"


def callbacks_are_made_or_wait(story: Story) -> Iterator[str]:
    wanted = {job.job_id for job in story.owed if job.body.get("callback_url")}
    waiting = {row["execution_id"] for row in story.tables["callbacks"]}
    for row in story.tables["executions"]:
        told = row["execution_id"] in story.heard or row["execution_id"] in waiting
        if told != (row["job_id"] in wanted):
            yield f"the callback of {row['execution_id']} is {'not wanted' if told else 'lost'}"
    yield from (f"a callback was given up: {row}" for row in story.tables["callbacks"] if row["failed_at"])


def nothing_started_early_or_beside_itself(story: Story) -> Iterator[str]:
    due = {row["execution_id"]: row["scheduled_for"] for row in story.tables["executions"]}
    last: dict[UUID, Any] = {}
    undead = _undead(story)
    for line in sorted(story.lines, key=lambda line: line.at):
        if line.execution_id in due and line.at < due[line.execution_id].timestamp() - CLOCK_TOLERANCE:
            yield f"{line.execution_id} started at {line.at}, before {due[line.execution_id]}"
        if line.pid in story.zombies or (line.execution_id, line.attempt) in undead:
            continue
        before = last.get(line.execution_id)
        if before is not None and line.attempt < before.attempt:
            yield f"attempt {line.attempt} of {line.execution_id} ran beside attempt {before.attempt}"
        last[line.execution_id] = line


def _undead(story: Story) -> set[tuple[UUID, int]]:
    """Attempts of workers that stood still for longer than their lease: their programs ran on meanwhile."""
    workers = {row["worker_id"] for row in story.tables["workers"] if row.get("pid") in story.zombies}
    tried = story.tables["attempts"]
    return {(row["execution_id"], row["attempt"]) for row in tried if row.get("worker_id") in workers}


def the_api_tells_the_same(story: Story) -> Iterator[str]:
    shown = {UUID(row["execution_id"]): row for row in story.api_executions}
    if len(shown) != len(story.api_executions):
        yield "the API lists an execution twice"
    stored = {row["execution_id"]: row for row in story.tables["executions"]}
    yield from (f"only one of API and database has {one}" for one in shown.keys() ^ stored.keys())
    for one in shown.keys() & stored.keys():
        told = (shown[one]["status"], shown[one]["attempt"], UUID(shown[one]["job_id"]))
        if told != (stored[one]["status"], stored[one]["attempt"], stored[one]["job_id"]):
            yield f"the API says {told} of {one}"
        if abs(instant(shown[one]["scheduled_for"]) - stored[one]["scheduled_for"]) >= WIRE_PRECISION:
            yield f"the API says that {one} was due at {shown[one]['scheduled_for']}"
    ends = {row["job_id"]: row["status"] for row in story.tables["job_ends"]}
    for job in story.owed:
        once = not job.recurring and not job.manual
        ended = None if not once else "completed" if job.ends == "succeeded" else "failed"
        if ends.get(job.job_id) != ended:
            yield f"job {job.job_id} is noted as {ends.get(job.job_id)} instead of {ended}"
        shown_as = story.api_jobs.get(job.job_id, {}).get("status")
        if shown_as != (ended or ("scheduled" if job.manual else "paused")):
            yield f"the API says that job {job.job_id} is {shown_as}"


CHECKS: tuple[Callable[[Story], Iterator[str]], ...] = (
    jobs_are_those_acknowledged,
    every_instant_is_decided_once,
    every_owed_instant_ran,
    every_fire_has_its_execution,
    nothing_is_left_open,
    every_execution_ended_as_it_must,
    attempts_follow_each_other,
    witness_and_history_agree,
    output_is_kept,
    callbacks_are_made_or_wait,
    nothing_started_early_or_beside_itself,
    the_api_tells_the_same,
)


def _grouped(rows: list[Row], key: str) -> defaultdict[UUID, list[Row]]:
    groups: defaultdict[UUID, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[key]].append(row)
    return groups
