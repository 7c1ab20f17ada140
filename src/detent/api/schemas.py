"""The shapes of requests and answers, as JSON Schema for the OpenAPI document."""

from __future__ import annotations

from detent.api.job_fields import BACKOFFS, FOLDS, GAPS, PRIORITIES, TYPES
from detent.api.shapes import (
    ANYTHING,
    COUNTS,
    DURATION,
    FLAG,
    GIVEN_INSTANT,
    INSTANT,
    KEY,
    NAME,
    NUMBER,
    TEXT,
    UUID,
    WHOLE,
    Schema,
    answer,
    or_null,
    ref,
    request,
    words,
)
from detent.api.values import LONGEST_TAG, LONGEST_URL, MOST_TAGS
from detent.api.vocabulary import LATER
from detent.model.execution import CLOSED, OPEN

JOB_STATUSES = ("scheduled", "paused", "running", "completed", "failed", "cancelled")
EXECUTION_STATUSES = (*sorted(OPEN), *sorted(CLOSED))
DECISIONS = (
    "fired", "fired_late", "skipped_overlap", "skipped_misfire", "skipped_calendar", "skipped_paused",
    "skipped_by_user", "skipped_end", "dst_gap", "dst_fold", "parked",
)  # fmt: skip
OUTCOMES = ("running", "succeeded", "failed", "timed_out", "cancelled", "worker_lost", "released")
CAUSES = ("schedule", "manual", "event", "backfill", "replay", "step")


PYTHON_TASK = request({"kind": words("python"), "name": NAME}, "kind", "name")
SHELL_TASK = request(
    {
        "kind": words("shell"),
        "command": {
            "oneOf": [
                {"type": "string", "minLength": 1, "description": "A script for /bin/sh"},
                {
                    "type": "array",
                    "items": TEXT,
                    "minItems": 1,
                    "maxItems": 1000,
                    "description": "A program and its arguments; no shell in between",
                },
            ]
        },
        "env": {"type": ["object", "null"], "additionalProperties": TEXT},
        "cwd": or_null(TEXT),
    },
    "kind",
    "command",
)

SCHEDULE: Schema = {
    "scheduled_at": or_null(GIVEN_INSTANT),
    "delay": or_null(DURATION),
    "cron": or_null(
        {
            **TEXT,
            "description": "Five fields, six with seconds, seven with a year",
            "example": "0 9 * * MON-FRI",
        }
    ),
    "every": or_null({**DURATION, "description": "From 1 s up; seconds or ISO 8601", "example": "PT5M"}),
    "at": or_null({**TEXT, "description": "Another spelling of scheduled_at or cron"}),
    "schedule": or_null({**TEXT, "description": "Another spelling of scheduled_at or cron"}),
    "type": or_null(words(*TYPES)),
    "timezone": or_null({**TEXT, "description": "IANA name; default UTC", "example": "Europe/Berlin"}),
    "dst": or_null(ref("GivenDst")),
    "start_at": or_null({**GIVEN_INSTANT, "description": "Of cron and every: nothing before this instant"}),
    "end_at": or_null({**GIVEN_INSTANT, "description": "Of cron and every: nothing after this instant"}),
}

DEFINITION: Schema = {
    "name": or_null(NAME),
    "task": {"anyOf": [NAME, ref("PythonTask"), ref("ShellTask"), {"type": "null"}]},
    "payload": {"description": "Any JSON, 256 KiB and 200 levels at most"},
    "config": {"description": "Another spelling of payload"},
    "params": {"description": "Another spelling of payload"},
    **SCHEDULE,
    "priority": or_null(words(*PRIORITIES)),
    "timeout_seconds": or_null({**DURATION, "description": "Default 3600"}),
    "timeout_ms": or_null({**NUMBER, "minimum": 1}),
    "max_retries": or_null({**WHOLE, "minimum": 0, "maximum": 1000, "description": "Default 3"}),
    "retry_backoff": or_null(words(*BACKOFFS)),
    "retry_delay_seconds": or_null({**DURATION, "description": "Default 30"}),
    "deadline_seconds": or_null({**DURATION, "description": "From queued to closed, all attempts together"}),
    "dead_letter": or_null(FLAG),
    "callback_url": or_null({**TEXT, "maxLength": LONGEST_URL}),
    "tags": or_null(
        {
            "type": "array",
            "maxItems": MOST_TAGS,
            "items": {"type": "string", "minLength": 1, "maxLength": LONGEST_TAG},
        }
    ),
    "pool": or_null({"type": "string", "pattern": "^[a-z0-9_-]{1,63}$"}),
    "idempotency_key": or_null(KEY),
}

PREVIEW: Schema = {
    **SCHEDULE,
    "from": or_null(GIVEN_INSTANT),
    "count": or_null({**WHOLE, "minimum": 1, "maximum": 1000}),
}

