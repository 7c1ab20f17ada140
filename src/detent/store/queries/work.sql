-- name: register_worker
-- A new incarnation joins the fleet.
insert into detent.workers (worker_id, tenant, name, host, pid, pools, slots, tasks, lease_seconds)
values ($1::uuid, $2::integer, $3::text, $4::text, $5::integer, $6::text[], $7::integer, $8::text[],
        $9::double precision)
on conflict (worker_id) do nothing;

-- name: beat_worker
-- One beat for all attempts of a worker; a lost incarnation stays lost, and is told so by no row. No row of
-- an attempt is touched.
update detent.workers w
set beat = w.beat + 1, beat_at = clock_timestamp(), in_flight = $2::integer,
    overdue_at = clock_timestamp() + make_interval(secs => $3::double precision), stale_writes = $4::bigint
where w.worker_id = $1::uuid and w.status in ('live', 'draining')
returning w.status;

-- name: orders_for_attempts
-- Of the attempts that a worker believes to hold: those it must stop, because somebody asked to cancel them
-- or because they are no longer its own.
select f.execution_id, f.attempt, l.execution_id is null as stale
from unnest($1::uuid[], $2::integer[], $3::bigint[]) as f (execution_id, attempt, token)
left join detent.live l
    on l.execution_id = any(array[f.execution_id]) and l.attempt = f.attempt and l.token = f.token
    and l.state = 'running'
where l.execution_id is null or l.cancel_requested_at is not null;

-- name: stop_worker
-- A worker leaves of its own will. One that could not report or hand back all it held stays in the fleet: it
-- falls silent, is given up, and its work is taken back. Nobody looks for the work of one that has left.
update detent.workers w set status = 'stopped', ended_at = clock_timestamp(), in_flight = 0
where w.worker_id = $1::uuid and w.status in ('live', 'draining')
  and not exists (select from detent.live l where l.worker_id = w.worker_id and l.state = 'running');

-- name: claim
-- Takes up to so many executions of a pool that are due, or will be within the lead, lowest rank first, under one
-- token for the batch. Each class is looked at from a lower bound on, where no dead rows lie, in the order of its
-- index; of rows that several classes offer, those with a higher rank stay locked until this commits. The key share lock on the worker's row makes a rescue wait for this claim, or this claim see
-- the rescue: no row can end up with a worker that was given up. Needs a live worker row. Of what is not due yet it
-- says when it will be, as an instant and from now on; claimed_at, from which timeouts count, is then that instant.
with me as materialized (
    select w.worker_id from detent.workers w
    where w.worker_id = $1::uuid and w.status = 'live'
    for key share
), taken as (
    update detent.live l
    set state = 'running', attempt = l.attempt + 1, token = (select detent.next_token()),
        worker_id = (select worker_id from me), claimed_at = greatest(clock_timestamp(), l.not_before), reason = null
    where (select worker_id from me) is not null
      and l.ctid = any (array(
        select c.ctid
        from unnest($4::smallint[], $5::bigint[], $6::bigint[], $7::integer[]) as b (class, low, high, most)
        cross join lateral (
            select d.ctid, d.rank from detent.live d
            where d.pool = $2::text and d.class = b.class and d.rank >= b.low and d.rank < b.high
              and d.state in ('queued', 'retrying') and d.not_before <= clock_timestamp() + $8::interval
            order by d.rank
            limit b.most
            for update skip locked
        ) c
        order by c.rank
        limit $3::integer))
    returning l.execution_id, l.job_id, l.attempt, l.token, l.failures,
              (date_part('epoch', l.scheduled_for) * 1000000)::bigint as scheduled_us, l.revision, l.class, l.rank,
              l.deadline_at, l.own_input,
              case when l.claimed_at = l.not_before
                   then (date_part('epoch', l.not_before) * 1000000)::bigint end as not_before_us,
              case when l.claimed_at = l.not_before
                   then (date_part('epoch', l.not_before - clock_timestamp()) * 1000000000)::bigint end as wait_ns
)
select t.execution_id, t.job_id, t.attempt, t.token, t.failures, t.scheduled_us, t.revision, t.class, t.rank,
       t.deadline_at, t.own_input, t.not_before_us, t.wait_ns
from taken t;

-- name: upcoming
-- In how many seconds the first of what waits within these ranges of rank is due; what has been due for a while is
-- for others to find.
select min(date_part('epoch', c.not_before - clock_timestamp()))
from unnest($2::smallint[], $3::bigint[], $4::bigint[]) as b (class, low, high)
cross join lateral (
    select d.not_before from detent.live d
    where d.pool = $1::text and d.class = b.class and d.rank >= b.low and d.rank < b.high
      and d.state in ('queued', 'retrying') and d.not_before > clock_timestamp() - interval '100 milliseconds'
    order by d.rank
    limit 1
) c;

