-- Jobs: creating, reading, listing and changing them.
-- Whatever can change a fire locks the timers row first and live rows after it, in order of their ids; and
-- a statement that must see what others committed while it waited for that lock comes after the lock, as
-- a statement of its own, because its snapshot is then a new one.

-- name: create_jobs
-- Make any number of jobs at once: definition, first revision, timer and tags; answers those that were made. One
-- with a key is made if its key is new: its note and all its rows are kept together, or none. A crash before the
-- commit leaves nothing; after it, a repeat with the key meets the note. A second process with the same key waits
-- for this one to end. Two of one statement with the same key: one of them is made.
with asked as materialized (
    select g.job_id, g.name, g.pool, g.idempotency_key, g.spec::jsonb as spec, g.payload, g.due_at, g.shard, g.status,
           g.armed_at, g.scope, g.key, g.body_hash
    from unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                $8::timestamptz[], $9::smallint[], $10::text[], $11::timestamptz[],
                $13::text[], $14::text[], $15::bytea[])
      as g (job_id, name, pool, idempotency_key, spec, payload, due_at, shard, status, armed_at, scope, key, body_hash)
), noted as (
    insert into detent.request_keys (tenant, scope, key, body_hash, subject)
    select $1::integer, scope, key, body_hash, job_id from asked where key is not null
    order by scope, key
    on conflict do nothing
    returning subject
), given as materialized (
    select * from asked where key is null or job_id in (select subject from noted)
), made as (
    insert into detent.jobs (tenant, job_id, name, by_name, pool, revision, idempotency_key, created_at, updated_at)
    select $1::integer, job_id, name, $12::boolean, pool, 1, idempotency_key, armed_at, armed_at
    from given
), revised as (
    insert into detent.job_revisions (tenant, job_id, revision, spec, payload, armed_at, created_at)
    select $1::integer, job_id, 1, spec, payload, armed_at, armed_at
    from given
), timed as (
    insert into detent.timers (job_id, due_at, tenant, shard, status)
    select job_id, due_at, $1::integer, shard, status
    from given
), tagged as (
    insert into detent.job_tags (tenant, tag, job_id)
    select $1::integer, t.tag, g.job_id
    from given g, lateral jsonb_array_elements_text(g.spec -> 'tags') as t (tag)
)
select job_id from given;

-- name: read_jobs
-- Jobs by id, each with its current revision and where it stands, in no order. An instant that is staged and that no
-- worker has yet is still to come for whoever reads.
select j.tenant, j.job_id, j.by_name, j.revision, j.idempotency_key, j.created_at, j.updated_at,
       r.spec, r.payload, r.armed_at,
       t.due_at, t.decided_through, t.generation, t.status as timer_status, t.parked_reason,
       e.status as ended,
       exists (select from detent.live l where l.job_id = j.job_id and l.ends_job) as ending,
       (select l.scheduled_for from detent.live l
        where t.decided_through > statement_timestamp() and l.job_id = j.job_id
          and l.scheduled_for = t.decided_through and l.cause = 'schedule' and l.state = 'queued' and l.attempt = 0
        limit 1) as staged_for
from detent.jobs j
join detent.job_revisions r on r.job_id = j.job_id and r.revision = j.revision
join detent.timers t on t.job_id = j.job_id
left join detent.job_ends e on e.job_id = j.job_id
where j.job_id = any($2::uuid[]) and j.tenant = $1::integer;

