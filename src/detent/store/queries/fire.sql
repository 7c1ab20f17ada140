-- Firing. A statement's plan is made once for a session and kept, often when its tables are nearly empty: then
-- reading a whole index looks cheaper than looking a few rows up, and is ruinous when the table has grown. So
-- every look-up here leaves the planner no choice: `= any(array[key])`, which no full index order serves; a
-- lateral `offset 0`, which is computed for each row; and a status written so that no partial index offers
-- itself for it.

-- name: due_timers
-- The next due timers of the given shards up to a horizon, at most so many a shard, with what firing needs: the
-- terms of a job are its definition without what is its own, so that many jobs have the same. One descent of the index for each shard: rows read follow the answer, not the number of jobs.
select t.job_id, t.tenant, t.due_at, t.version, t.generation, t.shard, r.revision, r.terms, r.armed_at,
       t.decided_through
from unnest($1::smallint[]) as s (shard)
cross join lateral (
    select d.* from detent.timers d
    where d.shard = s.shard and d.status = 'scheduled' and d.due_at <= $2::timestamptz
    order by d.due_at, d.job_id
    limit $3::integer
) t
cross join lateral (
    select v.revision, (v.spec - '{name,task,tags,callback_url}'::text[])::text as terms, v.armed_at
    from detent.jobs j
    join detent.job_revisions v on v.job_id = j.job_id and v.revision = j.revision
    where j.job_id = t.job_id
    offset 0
) r;

-- name: further_timers
-- The same for shards of which timers are held already: those behind the last one held, in the order of the index.
select t.job_id, t.tenant, t.due_at, t.version, t.generation, t.shard, r.revision, r.terms, r.armed_at,
       t.decided_through
from unnest($1::smallint[], $2::timestamptz[], $3::uuid[]) as s (shard, due_at, job_id)
cross join lateral (
    select d.* from detent.timers d
    where d.shard = s.shard and d.status = 'scheduled' and d.due_at <= $4::timestamptz
      and (d.due_at, d.job_id) > (s.due_at, s.job_id)
    order by d.due_at, d.job_id
    limit $5::integer
) t
cross join lateral (
    select v.revision, (v.spec - '{name,task,tags,callback_url}'::text[])::text as terms, v.armed_at
    from detent.jobs j
    join detent.job_revisions v on v.job_id = j.job_id and v.revision = j.revision
    where j.job_id = t.job_id
    offset 0
) r;

-- name: timers_of
-- The scheduled timers among the given jobs, with what firing needs.
select t.job_id, t.tenant, t.due_at, t.version, t.generation, t.shard, r.revision, r.terms, r.armed_at,
       t.decided_through
from unnest($1::uuid[]) as w (job_id)
join detent.timers t on t.job_id = any(array[w.job_id]) and t.status || '' = 'scheduled'
cross join lateral (
    select v.revision, (v.spec - '{name,task,tags,callback_url}'::text[])::text as terms, v.armed_at
    from detent.jobs j
    join detent.job_revisions v on v.job_id = j.job_id and v.revision = j.revision
    where j.job_id = t.job_id
    offset 0
) r;