-- name: left_behind
-- Whether something has been due in a pool for a second that claims within these bounds do not see: committed late,
-- let go of by somebody, or ranked by a clock that was set since. Reads all that waits, so it is asked rarely.
select exists (
    select
    from unnest($2::smallint[], $3::bigint[], $4::bigint[]) as b (class, low, high)
    join detent.live d on d.pool = $1::text and d.class = b.class and (d.rank < b.low or d.rank >= b.high)
    where d.state in ('queued', 'retrying') and d.not_before <= clock_timestamp() - interval '1 second');

-- name: definitions
-- The definitions of given revisions, for claims that meet one for the first time.
select r.job_id, r.revision, r.spec::text as spec, r.payload
from unnest($1::uuid[], $2::integer[]) as wanted (job_id, revision)
join detent.job_revisions r on r.job_id = any(array[wanted.job_id]) and r.revision = wanted.revision;

-- name: inputs_of
-- The payloads of executions that do not run with that of their revision.
select i.execution_id, i.payload from detent.inputs i where i.execution_id = any($1::uuid[]);

-- name: close_batch
-- Closes ended attempts: the live row leaves, the closing row and the attempt's row are appended, a one-time
-- job ends, a callback is queued, a dead letter is laid down. Fenced by (execution, attempt, token): a row
-- that is not answered was somebody else's by then. A repeat finds no row and changes nothing. What was asked
-- to cancel and did not succeed is cancelled, however its last attempt ended: nobody waits for its letter.
with closed as (
    delete from detent.live l
    using unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[],
                 $7::timestamptz[], $8::text[], $9::text[], $10::text[], $11::integer[], $12::text[])
          as f (execution_id, attempt, token, status, outcome, started_at,
                finished_at, result, error, callback_url, counted, reason)
    where l.execution_id = any(array[f.execution_id]) and l.attempt = f.attempt and l.token = f.token
      and l.state = 'running'
    returning l.*, f.outcome, f.started_at as attempt_started_at, f.finished_at, f.result, f.error,
              f.callback_url, f.counted,
              case when l.cancel_requested_at is not null and f.status <> 'succeeded' then 'cancelled'
                   else f.status end as status,
              case when l.cancel_requested_at is not null and f.status <> 'succeeded'
                   then coalesce(l.reason, f.reason) else f.reason end as why
), closing as (
    insert into detent.executions (execution_id, job_id, scheduled_for, queued_at, started_at, finished_at, token,
        worker_id, source_id, tenant, revision, attempt, failures, losses, class, own_input, status, cause, pool,
        result, error, reason)
    select c.execution_id, c.job_id, c.scheduled_for, c.queued_at, coalesce(c.started_at, c.attempt_started_at),
        c.finished_at, c.token, c.worker_id, c.source_id, c.tenant, c.revision, c.attempt, c.failures + c.counted,
        c.losses, c.class, c.own_input, c.status, c.cause, c.pool, c.result, c.error, c.why
    from closed c
), tried as (
    insert into detent.attempts (execution_id, attempt, day, tenant, token, worker_id, started_at, finished_at,
        outcome, error)
    select c.execution_id, c.attempt, (clock_timestamp() at time zone 'UTC')::date, c.tenant, c.token, c.worker_id,
        c.attempt_started_at, c.finished_at, c.outcome, case when c.outcome = 'succeeded' then null else c.error end
    from closed c
), ended as (
    insert into detent.job_ends (tenant, job_id, status, ended_at)
    select c.tenant, c.job_id,
        case c.status when 'succeeded' then 'completed' when 'cancelled' then 'cancelled' else 'failed' end,
        c.finished_at
    from closed c where c.ends_job
    on conflict (job_id) do nothing
), died as (
    insert into detent.dead_letters (tenant, execution_id, job_id, revision, reason, error, died_at, payload)
    select c.tenant, c.execution_id, c.job_id, c.revision, coalesce(c.why, 'out_of_attempts'), c.error, c.finished_at,
           case when c.own_input then detent.input_of(c.execution_id) end
    from closed c where c.status = 'dead_lettered'
), alerted as (
    -- A repeat counts up, and so holds the row until the letter is there to be seen: see settle_dead_letter.
    insert into detent.alerts as a (tenant, kind, subject, message, times)
    select c.tenant, 'dead_letter', c.job_id::text, 'executions of this job are dead letters', count(*)
    from closed c where c.status = 'dead_lettered'
    group by 1, 3
    order by 1, 3
    on conflict (tenant, kind, subject) where resolved_at is null
    do update set times = a.times + excluded.times, last_at = clock_timestamp()
), called as (
    insert into detent.callbacks (tenant, execution_id, job_id, url, not_before)
    select c.tenant, c.execution_id, c.job_id, c.callback_url, clock_timestamp()
    from closed c where c.callback_url is not null
)
select c.execution_id, c.attempt from closed c;