-- name: list_jobs
-- One stretch of a filtered list, newest first: the candidates of one index, those that pass the filters,
-- and of these the asked ones; with them how far it looked. The branch that $2 does not name costs nothing.
with candidates as materialized (
    (select j.job_id from detent.jobs j
     where $2::text = 'all' and j.tenant = $1::integer and j.job_id < $7::uuid
     order by j.job_id desc limit $8::integer)
    union all
    (select j.job_id from detent.jobs j
     where $2::text = 'name' and j.tenant = $1::integer and j.name = $3::text and j.job_id < $7::uuid
     order by j.job_id desc limit $8::integer)
    union all
    (select g.job_id from detent.job_tags g
     where $2::text = 'tag' and g.tenant = $1::integer and g.tag = $4::text and g.job_id < $7::uuid
     order by g.job_id desc limit $8::integer)
    union all
    (select e.job_id from detent.job_ends e
     where $2::text = 'ended' and e.tenant = $1::integer and e.status = $5::text and e.job_id < $7::uuid
     order by e.job_id desc limit $8::integer)
    union all
    (select t.job_id from detent.timers t
     where $2::text = 'paused' and t.status = 'paused' and t.tenant = $1::integer and t.job_id < $7::uuid
     order by t.job_id desc limit $8::integer)
    union all
    (select j.job_id from detent.jobs j
     where $2::text = 'pool' and j.pool <> 'default' and j.tenant = $1::integer and j.pool = $6::text
       and j.job_id < $7::uuid
     order by j.job_id desc limit $8::integer)
    union all
    (select l.job_id from detent.live l
     where $2::text = 'running' and l.job_id < $7::uuid
     order by l.job_id desc limit $8::integer)
), looked as (
    select count(*)::integer as scanned, (array_agg(job_id order by job_id))[1] as scan_end from candidates
), matching as materialized (
    select j.job_id
    from detent.jobs j
    where j.job_id = any(array(select distinct job_id from candidates))
      and j.tenant = $1::integer
      and ($3::text is null or j.name = $3::text)
      and ($6::text is null or j.pool = $6::text)
      and ($4::text is null or exists (
            select from detent.job_tags g
            where g.tenant = $1::integer and g.tag = $4::text and g.job_id = j.job_id))
      and ($5::text is null or $5::text = coalesce(
            (select e.status from detent.job_ends e where e.job_id = j.job_id),
            (select case when t.status = 'paused' then 'paused'
                         when t.status = 'done'
                              and exists (select from detent.live l where l.job_id = j.job_id and l.ends_job
                                          and not (l.state = 'queued' and l.attempt = 0
                                                   and l.scheduled_for > statement_timestamp()))
                         then 'running'
                         else 'scheduled' end
             from detent.timers t where t.job_id = j.job_id)))
), found as (
    select count(*)::integer as matched from matching
), page as materialized (
    select job_id from matching order by job_id desc limit $9::integer offset $10::integer
), rows as (
    select j.tenant, j.job_id, j.by_name, j.revision, j.idempotency_key, j.created_at, j.updated_at,
           r.spec, r.payload, r.armed_at,
           t.due_at, t.decided_through, t.generation, t.status as timer_status, t.parked_reason,
           (select e.status from detent.job_ends e where e.job_id = j.job_id) as ended,
           exists (select from detent.live l where l.job_id = j.job_id and l.ends_job) as ending,
           (select l.scheduled_for from detent.live l
            where t.decided_through > statement_timestamp() and l.job_id = j.job_id
              and l.scheduled_for = t.decided_through and l.cause = 'schedule' and l.state = 'queued' and l.attempt = 0
            limit 1) as staged_for
    from detent.jobs j
    join detent.job_revisions r on r.job_id = j.job_id and r.revision = j.revision
    join detent.timers t on t.job_id = j.job_id
    where j.job_id = any(array(select job_id from page))
)
select looked.scanned, looked.scan_end, found.matched, rows.*
from looked cross join found left join rows on true
order by rows.job_id desc;

-- name: lock_timer
-- Take the job's turn: nobody fires, edits, pauses or cancels it until this transaction ends. Says whether its
-- decided instants lie ahead of the clock: then one may be staged.
select version, coalesce(decided_through > clock_timestamp(), false) as ahead
from detent.timers where tenant = $1::integer and job_id = $2::uuid for update;

-- name: lock_staged
-- The execution of a job's staged instant, if it has not come and no worker has claimed it, and what was decided
-- before it. Locked: a claim that comes first makes this wait and then find nothing, one that comes second passes
-- it over. The caller holds the job's timer. What was fired at its instant or after it is no longer staged, though
-- the clock was set back since: it stays as it is.
select l.execution_id, l.scheduled_for, t.decided_before
from detent.timers t
join detent.live l on l.job_id = t.job_id and l.scheduled_for = t.decided_through
where t.tenant = $1::integer and t.job_id = $2::uuid and t.status in ('scheduled', 'done')
  and l.cause = 'schedule' and l.state = 'queued' and l.attempt = 0
  and l.queued_at < l.scheduled_for and l.scheduled_for > clock_timestamp()
