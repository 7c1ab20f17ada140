-- Executions: reading and listing them, running by hand, cancelling. An open one is a row of live, a closed
-- one a row of executions; a statement sees each in exactly one of the two.

-- name: read_execution
-- One execution, open or closed. The first attempt's start is written down at its end; until then it is the claim,
-- unless that is for an instant still to come.
select l.execution_id, l.job_id, l.state as status, l.cause, l.scheduled_for, l.queued_at,
       coalesce(l.started_at, case when l.state = 'running' and l.claimed_at <= clock_timestamp() then l.claimed_at end) as started_at,
       null::timestamptz as finished_at, l.attempt, l.worker_id, null::text as result, null::text as error,
       l.revision, l.reason, l.source_id, l.claimed_at, l.cancel_requested_at
from detent.live l
where l.execution_id = $2::uuid and l.tenant = $1::integer
union all
select x.execution_id, x.job_id, x.status, x.cause, x.scheduled_for, x.queued_at, x.started_at,
       x.finished_at, x.attempt, x.worker_id, x.result, x.error,
       x.revision, x.reason, x.source_id, null, null
from detent.executions x
where x.execution_id = $2::uuid and x.tenant = $1::integer;

-- name: read_details
-- Executions by id, open or closed, each with what its last attempt said of its progress, in no order. All ids lie
-- within $3 and $4: these bound the partitions that are looked at.
select x.*, p.attempt as told_attempt, p.pct, p.message, p.told_at
from (
    select l.execution_id, l.job_id, l.state as status, l.cause, l.scheduled_for, l.queued_at,
           coalesce(l.started_at, case when l.state = 'running' and l.claimed_at <= clock_timestamp() then l.claimed_at end) as started_at,
           null::timestamptz as finished_at, l.attempt, l.worker_id, null::text as result, null::text as error,
           l.revision, l.reason, l.source_id, l.claimed_at
    from detent.live l
    where l.execution_id = any($2::uuid[]) and l.tenant = $1::integer
    union all
    select x.execution_id, x.job_id, x.status, x.cause, x.scheduled_for, x.queued_at, x.started_at,
           x.finished_at, x.attempt, x.worker_id, x.result, x.error,
           x.revision, x.reason, x.source_id, null
    from detent.executions x
    where x.execution_id = any($2::uuid[]) and x.tenant = $1::integer
      and x.execution_id between $3::uuid and $4::uuid
) x
left join detent.progress p on p.execution_id = x.execution_id and p.execution_id between $3::uuid and $4::uuid;

-- name: read_attempts
-- The ended attempts of executions; the days bound the partitions that are looked at.
select execution_id, attempt, outcome, worker_id, started_at, finished_at, error
from detent.attempts
where execution_id = any($2::uuid[]) and tenant = $1::integer and day between $3::date and $4::date
order by execution_id, attempt;

-- name: read_output_tails
-- The last pieces of what one attempt of each of these executions wrote, newest first, each cut to its own end.
select w.execution_id, t.stream, t.text
from unnest($2::uuid[], $3::integer[]) as w (execution_id, attempt)
cross join lateral (
    select g.seq, g.stream, right(g.text, $6::integer) as text
    from detent.logs g
    where g.execution_id = w.execution_id and g.tenant = $1::integer and g.attempt = w.attempt
      and g.day between $4::date and $5::date
    order by g.seq desc
    limit $7::integer
) t
order by w.execution_id, t.seq desc;

-- name: read_logs
-- What an execution wrote, in order, from behind (attempt, seq).
select attempt, seq, stream, logged_at, text
from detent.logs
where execution_id = $2::uuid and tenant = $1::integer and day between $3::date and $4::date
  and (attempt, seq) > ($5::integer, $6::integer)
order by attempt, seq
limit $7::integer;