-- name: close_succeeded
-- Closes attempts that succeeded and have nobody to call: what nearly every attempt comes to, so without the steps
-- that it never needs, and with instants as microseconds since 1970, which cost the driver a third of a timestamp.
-- Fenced as close_batch is, in the same order of locks; what was asked to cancel and succeeded all the same is a
-- success. Answers how many were closed: when all were, which is the rule, there is nothing to compare, and else
-- the caller asks recorded_attempts which. A repeat finds no row and changes nothing.
with closed as (
    delete from detent.live l
    using unnest($1::uuid[], $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[])
          as f (execution_id, attempt, token, started_us, finished_us, result)
    where l.execution_id = any(array[f.execution_id]) and l.attempt = f.attempt and l.token = f.token
      and l.state = 'running'
    returning l.execution_id, l.job_id, l.scheduled_for, l.queued_at, l.started_at, l.token, l.worker_id, l.source_id,
              l.tenant, l.revision, l.attempt, l.failures, l.losses, l.class, l.ends_job, l.own_input, l.cause, l.pool,
              'epoch'::timestamptz + f.started_us * interval '1 microsecond' as attempt_started_at,
              'epoch'::timestamptz + f.finished_us * interval '1 microsecond' as finished_at, f.result
), closing as (
    insert into detent.executions (execution_id, job_id, scheduled_for, queued_at, started_at, finished_at, token,
        worker_id, source_id, tenant, revision, attempt, failures, losses, class, own_input, status, cause, pool,
        result)
    select c.execution_id, c.job_id, c.scheduled_for, c.queued_at, coalesce(c.started_at, c.attempt_started_at),
        c.finished_at, c.token, c.worker_id, c.source_id, c.tenant, c.revision, c.attempt, c.failures, c.losses,
        c.class, c.own_input, 'succeeded', c.cause, c.pool, c.result
    from closed c
), tried as (
    insert into detent.attempts (execution_id, attempt, day, tenant, token, worker_id, started_at, finished_at, outcome)
    select c.execution_id, c.attempt, (clock_timestamp() at time zone 'UTC')::date, c.tenant, c.token, c.worker_id,
        c.attempt_started_at, c.finished_at, 'succeeded'
    from closed c
), ended as (
    insert into detent.job_ends (tenant, job_id, status, ended_at)
    select c.tenant, c.job_id, 'completed', c.finished_at from closed c where c.ends_job
    on conflict (job_id) do nothing
)
select count(*) from closed;

-- name: return_batch
-- Puts ended attempts back to wait: a failed one until its next attempt, a released one at once. Fenced. One
-- that was asked to cancel is left for the closing statement: a cancel is never answered by another attempt.
-- Rows come sorted by id, so they lock in order; asking for that order here would invite a walk of the index.
with mine as (
    select l.execution_id, l.tenant, l.worker_id, f.attempt, f.token, f.state, f.outcome, f.started_at,
           f.finished_at, f.error, f.delay, f.counted, f.reason
    from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[],
                $7::timestamptz[], $8::text[], $9::interval[], $10::integer[], $11::text[])
         as f (execution_id, attempt, token, state, outcome, started_at, finished_at, error, delay, counted, reason)
    join detent.live l on l.execution_id = any(array[f.execution_id])
    where l.attempt = f.attempt and l.token = f.token and l.state = 'running' and l.cancel_requested_at is null
    for update of l
), waiting as (
    update detent.live l
    set state = m.state, not_before = greatest(l.not_before, clock_timestamp() + m.delay), worker_id = null,
        token = null, claimed_at = null, failures = l.failures + m.counted,
        started_at = coalesce(l.started_at, m.started_at),
        rank = detent.rank(greatest(l.not_before, clock_timestamp() + m.delay), l.class), reason = m.reason
    from mine m
    where l.execution_id = any(array[m.execution_id])
)
insert into detent.attempts (execution_id, attempt, day, tenant, token, worker_id, started_at, finished_at, outcome, error)
select m.execution_id, m.attempt, (clock_timestamp() at time zone 'UTC')::date, m.tenant, m.token, m.worker_id,
       m.started_at, m.finished_at, m.outcome, m.error
