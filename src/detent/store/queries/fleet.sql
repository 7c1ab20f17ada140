-- name: register_node
-- A scheduler node joins.
insert into detent.nodes (node_id, tenant, host, pid, lock_key, standby)
values ($1::uuid, $2::integer, $3::text, $4::integer, $5::bigint, $6::boolean)
on conflict (node_id) do nothing;

-- name: hold_incarnation_lock
-- Holds this incarnation's advisory lock for the life of the session.
select pg_try_advisory_lock($1::bigint);

-- name: beat_node
-- A node lives, and says whether it is about to leave. No row: it was silent for so long that it was forgotten.
update detent.nodes n
set beat = n.beat + 1, beat_at = clock_timestamp(), skew_ms = $2::double precision, lag_ms = $3::double precision,
    leaving = $4::boolean
where n.node_id = $1::uuid
returning n.node_id;

-- name: candidate_nodes
-- The nodes that can own shards: their beat is fresh and their incarnation's lock is held. A node that lacks
-- either is gone. A beat that lies ahead by more than a lease was made before the clock was set back: it says
-- nothing, and whoever made it beats anew within half a second if it lives.
select n.node_id, n.standby, n.leaving
from detent.nodes n
where n.ended_at is null
  and abs(extract(epoch from clock_timestamp() - n.beat_at)) < $1::double precision
  and exists (select from pg_locks k
              where k.locktype = 'advisory' and k.objsubid = 1 and k.granted
                and k.database = (select d.oid from pg_database d where d.datname = current_database())
                and (k.classid::bigint << 32 | k.objid::bigint) = n.lock_key);

-- name: take_shards
-- Renews the leases of the shards that are this node's by rendezvous, and takes those that others have. A new
-- owner means a new epoch. Answers what it holds, also what another will take soon.
with taken as (
    update detent.shard_leases s
    set node_id = $1::uuid,
        epoch = case when s.node_id = $1::uuid then s.epoch else s.epoch + 1 end,
        expires_at = clock_timestamp() + make_interval(secs => $2::double precision)
    where s.shard = any(array(
        select c.shard from detent.shard_leases c where c.shard = any($3::smallint[]) order by c.shard for update))
    returning s.shard, s.epoch
)
select t.shard, t.epoch from taken t
union all
select s.shard, s.epoch from detent.shard_leases s
where s.node_id = $1::uuid and s.shard <> all($3::smallint[]);

-- name: leave_shards
-- A planned stop: hands the leases back.
update detent.shard_leases s set node_id = null, expires_at = '-infinity' where s.node_id = $1::uuid;

-- name: end_node
-- A node leaves of its own will.
update detent.nodes n set ended_at = clock_timestamp() where n.node_id = $1::uuid;

-- name: list_nodes
-- The scheduler nodes of late, newest first.
select n.node_id, n.host, n.pid, n.standby, n.leaving, n.beat_at, n.skew_ms, n.lag_ms, n.started_at, n.ended_at,
       n.ended_at is null and abs(extract(epoch from clock_timestamp() - n.beat_at)) < $2::double precision as live,
       (select count(*) from detent.shard_leases s where s.node_id = n.node_id) as shards
from detent.nodes n
where n.tenant = $1::integer
order by n.ended_at is null desc, n.started_at desc
limit $3::integer;

-- name: list_shards
-- Who owns each shard, and what is due in it first: an instant that has passed is one nobody has fired yet.
select s.shard, s.node_id, s.epoch, nullif(s.expires_at, '-infinity') as expires_at,
       (select min(t.due_at) from detent.timers t where t.shard = s.shard and t.status = 'scheduled') as next_due_at
from detent.shard_leases s
where s.tenant = $1::integer
order by s.shard;

-- name: list_workers
-- The workers of late, newest first.
select w.worker_id, w.name, w.host, w.pid, w.pools, w.slots, w.tasks, w.status, w.beat_at, w.in_flight,
       w.stale_writes, w.started_at, w.ended_at,
       w.status in ('live', 'draining')
         and abs(extract(epoch from clock_timestamp() - w.beat_at)) < w.lease_seconds as live
from detent.workers w
where w.tenant = $1::integer
order by w.ended_at is null desc, w.started_at desc
limit $2::integer;

-- name: forget_fleet
-- Drops the rows of nodes and workers that ended long ago; none of them holds anything.
with workers as (
    delete from detent.workers w
    where w.status in ('stopped', 'lost') and w.ended_at < clock_timestamp() - make_interval(secs => $1::double precision)
)
delete from detent.nodes n
where coalesce(n.ended_at, n.beat_at) < clock_timestamp() - make_interval(secs => $1::double precision)
  and not exists (select from detent.shard_leases s where s.node_id = n.node_id);
