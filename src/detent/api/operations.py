"""Every operation of the HTTP contract: what it takes and which answers it gives."""

from __future__ import annotations

from dataclasses import dataclass

from detent.api.schemas import EXECUTION_STATUSES, JOB_STATUSES, LETTER_STATUSES
from detent.api.shapes import FLAG, TEXT, WHOLE, Schema, words

JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    name: str
    summary: str
    answers: tuple[tuple[int, str], ...]
    body: str | None = None
    body_needed: bool = True
    query: tuple[tuple[str, Schema], ...] = ()
    problems: tuple[int, ...] = ()
    keyed: bool = False
    media: tuple[str, ...] = (JSON,)


LIMIT: tuple[str, Schema] = ("limit", {**WHOLE, "minimum": 1, "maximum": 500, "default": 50})
CURSOR: tuple[str, Schema] = ("cursor", {**TEXT, "description": "next_cursor of the page before"})
PAGE: tuple[str, Schema] = ("page", {**WHOLE, "minimum": 1, "maximum": 10_000, "default": 1})
PAGING = (LIMIT, CURSOR, PAGE)
STATUS_OF_EXECUTION: tuple[str, Schema] = ("status", words(*EXECUTION_STATUSES))
READ = (403, 404, 503)
LIST = (403, 422, 503)
WRITE = (400, 403, 409, 413, 415, 422, 503)
ACT = (400, 403, 404, 409, 413, 415, 422, 503)