from mine m
returning execution_id, attempt;

-- name: recorded_attempts
-- Which of these attempts the history has, under these tokens and with these ends: the answer to a finish whose
-- reply was lost. An attempt that was given up with its worker, or taken from it because it was out of time, ended
-- at another instant: it was not recorded by this finish, which is a zombie's.
select f.execution_id, f.attempt
from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::timestamptz[]) as f (execution_id, attempt, token, finished_at)
where exists (
    select from detent.attempts a
    where a.execution_id = f.execution_id and a.attempt = f.attempt and a.token = f.token
      and a.day >= $5::date and a.finished_at = f.finished_at and a.outcome <> 'worker_lost'
    offset 0);

-- name: append_logs
-- Stores output of attempts that still hold their lease; answers those that did. A repeat is ignored.
with mine as (
    select l.execution_id, l.tenant, f.attempt, f.seq, f.stream, f.logged_at, f.text
    from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::integer[], $5::text[], $6::timestamptz[], $7::text[])
         as f (execution_id, attempt, token, seq, stream, logged_at, text)
    join detent.live l on l.execution_id = any(array[f.execution_id])
    where l.attempt = f.attempt and l.token = f.token and l.state = 'running'
), kept as (
    insert into detent.logs (execution_id, attempt, seq, day, tenant, logged_at, stream, text)
    select m.execution_id, m.attempt, m.seq, (m.logged_at at time zone 'UTC')::date, m.tenant, m.logged_at, m.stream, m.text
    from mine m
    on conflict do nothing
)
select distinct m.execution_id, m.attempt from mine m;

-- name: record_progress
-- Keeps what attempts that still hold their lease say of their progress; answers those that did. What an attempt
-- said before it was taken away and that arrives late does not stand over what the next one said.
with mine as (
    select l.execution_id, l.tenant, f.attempt, f.pct, f.message
    from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::double precision[], $5::text[])
         as f (execution_id, attempt, token, pct, message)
    join detent.live l on l.execution_id = any(array[f.execution_id])
    where l.attempt = f.attempt and l.token = f.token and l.state = 'running'
), kept as (
    insert into detent.progress as p (execution_id, tenant, attempt, pct, message)
    select m.execution_id, m.tenant, m.attempt, m.pct, m.message from mine m
    on conflict (execution_id) do update
    set attempt = excluded.attempt, pct = excluded.pct, message = excluded.message, told_at = clock_timestamp()
    where p.attempt <= excluded.attempt
)
select m.execution_id, m.attempt from mine m;

-- name: unknown_tasks
-- Of the executions that a worker handed back because it does not know their task: those that have waited for
-- a minute in which that worker was there, and none that knows it. A rolling deployment takes less; after a stop
-- of everything the minute begins with the first worker that is back; and a worker that the database did not hear
-- of while it was away itself is there until it is given up.
select l.execution_id
from unnest($1::uuid[], $2::text[]) as f (execution_id, task)
join detent.live l on l.execution_id = any(array[f.execution_id])
join detent.workers me on me.worker_id = l.worker_id
where greatest(l.queued_at, me.started_at) < clock_timestamp() - make_interval(secs => $3::double precision)
  and not exists (
    select from detent.workers w
    where f.task = any(w.tasks)
      and (w.ended_at is null
           or w.ended_at > clock_timestamp() - make_interval(secs => $3::double precision)));

-- name: overdue_workers
-- Workers that said in their last beat that an attempt of theirs should have ended so long before it, and had
-- not. Both instants are of that beat: a clock that jumps after it makes nobody late.
select w.worker_id from detent.workers w
where w.status in ('live', 'draining')
  and w.overdue_at < w.beat_at - make_interval(secs => $1::double precision);

-- name: attempts_of_worker
-- What a worker runs, with what a decision about its end needs.
select l.execution_id, l.job_id, l.attempt, l.token, l.failures, l.scheduled_for, l.revision, l.claimed_at,
       l.deadline_at, r.spec::text as spec
from detent.live l
join detent.job_revisions r on r.job_id = l.job_id and r.revision = l.revision
where l.worker_id = $1::uuid and l.state = 'running';

-- name: past_deadline
-- Open executions whose deadline has passed: those that wait, and those that run so long past it that their
-- worker should have ended them. The instant is the asker's, whose clock does not follow every jump.
select l.execution_id, l.job_id, l.attempt, l.token, l.failures, l.scheduled_for, l.revision, l.claimed_at,
       l.deadline_at, l.state, r.spec::text as spec