-- name: list_executions
-- One stretch of a filtered list, newest first: $2 names the index that gives the candidates, $3 and $4 say
-- whether open and closed ones are wanted. Both sides are looked at as far as the shorter look goes.
with open_ones as materialized (
    (select l.execution_id, l.state as status from detent.live l
     where $2::text = 'job' and $3::boolean and l.job_id = $5::uuid and l.tenant = $1::integer
       and l.execution_id < $7::uuid
     order by l.execution_id desc limit $8::integer)
    union all
    (select l.execution_id, l.state from detent.live l
     where $2::text <> 'job' and $3::boolean and l.tenant = $1::integer and l.execution_id < $7::uuid
     order by l.execution_id desc limit $8::integer)
), closed_ones as materialized (
    (select x.execution_id, x.status from detent.executions x
     where $2::text = 'job' and $4::boolean and x.job_id = $5::uuid and x.tenant = $1::integer
       and x.execution_id < $7::uuid
     order by x.execution_id desc limit $8::integer)
    union all
    (select x.execution_id, x.status from detent.executions x
     where $2::text = 'unsuccessful' and $4::boolean and x.status = $6::text and x.status <> 'succeeded'
       and x.tenant = $1::integer and x.execution_id < $7::uuid
     order by x.execution_id desc limit $8::integer)
    union all
    (select x.execution_id, x.status from detent.executions x
     where $2::text = 'all' and $4::boolean and x.tenant = $1::integer and x.execution_id < $7::uuid
     order by x.execution_id desc limit $8::integer)
), looked as (
    select (o.n + c.n)::integer as scanned,
           greatest(case when o.n >= $8::integer then o.last end,
                    case when c.n >= $8::integer then c.last end) as scan_end
    from (select count(*) as n, (array_agg(execution_id order by execution_id))[1] as last from open_ones) o,
         (select count(*) as n, (array_agg(execution_id order by execution_id))[1] as last from closed_ones) c
), matching as materialized (
    select b.execution_id, b.is_open
    from looked,
         (select execution_id, status, true as is_open from open_ones
          union all
          select execution_id, status, false from closed_ones) b
    where (looked.scan_end is null or b.execution_id >= looked.scan_end)
      and ($6::text is null or b.status = $6::text)
), found as (
    select count(*)::integer as matched from matching
), page as materialized (
    select execution_id, is_open from matching order by execution_id desc limit $9::integer offset $10::integer
), rows as (
    select l.execution_id, l.job_id, l.state as status, l.cause, l.scheduled_for, l.queued_at,
           coalesce(l.started_at, case when l.state = 'running' and l.claimed_at <= clock_timestamp() then l.claimed_at end) as started_at,
           null::timestamptz as finished_at, l.attempt, l.worker_id, null::text as result, null::text as error,
           l.revision, l.reason, l.source_id
    from detent.live l
    where l.execution_id = any(array(select execution_id from page where is_open))
    union all
    select x.execution_id, x.job_id, x.status, x.cause, x.scheduled_for, x.queued_at, x.started_at,
           x.finished_at, x.attempt, x.worker_id, x.result, x.error,
           x.revision, x.reason, x.source_id
    from detent.executions x
    where x.execution_id = any(array(select execution_id from page where not is_open))
)
select looked.scanned, looked.scan_end, found.matched, rows.*
from looked cross join found left join rows on true
order by rows.execution_id desc;

