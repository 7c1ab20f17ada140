-- Dead letters: executions out of attempts, waiting for a person.
-- Whoever settles one locks the letter (a replay the job's timer row before it): of two at once, one wins. Then
-- the job's alert: of two letters settled at once, and of one settled while another is laid down, each sees the
-- other, and the alert is open exactly as long as a letter waits.

-- name: list_dead_letters
-- Newest first, by status, of one job or of all.
select d.execution_id, d.job_id, d.revision, d.status, d.reason, d.error, d.died_at, d.settled_at, d.replayed_as,
       d.note, j.name
from (
    (select * from detent.dead_letters a
     where $2::uuid is null and a.tenant = $1::integer and a.status = $3::text and a.execution_id < $4::uuid
     order by a.execution_id desc limit $5::integer)
    union all
    (select * from detent.dead_letters b
     where b.job_id = $2::uuid and b.tenant = $1::integer and b.status = $3::text and b.execution_id < $4::uuid
     order by b.execution_id desc limit $5::integer)
) d
join detent.jobs j on j.job_id = d.job_id
order by d.execution_id desc;

-- name: read_dead_letter
-- One letter with the definition and payload that it died with. It keeps a copy of a payload of its own: the
-- input goes with the history.
select d.execution_id, d.job_id, d.revision, d.status, d.reason, d.error, d.died_at, d.settled_at, d.replayed_as,
       d.note, j.name, r.spec, coalesce(d.payload, i.payload, r.payload) as payload
from detent.dead_letters d
join detent.jobs j on j.job_id = d.job_id
join detent.job_revisions r on r.job_id = d.job_id and r.revision = d.revision
left join detent.inputs i on i.execution_id = d.execution_id
where d.tenant = $1::integer and d.execution_id = $2::uuid;

-- name: lock_dead_letter
-- Lock a letter.
select status, replayed_as from detent.dead_letters
where tenant = $1::integer and execution_id = $2::uuid
for update;

-- name: lock_alert_of_letter
-- Lock the alert of a letter's job. What others did to the job's letters is then seen by the next statement.
select a.alert_id
from detent.dead_letters d
join detent.alerts a on a.tenant = d.tenant and a.kind = 'dead_letter' and a.subject = d.job_id::text
where d.tenant = $1::integer and d.execution_id = $2::uuid and a.resolved_at is null
for update of a;

-- name: settle_dead_letter
-- Settle a letter; the caller holds its lock and the alert's. The last one of a job ends the job's alert.
with settled as (
    update detent.dead_letters
    set status = $3::text, settled_at = $4::timestamptz, replayed_as = $5::uuid, note = $6::text
    where tenant = $1::integer and execution_id = $2::uuid and status = 'waiting'
    returning tenant, job_id, execution_id
)
update detent.alerts a set resolved_at = $4::timestamptz
from settled s
where a.tenant = s.tenant and a.kind = 'dead_letter' and a.subject = s.job_id::text and a.resolved_at is null
  and not exists (select from detent.dead_letters d
                  where d.job_id = s.job_id and d.status = 'waiting' and d.execution_id <> s.execution_id);

-- name: queue_replay
-- Queue the work of a dead letter once more, with the job's present definition and a payload of its own.
with given as (
    insert into detent.inputs (execution_id, tenant, payload) values ($2::uuid, $1::integer, $9::text)
)
insert into detent.live (execution_id, job_id, scheduled_for, not_before, queued_at, deadline_at, rank, tenant,
                         revision, class, ends_job, own_input, state, cause, pool, source_id)
values ($2::uuid, $3::uuid, $4::timestamptz, $4::timestamptz, $4::timestamptz, $8::timestamptz,
        detent.rank(greatest($4::timestamptz, clock_timestamp()), $6::smallint), $1::integer, $5::integer,
        $6::smallint, $10::boolean, true, 'queued', 'replay', $7::text, $11::uuid);

-- name: replay_of
-- The execution that replayed a dead one.
select replayed_as from detent.dead_letters where tenant = $1::integer and execution_id = $2::uuid;
