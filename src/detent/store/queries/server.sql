-- What a process asks of a server before it uses it.

-- name: server_facts
-- Its version, and how many connections this role may have to this database at most.
select
    current_setting('server_version_num')::int as version_number,
    current_setting('server_version') as version,
    least(
        current_setting('max_connections')::int
            - case when r.rolsuper then 0
              else current_setting('superuser_reserved_connections')::int
                   + coalesce(current_setting('reserved_connections', true), '0')::int
              end,
        nullif(r.rolconnlimit, -1),
        nullif(d.datconnlimit, -1)
    ) as connections
from pg_catalog.pg_roles r, pg_catalog.pg_database d
where r.rolname = current_user and d.datname = current_database();

-- name: notify
-- Sends gathered wake-ups.
select pg_notify(m.channel, m.payload) from unnest($1::text[], $2::text[]) as m (channel, payload);

-- name: ping
-- Asks for nothing: a connection that is dead shows itself.
select 1;