-- name: run_each
-- Queue executions that people asked for, each of a job that may run, and answer those. What is not answered takes
-- the long way, which says why: a job that is not there or was cancelled, one that somebody is changing (its lock
-- is not waited for) or has just changed (what this statement saw of it is old, which its version tells), a key
-- that was used before. Cancelling a job waits for its timer, so it finds what was queued here. A crash leaves
-- the note and the execution, or none; two processes with the same key: the second one's is not new.
with asked as materialized (
    select distinct on (a.execution_id) a.execution_id, a.job_id, a.at, a.scope, a.key, a.body_hash
    from unnest($2::uuid[], $3::uuid[], $4::timestamptz[], $5::text[], $6::text[], $7::bytea[])
      as a (execution_id, job_id, at, scope, key, body_hash)
), turn as materialized (
    select t.job_id, t.version from detent.timers t
    where t.job_id = any($3::uuid[]) and t.tenant = $1::integer
    order by t.job_id
    for key share skip locked
), ready as materialized (
    select a.execution_id, a.job_id, a.at, a.scope, a.key, a.body_hash, j.revision, j.pool,
           (array_position(array['critical', 'high', 'normal', 'low'],
                           coalesce(r.spec ->> 'priority', 'normal')) - 1)::smallint as class,
           a.at + (r.spec ->> 'deadline_seconds')::double precision * interval '1 second' as deadline_at
    from asked a
    cross join lateral (select t.version from turn t where t.job_id = a.job_id) mine
    join detent.timers t on t.job_id = a.job_id and t.version = mine.version
    join detent.jobs j on j.job_id = a.job_id
    join detent.job_revisions r on r.job_id = j.job_id and r.revision = j.revision
    where not exists (select from detent.job_ends e where e.job_id = a.job_id and e.status = 'cancelled')
), noted as (
    insert into detent.request_keys (tenant, scope, key, body_hash, subject)
    select $1::integer, scope, key, body_hash, execution_id from ready where key is not null
    order by scope, key
    on conflict do nothing
    returning subject
)
insert into detent.live (execution_id, job_id, scheduled_for, not_before, queued_at, deadline_at, rank, tenant,
                         revision, class, ends_job, state, cause, pool)
select execution_id, job_id, at, at, at, deadline_at, detent.rank(greatest(at, clock_timestamp()), class), $1::integer,
       revision, class, false, 'queued', 'manual', pool
from ready
where key is null or execution_id in (select subject from noted)
order by execution_id
returning execution_id, job_id, scheduled_for, revision, pool;

-- name: run_job
-- Queue an execution that a person asked for. It never decides about the job's end.
insert into detent.live (execution_id, job_id, scheduled_for, not_before, queued_at, deadline_at, rank, tenant,
                         revision, class, ends_job, state, cause, pool)
values ($2::uuid, $3::uuid, $4::timestamptz, $4::timestamptz, $4::timestamptz, $8::timestamptz,
        detent.rank(greatest($4::timestamptz, clock_timestamp()), $6::smallint), $1::integer, $5::integer,
        $6::smallint, false, 'queued', 'manual', $7::text);

-- name: find_execution
-- The job of an execution that is open.
select job_id from detent.live where tenant = $1::integer and execution_id = $2::uuid;

-- name: lock_open_executions
-- Lock what a job has open, or one of it, in order of the ids.
select execution_id, state, ends_job, cancel_requested_at
from detent.live
where tenant = $1::integer and job_id = $2::uuid and ($3::uuid is null or execution_id = $3::uuid)
order by execution_id
for update;

-- name: close_cancelled
-- Close executions that no worker has; the caller holds their locks.
with gone as (
    delete from detent.live
    where execution_id = any($2::uuid[]) and tenant = $1::integer and state <> 'running'
    returning execution_id, job_id, scheduled_for, queued_at, started_at, source_id, tenant, revision, attempt,
              failures, losses, class, own_input, cause, pool
), called as (
    insert into detent.callbacks (tenant, execution_id, job_id, url, not_before)
    select g.tenant, g.execution_id, g.job_id, r.spec ->> 'callback_url', clock_timestamp()
    from gone g join detent.job_revisions r on r.job_id = g.job_id and r.revision = g.revision
    where r.spec ->> 'callback_url' is not null
)
insert into detent.executions (execution_id, job_id, scheduled_for, queued_at, started_at, finished_at, source_id,
                               tenant, revision, attempt, failures, losses, class, own_input, status, cause, pool,
                               reason)
select execution_id, job_id, scheduled_for, queued_at, started_at, $3::timestamptz, source_id,
       tenant, revision, attempt, failures, losses, class, own_input, 'cancelled', cause, pool, $4::text
from gone
returning execution_id;

-- name: ask_to_cancel
-- Ask the workers that run these to stop; the caller holds their locks and has decided about the job's end.
update detent.live
set cancel_requested_at = coalesce(cancel_requested_at, $3::timestamptz), ends_job = false,
    reason = coalesce(reason, $4::text)
where execution_id = any($2::uuid[]) and tenant = $1::integer and state = 'running'
returning worker_id;