JOB = answer(
    {
        "job_id": UUID,
        "name": NAME,
        "status": words(*JOB_STATUSES),
        "next_run_at": or_null(INSTANT),
        "task": {"anyOf": [ref("PythonTask"), ref("ShellTask")]},
        "payload": ANYTHING,
        "scheduled_at": or_null(INSTANT),
        "delay": or_null(NUMBER),
        "cron": or_null(TEXT),
        "every": or_null(NUMBER),
        "timezone": TEXT,
        "dst": ref("Dst"),
        "start_at": or_null(INSTANT),
        "end_at": or_null(INSTANT),
        "priority": words(*PRIORITIES),
        "timeout_seconds": NUMBER,
        "max_retries": WHOLE,
        "retry_backoff": words(*BACKOFFS),
        "retry_delay_seconds": NUMBER,
        "deadline_seconds": or_null(NUMBER),
        "dead_letter": FLAG,
        "callback_url": or_null(TEXT),
        "tags": {"type": "array", "items": TEXT},
        "pool": TEXT,
        "idempotency_key": or_null(TEXT),
        "parked_reason": or_null({**TEXT, "description": "Why it fires no more although nobody asked"}),
        "revision": WHOLE,
        "created_at": INSTANT,
        "updated_at": INSTANT,
    }
)

ATTEMPT = answer(
    {
        "attempt": WHOLE,
        "outcome": words(*OUTCOMES),
        "worker_id": or_null(UUID),
        "started_at": or_null(INSTANT),
        "finished_at": or_null(INSTANT),
        "duration_ms": or_null(NUMBER),
        "error": or_null(ref("ExecutionError")),
    }
)

EXECUTION = answer(
    {
        "execution_id": UUID,
        "job_id": UUID,
        "status": words(*EXECUTION_STATUSES),
        "cause": words(*CAUSES),
        "scheduled_for": INSTANT,
        "queued_at": INSTANT,
        "started_at": or_null(INSTANT),
        "finished_at": or_null(INSTANT),
        "duration_ms": or_null(NUMBER),
        "lateness_ms": or_null({**NUMBER, "description": "First start less scheduled_for"}),
        "attempt": {**WHOLE, "description": "The number of the last attempt; 0 before the first"},
        "worker_id": or_null(UUID),
        "result": ANYTHING,
        "error": or_null(ref("ExecutionError")),
        "trace_id": TEXT,
        "revision": WHOLE,
        "reason": or_null(TEXT),
        "source_id": or_null({**UUID, "description": "The execution that this one replays"}),
        "replayed_as": or_null({**UUID, "description": "The execution that replays this dead one"}),
        "progress_pct": or_null({**NUMBER, "minimum": 0, "maximum": 100}),
        "progress_message": or_null({**TEXT, "description": "What the task last said it is at"}),
        "attempts": {"type": "array", "items": ref("Attempt")},
        "stdout": {**TEXT, "description": "Its end; /logs has all of it"},
        "stderr": TEXT,
    },
    "replayed_as",
    "progress_pct",
    "progress_message",
    "attempts",
    "stdout",
    "stderr",
)

FIRE = answer(
    {
        "nominal_at": INSTANT,
        "decision": words(*DECISIONS),
        "decided_at": INSTANT,
        "lateness_ms": NUMBER,
        "through_at": or_null({**INSTANT, "description": "The last instant of a range that was not run"}),
        "instants": or_null({**WHOLE, "description": "How many instants a range holds"}),
        "execution_id": or_null(UUID),
        "revision": WHOLE,
        "generation": WHOLE,
        "node_id": or_null(UUID),
        "reason": or_null(TEXT),
    }
)

FLEET = answer({"shards_leased": WHOLE, "workers_live": WHOLE, "slots_live": WHOLE, "database_time": INSTANT})


ALERT = answer(
    {
        "kind": TEXT,
        "subject": TEXT,
        "message": TEXT,
        "times": WHOLE,
        "raised_at": INSTANT,
        "last_at": INSTANT,
    }
)

NODE = answer(
    {
        "node_id": UUID,
        "host": TEXT,
        "pid": WHOLE,
        "live": FLAG,
        "standby": FLAG,
        "leaving": FLAG,
        "shards": WHOLE,
        "lag_ms": {**NUMBER, "description": "How late its last fires were"},
        "skew_ms": or_null({**NUMBER, "description": "How far its host's clock is ahead of the database's"}),
        "beat_at": INSTANT,
        "started_at": INSTANT,
        "ended_at": or_null(INSTANT),
    }
)
SHARD = answer(
    {
        "shard": WHOLE,
        "node_id": or_null(UUID),
        "epoch": WHOLE,
        "expires_at": or_null(INSTANT),
        "next_due_at": or_null(INSTANT),
        "lag_ms": {**NUMBER, "description": "How long its first due timer has waited"},
    }
)
WORKER = answer(
    {
        "worker_id": UUID,
        "name": TEXT,
        "host": TEXT,
        "pid": WHOLE,
        "status": words("live", "draining", "stopped", "lost"),
        "live": FLAG,
        "pools": {"type": "array", "items": TEXT},
        "slots": WHOLE,
        "in_flight": WHOLE,
        "tasks": {"type": "array", "items": TEXT},
        "stale_writes": WHOLE,
        "beat_at": INSTANT,
        "started_at": INSTANT,
        "ended_at": or_null(INSTANT),
    }
)