from detent.live l
join detent.job_revisions r on r.job_id = l.job_id and r.revision = l.revision
where l.deadline_at < $1::timestamptz
  and (l.state <> 'running' or l.deadline_at < $1::timestamptz - make_interval(secs => $2::double precision))
order by l.deadline_at
limit $3::integer;

-- name: close_waiting
-- Closes executions that wait and are out of time; a worker that claimed one meanwhile keeps it.
with closed as (
    delete from detent.live l
    using unnest($1::uuid[], $2::integer[], $3::text[], $4::text[]) as f (execution_id, attempt, status, callback_url)
    where l.execution_id = any(array[f.execution_id]) and l.attempt = f.attempt and l.state <> 'running'
    returning l.*, f.status, f.callback_url, clock_timestamp() as finished_at
), closing as (
    insert into detent.executions (execution_id, job_id, scheduled_for, queued_at, started_at, finished_at,
        source_id, tenant, revision, attempt, failures, losses, class, own_input, status, cause, pool, error, reason)
    select c.execution_id, c.job_id, c.scheduled_for, c.queued_at, c.started_at, c.finished_at,
        c.source_id, c.tenant, c.revision, c.attempt, c.failures, c.losses, c.class, c.own_input, c.status, c.cause,
        c.pool, $5::text, $6::text
    from closed c
), ended as (
    insert into detent.job_ends (tenant, job_id, status, ended_at)
    select c.tenant, c.job_id, 'failed', c.finished_at from closed c where c.ends_job
    on conflict (job_id) do nothing
), died as (
    insert into detent.dead_letters (tenant, execution_id, job_id, revision, reason, error, died_at, payload)
    select c.tenant, c.execution_id, c.job_id, c.revision, $6::text, $5::text, c.finished_at,
           case when c.own_input then detent.input_of(c.execution_id) end
    from closed c where c.status = 'dead_lettered'
), alerted as (
    -- A repeat counts up, and so holds the row until the letter is there to be seen: see settle_dead_letter.
    insert into detent.alerts as a (tenant, kind, subject, message, times)
    select c.tenant, 'dead_letter', c.job_id::text, 'executions of this job are dead letters', count(*)
    from closed c where c.status = 'dead_lettered'
    group by 1, 3
    order by 1, 3
    on conflict (tenant, kind, subject) where resolved_at is null
    do update set times = a.times + excluded.times, last_at = clock_timestamp()
), called as (
    insert into detent.callbacks (tenant, execution_id, job_id, url, not_before)
    select c.tenant, c.execution_id, c.job_id, c.callback_url, clock_timestamp()
    from closed c where c.callback_url is not null
)
select c.execution_id, c.attempt from closed c;

-- name: present_workers
-- The incarnations that should be beating. A last beat that lies ahead of the clock, because the clock was set
-- back since, is no lease: whether its worker lives is then for the beat counter alone to say.
select w.worker_id, w.name, w.beat, w.lease_seconds,
       clock_timestamp() not between w.beat_at and w.beat_at + make_interval(secs => w.lease_seconds) as expired
from detent.workers w where w.status in ('live', 'draining');

-- name: lock_silent_worker
-- Locks a worker's row if it is still silent: same beat, lease over. Waits for claims under way.
select w.worker_id from detent.workers w
where w.worker_id = $1::uuid and w.beat = $2::bigint and w.status in ('live', 'draining')
  and clock_timestamp() not between w.beat_at and w.beat_at + make_interval(secs => w.lease_seconds)
for update;

-- name: mark_worker_lost
-- Gives an incarnation up for good.
update detent.workers w set status = 'lost', ended_at = clock_timestamp(), in_flight = 0 where w.worker_id = $1::uuid;

-- name: rows_of_worker
-- Locks the live rows that a lost worker held, in order.
select l.execution_id, l.attempt, l.token, l.cancel_requested_at is not null as cancelled, l.claimed_at, l.pool,
       (select r.spec ->> 'callback_url' from detent.job_revisions r
        where r.job_id = l.job_id and r.revision = l.revision) as callback_url
from detent.live l
where l.worker_id = $1::uuid and l.state = 'running'
order by l.execution_id
for update;

-- name: count_losses
-- Remembers on rows that a worker was lost under them.
update detent.live l set losses = l.losses + 1 where l.execution_id = any($1::uuid[]);

-- name: drop_partitions
-- Drops the day partitions of the history before a day.
select detent.drop_partitions($1::date);

-- name: ensure_partitions
-- Makes the day partitions of the history from one day through another.
select detent.ensure_partitions($1::date, $2::date);