for update of l;

-- name: unstage
-- Takes a staged fire back, as if it had not been: the execution and its ledger row go, the timer stands at that
-- instant again. The caller holds the locks of both, since before the instant, and changes the job in the same
-- transaction. Before its commit: the instant is fired. After it: a repeat finds nothing staged. Beside it: a
-- scheduler's copy of the timer is worthless by its version, and a claim has passed the execution over.
with gone as (
    delete from detent.live
    where execution_id = $3::uuid and tenant = $1::integer and job_id = $2::uuid
    returning execution_id, job_id, scheduled_for
), taken_back as (
    delete from detent.fires f
    using gone g
    where f.job_id = g.job_id and f.nominal_at = g.scheduled_for
      and f.day = (g.scheduled_for at time zone 'UTC')::date and f.execution_id = g.execution_id
)
update detent.timers t
set due_at = g.scheduled_for, status = 'scheduled', decided_through = t.decided_before, fired = t.fired - 1,
    version = t.version + 1
from gone g
where t.tenant = $1::integer and t.job_id = g.job_id;

-- name: share_timer
-- Keep the job from being cancelled until this transaction ends, without holding up its fires.
select version from detent.timers where tenant = $1::integer and job_id = $2::uuid for key share;

-- name: change_timer
-- Set the clockwork of a job; the caller holds its lock. One that is no longer parked needs no alert.
with touched as (
    update detent.jobs set updated_at = $7::timestamptz where tenant = $1::integer and job_id = $2::uuid
), settled as (
    update detent.alerts set resolved_at = $7::timestamptz
    where tenant = $1::integer and kind = 'parked' and subject = $2::uuid::text and resolved_at is null
      and $3::text <> 'parked'
)
update detent.timers
set status = $3::text, due_at = $4::timestamptz, decided_through = $5::timestamptz, generation = $6::integer,
    parked_reason = case when status = 'parked' and $3::text = 'parked' then parked_reason end,
    version = version + 1
where tenant = $1::integer and job_id = $2::uuid;

-- name: revise_job
-- Give a job its next revision, with its name, pool and tags; the caller holds its lock.
with revised as (
    insert into detent.job_revisions (tenant, job_id, revision, spec, payload, armed_at, created_at)
    values ($1::integer, $2::uuid, $3::integer, $4::text::jsonb, $5::text, $6::timestamptz, $7::timestamptz)
), untagged as (
    delete from detent.job_tags
    where tenant = $1::integer and job_id = $2::uuid and tag <> all($10::text[])
), tagged as (
    insert into detent.job_tags (tenant, tag, job_id)
    select $1::integer, tag, $2::uuid from unnest($10::text[]) as t (tag)
    on conflict do nothing
)
update detent.jobs
set revision = $3::integer, name = $8::text, pool = $9::text
where tenant = $1::integer and job_id = $2::uuid;

-- name: set_by_name
-- Say whether a job is the one that its name stands for.
update detent.jobs set by_name = $3::boolean where tenant = $1::integer and job_id = $2::uuid;

-- name: revive_job
-- Let an ended job live again.
delete from detent.job_ends where tenant = $1::integer and job_id = $2::uuid;

-- name: detach_executions
-- What a job has open no longer decides about its end; locked in order of their ids.
update detent.live set ends_job = false
where execution_id = any(array(
    select execution_id from detent.live
    where tenant = $1::integer and job_id = $2::uuid and ends_job
    order by execution_id for update));

-- name: end_job
-- Record how a job ended.
insert into detent.job_ends (tenant, job_id, status, ended_at)
values ($1::integer, $2::uuid, $3::text, $4::timestamptz)
on conflict (job_id) do nothing;

-- name: add_skipped
-- One ledger row for the instants that passed while a job was paused or parked.
insert into detent.fires (tenant, job_id, generation, nominal_at, day, decision, decided_at, through_at,
                          instants, revision, reason)
values ($1::integer, $2::uuid, $3::integer, $4::timestamptz, $5::date, 'skipped_paused', $6::timestamptz,
        $7::timestamptz, $8::integer, $9::integer, $10::text);

