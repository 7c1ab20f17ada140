"""Answers as JSON: instants in UTC with `Z` and milliseconds, stored JSON as it was stored."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from detent.api.answer import Answer
from detent.model.execution import Attempt, ErrorInfo, Execution
from detent.model.job import Job, PythonTask, Task
from detent.store.alerts import Alert
from detent.store.dead_letters import DeadLetter
from detent.store.executions import Detail
from detent.store.fleet import NodeRow, ShardRow, WorkerRow
from detent.store.jobs import Fire
from detent.store.stats import CAP, Fleet, Overview
from detent.when.instant import format_instant

_MILLISECOND = timedelta(milliseconds=1)
_encode = msgspec.json.Encoder().encode


def json_answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    return Answer(_encode(body), status, headers)


def instant(at: datetime | None) -> str | None:
    return None if at is None else format_instant(at)


def page(items: Iterable[Any], next_cursor: str | None) -> dict[str, Any]:
    return {"items": list(items), "next_cursor": next_cursor}


def job(one: Job) -> dict[str, Any]:
    spec = one.spec
    return {
        "job_id": one.job_id,
        "name": spec.name,
        "status": one.status,
        "next_run_at": instant(one.next_run_at),
        "task": task(spec.task),
        "payload": msgspec.Raw(one.payload.encode()),
        "scheduled_at": instant(spec.scheduled_at),
        "delay": number(spec.delay),
        "cron": spec.cron,
        "every": number(spec.every),
        "timezone": spec.timezone,
        "dst": spec.dst,
        "start_at": instant(spec.start_at),
        "end_at": instant(spec.end_at),
        "priority": spec.priority,
        "timeout_seconds": number(spec.timeout_seconds),
        "max_retries": spec.max_retries,
        "retry_backoff": spec.retry_backoff,
        "retry_delay_seconds": number(spec.retry_delay_seconds),
        "deadline_seconds": number(spec.deadline_seconds),
        "dead_letter": spec.dead_letter,
        "callback_url": spec.callback_url,
        "tags": spec.tags,
        "pool": spec.pool,
        "idempotency_key": one.idempotency_key,
        "parked_reason": one.parked_reason,
        "revision": one.revision,
        "created_at": instant(one.created_at),
        "updated_at": instant(one.updated_at),
    }


def task(one: Task) -> dict[str, Any]:
    if isinstance(one, PythonTask):
        return {"kind": "python", "name": one.name}
    return {"kind": "shell", "command": one.command, "env": one.env, "cwd": one.cwd}


def execution(one: Execution) -> dict[str, Any]:
    """As a list shows it: without what only a reading of one fetches."""
    return {
        "execution_id": one.execution_id,
        "job_id": one.job_id,
        "status": one.status,
        "cause": one.cause,
        "scheduled_for": instant(one.scheduled_for),
        "queued_at": instant(one.queued_at),
        "started_at": instant(one.started_at),
        "finished_at": instant(one.finished_at),
        "duration_ms": _between(one.started_at, one.finished_at),
        "lateness_ms": _between(one.scheduled_for, one.started_at),
        "attempt": one.attempt,
        "worker_id": one.worker_id,
        "result": None if one.result is None else msgspec.Raw(one.result.encode()),
        "error": None if one.error is None else error(one.error),
        "trace_id": one.execution_id.hex,
        "revision": one.revision,
        "reason": one.reason,
        "source_id": one.source_id,
    }


def detail(one: Detail) -> dict[str, Any]:
    return {
        **execution(one.execution),
        "progress_pct": None if one.progress is None else one.progress.pct,
        "progress_message": None if one.progress is None else one.progress.message,
        "attempts": [attempt(each) for each in one.attempts],
        "stdout": one.output.stdout,
        "stderr": one.output.stderr,
    }


def attempt(one: Attempt) -> dict[str, Any]:
    return {
        "attempt": one.attempt,
        "outcome": one.outcome,
        "worker_id": one.worker_id,
        "started_at": instant(one.started_at),
        "finished_at": instant(one.finished_at),
        "duration_ms": _between(one.started_at, one.finished_at),
        "error": None if one.error is None else error(one.error),
    }


def error(one: ErrorInfo) -> dict[str, Any]:
    return {
        "type": one.type,
        "message": one.message,
        "traceback": one.traceback,
        "exit_code": one.exit_code,
    }


def fire(one: Fire) -> dict[str, Any]:
    return {
        "nominal_at": instant(one.nominal_at),
        "decision": one.decision,
        "decided_at": instant(one.decided_at),
        "lateness_ms": max(0.0, round((one.decided_at - one.nominal_at) / _MILLISECOND, 3)),
        "through_at": instant(one.through_at),
        "instants": one.instants,
        "execution_id": one.execution_id,
        "revision": one.revision,
        "generation": one.generation,
        "node_id": one.node_id,
        "reason": one.reason,
    }


def dead_letter(one: DeadLetter) -> dict[str, Any]:
    return {
        "execution_id": one.execution_id,
        "job_id": one.job_id,
        "name": one.name,
        "revision": one.revision,
        "status": one.status,
        "reason": one.reason,
        "error": None if one.error is None else error(one.error),
        "died_at": instant(one.died_at),
        "settled_at": instant(one.settled_at),
        "replayed_as": one.replayed_as,
        "note": one.note,
    }


def alert(one: Alert) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "subject": one.subject,
        "message": one.message,
        "times": one.times,
        "raised_at": instant(one.raised_at),
        "last_at": instant(one.last_at),
    }


def node(one: NodeRow) -> dict[str, Any]:
    return {
        "node_id": one.node_id,
        "host": one.host,
        "pid": one.pid,
        "live": one.live,
        "standby": one.standby,
        "leaving": one.leaving,
        "shards": one.shards,
        "lag_ms": round(one.lag_ms, 3),
        "skew_ms": None if one.skew_ms is None else round(one.skew_ms, 3),
        "beat_at": instant(one.beat_at),
        "started_at": instant(one.started_at),
        "ended_at": instant(one.ended_at),
    }


def shard(one: ShardRow, now: datetime) -> dict[str, Any]:
    behind = _between(one.next_due_at, now)
    return {
        "shard": one.shard,
        "node_id": one.node_id,
        "epoch": one.epoch,
        "expires_at": instant(one.expires_at),
        "next_due_at": instant(one.next_due_at),
        "lag_ms": max(0.0, behind) if behind is not None else 0.0,
    }


def worker(one: WorkerRow) -> dict[str, Any]:
    return {
        "worker_id": one.worker_id,
        "name": one.name,
        "host": one.host,
        "pid": one.pid,
        "status": one.status,
        "live": one.live,
        "pools": one.pools,
        "slots": one.slots,
        "in_flight": one.in_flight,
        "tasks": one.tasks,
        "stale_writes": one.stale_writes,
        "beat_at": instant(one.beat_at),
        "started_at": instant(one.started_at),
        "ended_at": instant(one.ended_at),
    }


def overview(one: Overview) -> dict[str, Any]:
    return {
        "jobs": one.jobs,
        "executions": {
            "open": one.open,
            "closed_last_hour": one.closed_last_hour,
            "closed_last_day": one.closed_last_day,
        },
        "due": {"next_minute": one.due_next_minute, "next_hour": one.due_next_hour},
        "fleet": fleet(one.fleet),
        "alerts": [alert(each) for each in one.alerts],
        "dead_letters_waiting": one.dead_letters_waiting,
        "stale_writes": one.stale_writes,
        "counted_up_to": CAP,
    }


def fleet(one: Fleet) -> dict[str, Any]:
    return {
        "shards_leased": one.shards_leased,
        "workers_live": one.workers_live,
        "slots_live": one.slots_live,
        "database_time": instant(one.database_time),
    }


def number(value: float | None) -> float | int | None:
    """Whole seconds without the `.0`."""
    return int(value) if value is not None and value == int(value) else value


def _between(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else round((end - start) / _MILLISECOND, 3)