-- name: fire_batch
-- Fires due timers: advances each, writes its ledger rows and queues its execution, all or nothing a batch.
-- Before it: nothing happened. After it: the version has moved, a repeat changes no row. Beside it: the
-- compare-and-set on (version, due_at) lets one through. Rows come sorted by job_id, so they lock in order.
-- The clock that the caller decided by must be this one: after a jump nothing is fired until both agree again.
-- An instant may be staged: fired up to the lead before it comes, with not_before set. At most one of a job at a
-- time: while the instant decided last lies ahead, the next one waits. See the statements that take it back.
-- Answers how many moved, and which only if not all did: to decode each one costs as much as to encode it.
with advanced as (
    update detent.timers t
    set due_at = f.next_at,
        status = case when f.next_at is null then 'done' else 'scheduled' end,
        decided_through = greatest(t.decided_through, f.fire_at),
        decided_before = t.decided_through,
        version = t.version + 1,
        fired = t.fired + 1
    from unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::uuid[],
                $7::date[], $8::integer[], $9::text[], $10::smallint[], $11::boolean[], $12::timestamptz[],
                $13::integer[], $14::bigint[], $15::interval[])
         as f (job_id, version, due_at, fire_at, next_at, execution_id,
               day, revision, pool, class, ends_job, skipped_through, skipped, epoch, deadline)
    where t.job_id = any(array[f.job_id]) and t.version = f.version and t.due_at = f.due_at
      and t.status || '' = 'scheduled'
      and (f.fire_at <= clock_timestamp()
           or f.fire_at <= clock_timestamp() + $19::interval
              and (t.decided_through is null or t.decided_through <= clock_timestamp()))
      and (select abs(extract(epoch from clock_timestamp() - $18::timestamptz)) < 5)
    returning t.tenant, t.generation, f.*, clock_timestamp() as decided_at
), ledger as (
    insert into detent.fires (tenant, job_id, generation, nominal_at, day, decision, decided_at, execution_id,
                              revision, node_id, epoch, tzdata)
    select a.tenant, a.job_id, a.generation, a.fire_at, a.day,
           case when a.decided_at > a.fire_at + interval '1 second' then 'fired_late' else 'fired' end,
           a.decided_at, a.execution_id, a.revision, $16::uuid, a.epoch, $17::text
    from advanced a
), skipped as (
    insert into detent.fires (tenant, job_id, generation, nominal_at, day, decision, decided_at, through_at,
                              instants, revision, node_id, epoch, tzdata, reason)
    select a.tenant, a.job_id, a.generation, a.due_at, a.day, 'skipped_misfire', a.decided_at, a.skipped_through,
           a.skipped, a.revision, $16::uuid, a.epoch, $17::text, 'a later instant was due as well; the latest ran'
    from advanced a
    where a.skipped_through is not null
), queued as (
    insert into detent.live (execution_id, job_id, scheduled_for, not_before, queued_at, deadline_at, rank, tenant,
                             revision, class, ends_job, state, cause, pool)
    select a.execution_id, a.job_id, a.fire_at, a.fire_at, a.decided_at,
           greatest(a.fire_at, a.decided_at) + a.deadline,
           detent.rank(greatest(a.fire_at, a.decided_at), a.class), a.tenant, a.revision, a.class, a.ends_job, 'queued', 'schedule', a.pool
    from advanced a
)
select count(*) as moved, case when count(*) < cardinality($1::uuid[]) then array_agg(a.job_id) end as jobs
from advanced a;

-- name: park_timer
-- Parks a timer whose rule raised or whose row cannot be written: it harms itself only, and says why. The
-- ledger may have this very instant, which can be why it is parked: that row stands.
with parked as (
    update detent.timers t
    set status = 'parked', parked_reason = $4::text, version = t.version + 1
    where t.job_id = $1::uuid and t.version = $2::bigint and t.status = 'scheduled'
    returning t.tenant, t.job_id, t.generation, t.due_at
), alerted as (
    insert into detent.alerts (tenant, kind, subject, message)
    select p.tenant, 'parked', p.job_id::text, $4::text from parked p
    on conflict do nothing
)
insert into detent.fires (tenant, job_id, generation, nominal_at, day, decision, decided_at, revision, node_id,
                          epoch, reason)
select p.tenant, p.job_id, p.generation, p.due_at, $7::date, 'parked',
       clock_timestamp(), $3::integer, $5::uuid, $6::bigint, $4::text
from parked p
on conflict do nothing
returning job_id;

-- name: clock_us
-- Microseconds since 1970 on the cluster's clock.
select (extract(epoch from clock_timestamp()) * 1000000)::bigint;