-- name: make_partitions_of_day
-- Make the history partitions of one day on the spot.
select detent.ensure_partitions($1::date, $1::date);

-- name: lock_name
-- One at a time for each name, until this transaction ends.
select pg_advisory_xact_lock(hashtextextended('detent.by-name.' || $1::integer || '.' || $2::text, 0));

-- name: jobs_of_name
-- The job that a name stands for, if there is one, and the newest others that have not ended. Names may
-- have very many ended jobs: only the newest $3 are looked at.
(select j.job_id, true as by_name, e.status as ended
 from detent.jobs j left join detent.job_ends e on e.job_id = j.job_id
 where j.tenant = $1::integer and j.name = $2::text and j.by_name)
union all
(select n.job_id, false, null
 from (select j.job_id, j.by_name from detent.jobs j
       where j.tenant = $1::integer and j.name = $2::text
       order by j.job_id desc limit $3::integer) n
 where not n.by_name and not exists (select from detent.job_ends e where e.job_id = n.job_id)
 order by n.job_id desc limit 2);

-- name: claim_request_keys
-- Note the requests made under these keys; answers the keys that were new. Waits for an equal request that
-- is under way. In order of the keys: two batches with the same ones do not block each other.
insert into detent.request_keys (tenant, scope, key, body_hash, subject)
select $1::integer, k.scope, k.key, k.body_hash, k.subject
from unnest($2::text[], $3::text[], $4::bytea[], $5::uuid[]) as k (scope, key, body_hash, subject)
order by k.scope, k.key
on conflict do nothing
returning scope, key;

-- name: read_request_keys
-- What was asked before under these keys.
select k.scope, k.key, k.body_hash, k.subject
from unnest($2::text[], $3::text[]) as w (scope, key)
join detent.request_keys k on k.tenant = $1::integer and k.scope = w.scope and k.key = w.key;

-- name: forget_request_keys
-- Looks at so many keys behind a place, in the order of their primary key, and forgets those whose subject has been
-- over for a while: a job by its end, an execution when it is open no more. Bounded whatever there is.
with seen as materialized (
    select k.tenant, k.scope, k.key, k.subject, k.created_at from detent.request_keys k
    where (k.tenant, k.scope, k.key) > ($1::integer, $2::text, $3::text)
    order by k.tenant, k.scope, k.key
    limit $4::integer
), forgotten as (
    delete from detent.request_keys k
    using seen s
    where k.tenant = s.tenant and k.scope = s.scope and k.key = s.key
      and s.created_at < clock_timestamp() - $5::interval
      and not exists (select from detent.live l where l.execution_id = s.subject)
      and not exists (
          select from detent.jobs j
          where j.job_id = s.subject and not exists (
              select from detent.job_ends e
              where e.job_id = j.job_id and e.ended_at < clock_timestamp() - $5::interval))
    returning 1
)
select (select count(*) from seen) as seen, (select count(*) from forgotten) as forgotten,
       l.tenant, l.scope, l.key
from (select 1) one
left join (select * from seen order by tenant desc, scope desc, key desc limit 1) l on true;

-- name: list_fires
-- The ledger of a job, newest instant first.
select nominal_at, generation, decision, decided_at, through_at, instants, execution_id, revision, node_id, reason
from detent.fires
where tenant = $1::integer and job_id = $2::uuid and (nominal_at, generation) < ($3::timestamptz, $4::integer)
order by nominal_at desc, generation desc
limit $5::integer;

-- name: upcoming_jobs
-- The jobs that fire next: the earliest of each shard, of which the caller takes the first.
select t.job_id, t.due_at, j.name
from generate_series(0, 255) as s (shard)
cross join lateral (
    select t.job_id, t.due_at from detent.timers t
    where t.shard = s.shard and t.status = 'scheduled' and t.tenant = $1::integer
    order by t.due_at limit $2::integer
) t
join detent.jobs j on j.job_id = t.job_id
order by t.due_at, t.job_id
limit $2::integer;

-- name: names_of_jobs
-- The names of jobs by id, in no order.
select job_id, name from detent.jobs where job_id = any($2::uuid[]) and tenant = $1::integer;
