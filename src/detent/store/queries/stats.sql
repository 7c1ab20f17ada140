-- Figures. Each count looks at a bounded number of rows, so that it costs the same with ten million jobs.

-- name: count_jobs
-- Jobs by status, each counted up to $2.
select
    (select count(*) from (
        (select from detent.timers where status = 'scheduled' and tenant = $1::integer limit $2::integer)
        union all
        (select from detent.timers where status in ('idle', 'parked') and tenant = $1::integer limit $2::integer)) c)
        as scheduled,
    (select count(*) from (select from detent.timers where status = 'paused' and tenant = $1::integer
                           limit $2::integer) c) as paused,
    (select count(*) from (select from detent.live where ends_job and tenant = $1::integer
                           limit $2::integer) c) as running,
    (select count(*) from (select from detent.job_ends where tenant = $1::integer and status = 'completed'
                           limit $2::integer) c) as completed,
    (select count(*) from (select from detent.job_ends where tenant = $1::integer and status = 'failed'
                           limit $2::integer) c) as failed,
    (select count(*) from (select from detent.job_ends where tenant = $1::integer and status = 'cancelled'
                           limit $2::integer) c) as cancelled;

-- name: count_open
-- Open executions by state, of the newest $2.
select state, count(*) as n
from (select state from detent.live where tenant = $1::integer order by execution_id desc limit $2::integer) l
group by state;

-- name: count_closed
-- Executions closed in the last hour and day, of the newest $4 that are filed under the days since $2.
select status, count(*) filter (where finished_at > $3::timestamptz - interval '1 hour') as hour, count(*) as day
from (select status, finished_at from detent.executions
      where execution_id >= $2::uuid and tenant = $1::integer
      order by execution_id desc limit $4::integer) x
where finished_at > $3::timestamptz - interval '1 day'
group by status;

-- name: count_due
-- What fires within a minute and an hour, up to $3 in each shard.
select sum(d.minute)::bigint as minute, sum(d.hour)::bigint as hour
from generate_series(0, 255) as s (shard)
cross join lateral (
    select count(*) filter (where t.due_at <= $2::timestamptz + interval '1 minute') as minute, count(*) as hour
    from (select due_at from detent.timers
          where shard = s.shard and status = 'scheduled' and tenant = $1::integer
            and due_at <= $2::timestamptz + interval '1 hour'
          order by due_at limit $3::integer) t
) d;

-- name: read_fleet
-- Whether somebody fires and somebody works: fresh shard leases, and workers whose lease has not run out.
select
    clock_timestamp() as database_time,
    pg_is_in_recovery() or current_setting('transaction_read_only')::boolean as read_only,
    (select count(*) from detent.shard_leases where tenant = $1::integer and expires_at > clock_timestamp())
        as shards_leased,
    (select count(*) from detent.workers
     where tenant = $1::integer and status in ('live', 'draining')
       and beat_at > clock_timestamp() - lease_seconds * interval '1 second') as workers_live,
    (select coalesce(sum(slots), 0) from detent.workers
     where tenant = $1::integer and status = 'live'
       and beat_at > clock_timestamp() - lease_seconds * interval '1 second') as slots_live;

-- name: count_trouble
-- Dead letters that wait, up to $2, and writes of workers that came too late and changed nothing.
select
    (select count(*) from (select from detent.dead_letters where tenant = $1::integer and status = 'waiting'
                           limit $2::integer) c) as dead_letters_waiting,
    (select coalesce(sum(stale_writes), 0)::bigint from detent.workers where tenant = $1::integer) as stale_writes;
