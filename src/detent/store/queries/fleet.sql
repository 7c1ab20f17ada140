-- name: register_node
-- A scheduler node joins.
insert into detent.nodes (node_id, tenant, host, pid, lock_key) values ($1::uuid, $2::integer, $3::text, $4::integer, $5::bigint)
on conflict (node_id) do nothing;

-- name: hold_incarnation_lock
-- Holds this incarnation's advisory lock for the life of the session.
select pg_try_advisory_lock($1::bigint);

-- name: beat_node
-- A node lives.
update detent.nodes n set beat = n.beat + 1, beat_at = clock_timestamp(), skew_ms = $2::double precision
where n.node_id = $1::uuid;

-- name: take_shards
-- Renews the leases this node holds, and takes those that are free: never held, expired, or held by a node
-- whose incarnation lock is free. A new owner means a new epoch.
update detent.shard_leases s
set node_id = $1::uuid,
    epoch = case when s.node_id = $1::uuid then s.epoch else s.epoch + 1 end,
    expires_at = clock_timestamp() + make_interval(secs => $2::double precision)
where s.shard = any(array(
    select c.shard from detent.shard_leases c
    where c.node_id is null or c.node_id = $1::uuid or c.expires_at < clock_timestamp()
       or exists (select from detent.nodes n where n.node_id = c.node_id
                  and not exists (select from pg_locks k
                                  where k.locktype = 'advisory' and k.objsubid = 1 and k.granted
                                    and k.database = (select d.oid from pg_database d where d.datname = current_database())
                                    and (k.classid::bigint << 32 | k.objid::bigint) = n.lock_key))
    order by c.shard
    for update))
returning s.shard, s.epoch;

-- name: leave_shards
-- A planned stop: hands the leases back.
update detent.shard_leases s set node_id = null, expires_at = '-infinity' where s.node_id = $1::uuid;

-- name: end_node
-- A node leaves of its own will.
update detent.nodes n set ended_at = clock_timestamp() where n.node_id = $1::uuid;
