-- Callbacks: taking those that are due, and writing down how sending went. The closing of an execution queues
-- them, in its own statement. A taken one is leased by its not_before: nobody else takes it until then, and
-- if its keeper dies it is due again then. tries, counted as it is taken, tells one taking from the next.

-- name: take_callbacks
-- Take up to $1 due callbacks for $5, at most $4 at a time for one receiver, given how many ($3) are under way
-- to which receivers ($2); with each what it has to say. An execution that history no longer has is null.
with instant as materialized (
    select clock_timestamp() as at
), due as materialized (
    select c.execution_id, c.not_before, coalesce(lower(substring(c.url from '^[^/]*//[^/?#]*')), '') as origin
    from detent.callbacks c
    where c.failed_at is null and c.not_before <= (select i.at from instant i)
      and coalesce(lower(substring(c.url from '^[^/]*//[^/?#]*')), '') <> all(array(
            select b.origin from unnest($2::text[], $3::integer[]) as b (origin, sending)
            where b.sending >= $4::integer))
    order by c.not_before
    limit 1000
), in_turn as (
    select d.execution_id, d.not_before,
           row_number() over (partition by d.origin order by d.not_before, d.execution_id)
           + coalesce((select b.sending from unnest($2::text[], $3::integer[]) as b (origin, sending)
                       where b.origin = d.origin), 0) as place
    from due d
), locked as (
    select c.execution_id
    from detent.callbacks c
    where c.execution_id = any(array(
            select t.execution_id from in_turn t where t.place <= $4::integer
            order by t.not_before, t.execution_id limit $1::integer))
      and c.failed_at is null and c.not_before <= (select i.at from instant i)
    order by c.execution_id
    for update skip locked
), taken as (
    update detent.callbacks c
    set not_before = clock_timestamp() + $5::interval, tries = c.tries + 1
    where c.execution_id = any(array(select l.execution_id from locked l))
    returning c.tenant, c.execution_id, c.job_id, c.url, c.tries
)
select t.execution_id, t.job_id, t.url, coalesce(lower(substring(t.url from '^[^/]*//[^/?#]*')), '') as origin,
       t.tries, r.spec ->> 'name' as name, x.status, x.cause, x.scheduled_for, x.started_at, x.finished_at,
       x.attempt, x.result, x.error
from taken t
left join detent.executions x on x.execution_id = any(array[t.execution_id]) and x.tenant = t.tenant
left join detent.job_revisions r on r.job_id = x.job_id and r.revision = x.revision and r.tenant = t.tenant;

-- name: drop_callbacks
-- Forget callbacks that were delivered. Not fenced: delivered is delivered, whoever has taken it since.
delete from detent.callbacks c
where c.execution_id = any(array(
    select d.execution_id from detent.callbacks d where d.execution_id = any($1::uuid[])
    order by d.execution_id
    for update));

-- name: put_off_callbacks
-- Let callbacks that were not delivered wait for their next try, or give them up where there is no pause.
-- Fenced by tries: one that was taken again since is not answered, and left to who has it.
with told as (
    select s.execution_id, s.tries, s.pause, s.error
    from unnest($1::uuid[], $2::integer[], $3::interval[], $4::text[]) as s (execution_id, tries, pause, error)
), mine as (
    select c.execution_id
    from detent.callbacks c
    where c.execution_id = any($1::uuid[])
    order by c.execution_id
    for update
)
update detent.callbacks c
set not_before = clock_timestamp() + coalesce(s.pause, interval '0'), last_error = s.error,
    failed_at = case when s.pause is null then clock_timestamp() end
from told s
where c.execution_id = any(array[s.execution_id]) and c.tries = s.tries and c.failed_at is null
  and c.execution_id = any(array(select m.execution_id from mine m))
returning c.execution_id;
