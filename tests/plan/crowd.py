"""Databases with very many rows, and with hardly any."""

from __future__ import annotations

from uuid import UUID

import asyncpg

# Ids as the product makes them: milliseconds in front, a version, and noise that follows from the number.
ID = """
create function public.id_of(ms bigint, version text, n bigint) returns uuid language sql immutable as $$
    select (lpad(to_hex(ms), 12, '0') || version || substr(md5(n::text), 1, 3) || '8'
            || substr(md5(n::text), 4, 15))::uuid
$$
"""
NOW_MS = "(extract(epoch from now()) * 1000)::bigint"
SPEC = """'{"name": "job", "task": {"kind": "python", "name": "noop"}, "every": 60}'"""

WORKER = UUID("00000000-0000-4000-8000-000000000001")
WORKERS = f"""
insert into detent.workers (worker_id, tenant, name, host, pid, pools, slots, tasks, lease_seconds)
select case when n = 1 then '{WORKER}'::uuid else gen_random_uuid() end, 1, 'worker', 'here', n,
       '{{default,busy}}', 10, '{{noop}}', 30
from generate_series(1, 20) n
"""

# Every job waits for an instant, one a second, a thousand of them overdue. The first of them, as many as asked
# for, have one execution in the queue and one in the history. That half of them have ended too fits no real job: no statement here asks for both.
JOBS = f"""
insert into detent.jobs (tenant, job_id, name, pool, revision)
select 1, public.id_of({NOW_MS} - 40000000 + n * 100, '7', n), 'job ' || n % 1000,
       case when n % 100 = 0 then 'reports' else 'default' end, 1
from generate_series(1, $1::bigint) n
"""
REVISIONS = f"""
insert into detent.job_revisions (tenant, job_id, revision, spec, payload, armed_at)
select 1, job_id, 1, {SPEC}, 'null', now() from detent.jobs
"""
TAGS = """
insert into detent.job_tags (tenant, tag, job_id)
select 1, 'tag ' || substr(name, 5)::integer % 100, job_id from detent.jobs
"""
TIMERS = """
insert into detent.timers (job_id, due_at, tenant, shard, status)
select job_id, now() + (n - 1000) * interval '1 second', 1, get_byte(uuid_send(job_id), 15),
       case when n % 1000 = 0 then 'paused' else 'scheduled' end
from (select job_id, row_number() over (order by job_id) as n from detent.jobs) j
"""
ENDS = """
insert into detent.job_ends (tenant, job_id, status)
select 1, job_id, case when n % 100 = 0 then 'failed' when n % 100 = 1 then 'cancelled' else 'completed' end
from (select job_id, row_number() over (order by job_id) as n from detent.jobs) j
where n % 2 = 0
"""
LIVE = f"""
insert into detent.live (execution_id, job_id, scheduled_for, not_before, queued_at, rank, tenant, revision,
                         class, ends_job, cause, state, pool, attempt, token, worker_id)
select public.id_of({NOW_MS} - 1000 + n / 1000, '8', n), job_id, now(), now(), now(),
       detent.rank(now(), (n % 4)::smallint), 1, 1, n % 4, n % 2 = 1, 'schedule',
       case when n % 50 = 0 then 'running' else 'queued' end,
       case when n % 50 = 0 then 'busy' else 'default' end,
       case when n % 50 = 0 then 1 else 0 end,
       case when n % 50 = 0 then n end,
       case when n % 50 = 0 then '{WORKER}'::uuid end
from (select job_id, row_number() over (order by job_id) as n from detent.jobs) j
where n <= $1::bigint
"""
EXECUTIONS = f"""
insert into detent.executions (execution_id, job_id, scheduled_for, queued_at, started_at, finished_at, token,
                               worker_id, tenant, revision, attempt, failures, losses, class, status, cause,
                               pool)
select public.id_of({NOW_MS} - 400000000 + n * 1000, '8', n), job_id, now(), now(), now(), now(), n,
       gen_random_uuid(), 1, 1, 1, 0, 0, 2,
       case when n % 50 = 0 then 'dead_lettered' else 'succeeded' end, 'schedule', 'default'
from (select job_id, row_number() over (order by job_id) as n from detent.jobs) j
where n <= $1::bigint
"""
ATTEMPTS = """
insert into detent.attempts (execution_id, attempt, day, tenant, token, worker_id, started_at, finished_at,
                             outcome)
select execution_id, 1, (now() at time zone 'UTC')::date, 1, token, worker_id, now(), now(), 'succeeded'
from detent.executions
"""
# One job has ten thousand instants behind it.
LONG_LEDGER = """
insert into detent.fires (tenant, job_id, generation, nominal_at, day, decision, decided_at, execution_id,
                          revision)
select 1, (select job_id from detent.jobs order by job_id limit 1), 1, at, (at at time zone 'UTC')::date,
       'fired', at, gen_random_uuid(), 1
from (select now() - n * interval '1 minute' as at from generate_series(1, 10000) n) x
"""
STATEMENTS = (
    WORKERS, JOBS, REVISIONS, TAGS, TIMERS, ENDS, LIVE, EXECUTIONS, ATTEMPTS, LONG_LEDGER,
)  # fmt: skip
HOT = ("timers", "live", "jobs", "job_revisions", "job_ends", "workers")


async def crowd(url: str, jobs: int, executions: int | None = None) -> None:
    """Add so many jobs, with all that belongs to them, and as many executions unless there are to be fewer."""
    connection = await asyncpg.connect(url)
    try:
        # Only once: a change of the catalogue would make other sessions throw their plans away.
        if await connection.fetchval("select to_regproc('public.id_of') is null"):
            await connection.execute(ID)
        async with connection.transaction():
            # The rows fit by construction: checking every reference of each takes longer than the rest.
            await connection.execute("set local session_replication_role = replica")
            for statement in STATEMENTS:
                most = jobs if statement is JOBS or executions is None else executions
                given = (most,) if "$1" in statement else ()
                await connection.execute(f"{statement} on conflict do nothing", *given)
    finally:
        await connection.close()


async def vacuum(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("vacuum analyze")
    finally:
        await connection.close()


async def leave_statistics_alone(url: str) -> None:
    """No vacuum of the server's own may notice how the tables grow."""
    connection = await asyncpg.connect(url)
    try:
        for table in HOT:
            await connection.execute(f"alter table detent.{table} set (autovacuum_enabled = false)")
    finally:
        await connection.close()