LETTER_STATUSES = ("waiting", "replayed", "discarded")
LETTER: Schema = {
    "execution_id": UUID,
    "job_id": UUID,
    "name": TEXT,
    "revision": WHOLE,
    "status": words(*LETTER_STATUSES),
    "reason": TEXT,
    "error": or_null(ref("ExecutionError")),
    "died_at": INSTANT,
    "settled_at": or_null(INSTANT),
    "replayed_as": or_null(
        {**UUID, "description": "The execution that replayed it; that one's source_id is this"}
    ),
    "note": or_null(TEXT),
}
NOTE: Schema = {"type": ["string", "null"], "minLength": 1, "maxLength": 1000}


def list_of(name: str) -> Schema:
    return answer({"items": {"type": "array", "items": ref(name)}, "next_cursor": or_null(TEXT)})


COMPONENTS: dict[str, Schema] = {
    "Dst": request({"gap": words(*GAPS), "fold": words(*FOLDS)}),
    "GivenDst": request({"gap": or_null(words(*GAPS)), "fold": or_null(words(*FOLDS))}),
    "PythonTask": PYTHON_TASK,
    "ShellTask": SHELL_TASK,
    "NewJob": {
        **request(DEFINITION, "name"),
        "description": "At most one of scheduled_at, delay, cron and every; none makes a job that runs when "
        f"asked to. Not available yet: {', '.join(sorted(LATER))}.",
    },
    "NamedJob": request(DEFINITION),
    "JobEdit": request(
        {
            **{name: schema for name, schema in DEFINITION.items() if name != "idempotency_key"},
            "status": or_null(words("paused", "scheduled")),
        }
    ),
    "NewJobs": request(
        {"jobs": {"type": "array", "items": ref("NewJob"), "maxItems": 10_000}},
        "jobs",
    ),
    "Preview": request(PREVIEW),
    "Action": request({"idempotency_key": or_null(KEY)}),
    "Job": JOB,
    "Jobs": list_of("Job"),
    "MadeJobs": answer({"items": {"type": "array", "items": ref("Job")}}),
    "ExecutionError": answer(
        {"type": TEXT, "message": TEXT, "traceback": or_null(TEXT), "exit_code": or_null(WHOLE)}
    ),
    "Attempt": ATTEMPT,
    "Execution": EXECUTION,
    "Executions": list_of("Execution"),
    "LogEvent": answer(
        {
            "event": words("log", "end"),
            "id": {**TEXT, "description": "Where it stands: send it as Last-Event-ID to go on behind it"},
            "data": {
                **TEXT,
                "contentMediaType": "application/json",
                "description": "log: {attempt, seq, stream, logged_at, text}; end: {status}",
            },
        },
        "id",
    ),
    "Fire": FIRE,
    "Fires": list_of("Fire"),
    "Instants": answer(
        {
            "fires": {"type": "array", "items": INSTANT},
            "description": TEXT,
            "hints": {
                "type": "array",
                "items": TEXT,
                "description": "What may mean something else elsewhere",
            },
        }
    ),
    "Fleet": FLEET,
    "Overview": answer(
        {
            "jobs": {**COUNTS, "description": "`scheduled` counts those with a next instant"},
            "executions": answer({"open": COUNTS, "closed_last_hour": COUNTS, "closed_last_day": COUNTS}),
            "due": answer({"next_minute": WHOLE, "next_hour": WHOLE}),
            "fleet": ref("Fleet"),
            "alerts": {"type": "array", "items": ref("Alert")},
            "dead_letters_waiting": WHOLE,
            "stale_writes": {**WHOLE, "description": "Writes by attempts that were no longer theirs"},
            "counted_up_to": {**WHOLE, "description": "Counts stop here"},
        }
    ),
    "Alert": ALERT,
    "Node": NODE,
    "Nodes": list_of("Node"),
    "Shard": SHARD,
    "Shards": list_of("Shard"),
    "Worker": WORKER,
    "Workers": list_of("Worker"),
    "DeadLetter": answer(LETTER),
    "DeadLetters": list_of("DeadLetter"),
    "OpenedDeadLetter": answer(
        {
            **LETTER,
            "task": {"anyOf": [ref("PythonTask"), ref("ShellTask")]},
            "payload": ANYTHING,
            "execution": or_null(ref("Execution")),
        }
    ),
    "Replay": request({"payload": {"description": "Instead of its own"}, "reason": NOTE}),
    "Discard": request({"reason": NOTE}),
    "Document": {"type": "object", "description": "OpenAPI 3.1"},
    "Health": answer({"status": words("ok")}),
    "Readiness": answer(
        {"status": words("ready"), "scheduler": FLAG, "workers": FLAG, "fleet": ref("Fleet")}
    ),
    "Problem": answer(
        {
            "type": TEXT,
            "title": TEXT,
            "status": WHOLE,
            "detail": TEXT,
            "code": TEXT,
            "errors": {
                "type": "array",
                "items": answer({"field": TEXT, "code": TEXT, "message": TEXT}),
            },
        }
    ),
}