OPERATIONS = (
    Operation(
        "post",
        "/api/v1/jobs",
        "createJob",
        "Create a job",
        ((201, "Job"), (200, "Job")),
        "NewJob",
        problems=WRITE,
        keyed=True,
    ),
    Operation(
        "get",
        "/api/v1/jobs",
        "listJobs",
        "List jobs, newest first",
        ((200, "Jobs"),),
        problems=LIST,
        query=(("tag", TEXT), ("status", words(*JOB_STATUSES)), ("name", TEXT), ("pool", TEXT), *PAGING),
    ),
    Operation(
        "post",
        "/api/v1/jobs/batch",
        "createJobs",
        "Create up to 10,000 jobs, all or none",
        ((201, "MadeJobs"), (200, "MadeJobs")),
        "NewJobs",
        problems=WRITE,
        keyed=True,
    ),
    Operation(
        "put",
        "/api/v1/jobs/by-name/{name}",
        "replaceJobByName",
        "Create or replace the one job of a name",
        ((200, "Job"), (201, "Job")),
        "NamedJob",
        problems=ACT,
        keyed=True,
    ),
    Operation("get", "/api/v1/jobs/{job_id}", "readJob", "Read a job", ((200, "Job"),), problems=READ),
    Operation(
        "patch",
        "/api/v1/jobs/{job_id}",
        "editJob",
        "Edit, pause or resume a job",
        ((200, "Job"),),
        "JobEdit",
        problems=ACT,
        keyed=True,
    ),
    Operation(
        "delete",
        "/api/v1/jobs/{job_id}",
        "cancelJob",
        "Cancel a job and what it has open",
        ((200, "Job"),),
        problems=ACT,
        keyed=True,
    ),
    Operation(
        "post",
        "/api/v1/jobs/{job_id}/pause",
        "pauseJob",
        "Fire nothing until resumed",
        ((200, "Job"),),
        "Action",
        body_needed=False,
        problems=ACT,
        keyed=True,
    ),
    Operation(
        "post",
        "/api/v1/jobs/{job_id}/resume",
        "resumeJob",
        "Fire again",
        ((200, "Job"),),
        "Action",
        body_needed=False,
        problems=ACT,
        keyed=True,
    ),
    Operation(
        "post",
        "/api/v1/jobs/{job_id}/run",
        "runJob",
        "Run a job now, besides its schedule",
        ((202, "Execution"),),
        "Action",
        body_needed=False,
        problems=ACT,
        keyed=True,
    ),
    Operation(
        "get",
        "/api/v1/jobs/{job_id}/executions",
        "listExecutionsOfJob",
        "What a job ran, newest first",
        ((200, "Executions"),),
        query=(STATUS_OF_EXECUTION, *PAGING),
        problems=(*READ, 422),
    ),
    Operation(
        "get",
        "/api/v1/jobs/{job_id}/fires",
        "listFires",
        "The ledger: what was decided about each instant",
        ((200, "Fires"),),
        query=(LIMIT, CURSOR),
        problems=(*READ, 422),
    ),
    Operation(
        "get",
        "/api/v1/jobs/{job_id}/next",
        "nextFires",
        "When a job fires next",
        ((200, "Instants"),),
        query=(("count", {**WHOLE, "minimum": 1, "maximum": 1000, "default": 5}),),
        problems=(*READ, 422),
    ),
    Operation(
        "get",
        "/api/v1/executions",
        "listExecutions",
        "List executions, newest first",
        ((200, "Executions"),),
        query=(STATUS_OF_EXECUTION, ("job_id", TEXT), *PAGING),
        problems=LIST,
    ),
    Operation(
        "get",
        "/api/v1/executions/{execution_id}",
        "readExecution",
        "Read an execution with its attempts and the end of its output",
        ((200, "Execution"),),
        problems=READ,
    ),
    Operation(
        "get",
        "/api/v1/executions/{execution_id}/logs",
        "readLogs",
        "What an execution wrote: text, or with follow server-sent events `log` and `end`",
        ((200, ""),),
        query=(("follow", FLAG),),
        problems=(*READ, 422),
        media=("text/plain", EVENTS),
    ),
    Operation(
        "post",
        "/api/v1/executions/{execution_id}/cancel",
        "cancelExecution",
        "Cancel an open execution",
        ((200, "Execution"),),
        "Action",
        body_needed=False,
        problems=ACT,
        keyed=True,
    ),
    Operation(
        "get",
        "/api/v1/dead-letters",
        "listDeadLetters",
        "Executions out of attempts, newest first",
        ((200, "DeadLetters"),),
        query=(
            ("status", {**words(*LETTER_STATUSES), "default": "waiting"}),
            ("job_id", TEXT),
            LIMIT,
            CURSOR,
        ),
        problems=LIST,
    ),
    Operation(
        "get",
        "/api/v1/dead-letters/{execution_id}",
        "readDeadLetter",
        "A dead letter with its definition, payload, attempts and output",
        ((200, "OpenedDeadLetter"),),
        problems=READ,
    ),
    Operation(
        "post",
        "/api/v1/dead-letters/{execution_id}/replay",
        "replayDeadLetter",
        "Run its work once more, with its payload or an edited one",
        ((202, "Execution"),),
        "Replay",
        body_needed=False,
        problems=ACT,
        keyed=True,
    ),
    Operation(
        "post",
        "/api/v1/dead-letters/{execution_id}/discard",
        "discardDeadLetter",
        "Let it rest",
        ((200, "OpenedDeadLetter"),),
        "Discard",
        body_needed=False,
        problems=ACT,
        keyed=True,
    ),
    Operation(
        "post",
        "/api/v1/schedules/preview",
        "previewSchedule",
        "When a schedule would fire",
        ((200, "Instants"),),
        "Preview",
        problems=(400, 403, 413, 415, 422),
    ),
    Operation(
        "get",
        "/api/v1/fleet/nodes",
        "listNodes",
        "Scheduler nodes: those that live, then those that ended of late",
        ((200, "Nodes"),),
        query=(LIMIT,),
        problems=LIST,
    ),
    Operation(
        "get",
        "/api/v1/fleet/shards",
        "listShards",
        "All shards with owner, epoch and lag",
        ((200, "Shards"),),
        problems=LIST,
    ),
    Operation(
        "get",
        "/api/v1/fleet/workers",
        "listWorkers",
        "Workers: those that live, then those that ended of late",
        ((200, "Workers"),),
        query=(LIMIT,),
        problems=LIST,
    ),
    Operation(
        "get",
        "/api/v1/stats/overview",
        "overview",
        "Figures about the whole",
        ((200, "Overview"),),
        problems=LIST,
    ),
    Operation(
        "get",
        "/api/v1/openapi.json",
        "contract",
        "This document",
        ((200, "Document"),),
        problems=(403,),
    ),
    Operation("get", "/healthz", "health", "This process answers", ((200, "Health"),), problems=(403,)),
    Operation(
        "get",
        "/readyz",
        "readiness",
        "The store can be worked with",
        ((200, "Readiness"),),
        problems=(403, 503),
    ),
)
