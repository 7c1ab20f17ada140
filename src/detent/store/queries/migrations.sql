-- The record of what was done to the schema. These run before the schema is there.

-- name: lock_migrations
-- One migrator at a time, until its transaction ends.
select pg_advisory_xact_lock(7308604759847858533::bigint);

-- name: has_migrations
-- Whether this database has a record of migrations.
-- Reads the tables, because to_regclass answers from a cache that waiting for an advisory lock does not
-- refresh: it would not see what the one before us has just made.
select exists (
    select from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'detent' and c.relname = 'migrations' and c.relkind = 'r'
);

-- name: make_schema
-- The one room for everything.
create schema if not exists detent;

-- name: make_migrations
-- The record itself: number, name and content of every migration that was applied.
create table if not exists detent.migrations (
    number           integer primary key,
    name             text not null,
    checksum         text not null,
    applied_at       timestamptz not null default clock_timestamp(),
    program_version  text not null,
    constraint migration_number_is_positive check (number > 0)
);

-- name: list_migrations
-- What was applied, in order.
select number, name, checksum from detent.migrations order by number;

-- name: record_migration
-- Note that one was applied, and by which program.
insert into detent.migrations (number, name, checksum, program_version)
values ($1::integer, $2::text, $3::text, $4::text);
