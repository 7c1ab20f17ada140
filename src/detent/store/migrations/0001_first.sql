-- The store. Everything lives in the schema detent; every table names its tenant.
-- Hot and narrow: timers, live. Append-only and partitioned by day: fires, executions, attempts, logs.

create table detent.tenants (
    tenant      integer primary key,
    name        text not null,
    created_at  timestamptz not null default clock_timestamp(),
    constraint tenant_name_is_unique unique (name)
);
insert into detent.tenants (tenant, name) values (1, 'default');

-- Jobs: what is asked for ---------------------------------------------------------------------------

create table detent.jobs (
    tenant           integer not null references detent.tenants,
    job_id           uuid primary key,
    name             text not null,
    by_name          boolean not null default false,
    pool             text not null,
    revision         integer not null,
    idempotency_key  text,
    created_at       timestamptz not null default clock_timestamp(),
    updated_at       timestamptz not null default clock_timestamp(),
    constraint revision_is_positive check (revision > 0)
) with (fillfactor = 90);
create unique index one_job_by_name on detent.jobs (tenant, name) where by_name;
create index jobs_by_tenant on detent.jobs (tenant, job_id);
create index jobs_by_name on detent.jobs (tenant, name, job_id);
create index jobs_by_pool on detent.jobs (tenant, pool, job_id) where pool <> 'default';

-- A revision is immutable; an execution names the one it runs and copies nothing of it.
-- armed_at is the instant at which the schedule was set: delays and intervals count from it, and an edit
-- that leaves the schedule alone carries it over.
create table detent.job_revisions (
    tenant      integer not null,
    job_id      uuid not null references detent.jobs on delete cascade,
    revision    integer not null,
    spec        jsonb not null,
    payload     text not null,
    armed_at    timestamptz not null,
    author      text,
    created_at  timestamptz not null default clock_timestamp(),
    primary key (job_id, revision)
);

create table detent.job_tags (
    tenant  integer not null,
    tag     text not null,
    job_id  uuid not null references detent.jobs on delete cascade,
    primary key (tenant, tag, job_id)
);
create index tags_of_a_job on detent.job_tags (job_id);

-- How a job ended, if it did: appended in the transaction that ended it. Absent means that it has not.
create table detent.job_ends (
    tenant    integer not null,
    job_id    uuid primary key,  -- no foreign key: it would cost a lookup and a lock for every finish
    status    text not null,
    ended_at  timestamptz not null default clock_timestamp(),
    constraint job_end_is_known check (status in ('completed', 'failed', 'cancelled'))
);
create index ends_by_status on detent.job_ends (tenant, status, job_id);

-- Keys under which a request was made before: a repeat finds its subject, another body is a conflict.
create table detent.request_keys (
    tenant      integer not null,
    scope       text not null,
    key         text not null,
    body_hash   bytea not null,
    subject     uuid not null,
    created_at  timestamptz not null default clock_timestamp(),
    primary key (tenant, scope, key)
);
create index request_keys_by_subject on detent.request_keys (subject);

-- The clockwork ------------------------------------------------------------------------------------------

-- One narrow row for each job. Any write that can change a fire bumps version in its own transaction;
-- firing compares version and due_at. Instants up to decided_through are never decided again.
--   scheduled -> scheduled (fired), done (last instant fired), paused, parked (its rule raised)
--   paused -> scheduled | idle | done;  idle: no schedule;  done -> scheduled (re-armed by an edit)
create table detent.timers (
    job_id           uuid primary key references detent.jobs on delete cascade,
    due_at           timestamptz,
    decided_through  timestamptz,
    version          bigint not null default 1,
    fired            bigint not null default 0,
    tenant           integer not null,
    generation       integer not null default 1,
    shard            smallint not null,
    status           text not null,
    parked_reason    text,
    constraint timer_status_is_known check (status in ('scheduled', 'paused', 'idle', 'done', 'parked')),
    constraint scheduled_timer_is_due check (status <> 'scheduled' or due_at is not null),
    constraint shard_is_one_of_256 check (shard between 0 and 255)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
create index timers_due on detent.timers (shard, due_at, job_id) where status = 'scheduled';
create index timers_idle on detent.timers (tenant, job_id) where status in ('idle', 'parked');
create index timers_paused on detent.timers (tenant, job_id) where status = 'paused';

-- The ledger: one row for each decided instant, or for one range of instants that were not run.
create table detent.fires (
    tenant        integer not null,
    job_id        uuid not null,
    generation    integer not null,
    nominal_at    timestamptz not null,
    day           date not null,
    decision      text not null,
    decided_at    timestamptz not null,
    through_at    timestamptz,
    instants      integer,
    execution_id  uuid,
    revision      integer not null,
    node_id       uuid,    -- absent when a person decided: a resume, a skip
    epoch         bigint,
    tzdata        text,
    reason        text,
    primary key (job_id, nominal_at, generation, day),
    constraint decision_is_known check (decision in (
        'fired', 'fired_late', 'skipped_overlap', 'skipped_misfire', 'skipped_calendar', 'skipped_paused',
        'skipped_by_user', 'skipped_end', 'dst_gap', 'dst_fold', 'parked')),
    constraint fired_names_its_execution check ((decision in ('fired', 'fired_late')) = (execution_id is not null)),
    constraint range_ends_after_it_starts check (through_at is null or through_at >= nominal_at)
) partition by range (day);

-- Open executions: one row, one state, from queued to closed. Fixed-width columns first. No index may name
-- a column that a claim changes (state, token, worker, attempt, not_before): then claims stay heap-only.
--   held -> queued;  queued | retrying -> running (claim);  running -> retrying | queued (released, lost);
--   any -> closed (the row leaves for executions)
create table detent.live (
    execution_id         uuid not null,
    job_id               uuid not null,
    scheduled_for        timestamptz not null,
    not_before           timestamptz not null,
    queued_at            timestamptz not null,
    started_at           timestamptz,
    claimed_at           timestamptz,
    cancel_requested_at  timestamptz,
    deadline_at          timestamptz,
    rank                 bigint not null,
    token                bigint,
    worker_id            uuid,
    blocked_by           uuid,
    source_id            uuid,
    tenant               integer not null,
    revision             integer not null,
    attempt              integer not null default 0,
    failures             integer not null default 0,
    losses               integer not null default 0,
    class                smallint not null,
    ends_job             boolean not null,
    own_input            boolean not null default false,
    state                text not null,
    cause                text not null,
    pool                 text not null,
    exclusive_key        text,
    reason               text,
    constraint state_is_known check (state in ('held', 'queued', 'running', 'retrying')),
    constraint running_is_leased check ((state = 'running') = (worker_id is not null and token is not null)),
    constraint class_is_known check (class between 0 and 3)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0);
create unique index live_in_claim_order on detent.live (pool, class, rank);
create unique index one_open_execution_per_exclusive_key on detent.live (exclusive_key) where exclusive_key is not null;
create index live_of_a_job on detent.live (job_id, execution_id);
create index live_to_cancel on detent.live (execution_id) where cancel_requested_at is not null;
create index live_with_deadline on detent.live (deadline_at) where deadline_at is not null;
-- Last, because among indexes that look equally cheap the planner takes the youngest, and on an empty table
-- they all do: a look-up by id must not end up walking live_of_a_job.
alter table detent.live add primary key (execution_id);
create sequence detent.ranks;

-- History ----------------------------------------------------------------------------------------------------

-- One closing row for every execution, also for one that never had an attempt. Partitioned by id: its time
-- prefix names the day.
create table detent.executions (
    execution_id   uuid not null,
    job_id         uuid not null,
    scheduled_for  timestamptz not null,
    queued_at      timestamptz not null,
    started_at     timestamptz,
    finished_at    timestamptz not null,
    token          bigint,
    worker_id      uuid,
    source_id      uuid,
    tenant         integer not null,
    revision       integer not null,
    attempt        integer not null,
    failures       integer not null,
    losses         integer not null,
    class          smallint not null,
    own_input      boolean not null default false,
    status         text not null,
    cause          text not null,
    pool           text not null,
    result         text,
    error          text,
    reason         text,
    primary key (execution_id),
    constraint closed_status_is_known check (status in (
        'succeeded', 'failed', 'timed_out', 'cancelled', 'skipped', 'dead_lettered'))
) partition by range (execution_id);
create index executions_of_a_job on detent.executions (job_id, execution_id);
create index executions_not_succeeded on detent.executions (tenant, status, execution_id) where status <> 'succeeded';

-- The payload of an execution that does not run with that of its revision: a replay with an edited one.
create table detent.inputs (
    execution_id  uuid primary key,
    tenant        integer not null,
    payload       text not null
) partition by range (execution_id);

-- The payload of one execution, if it has one of its own. A statement that rarely asks must not pay for knowing
-- every partition of inputs: as a subselect this made every close_batch half as slow again.
create function detent.input_of(execution uuid) returns text language plpgsql stable as $$
begin
    return (select i.payload from detent.inputs i where i.execution_id = execution);
end
$$;

-- What the last attempt of an execution said of its progress.
create table detent.progress (
    execution_id  uuid primary key,
    tenant        integer not null,
    attempt       integer not null,
    pct           double precision not null,
    message       text,
    told_at       timestamptz not null default clock_timestamp(),
    constraint progress_is_a_share check (pct between 0 and 100)
) partition by range (execution_id);

create table detent.attempts (
    execution_id  uuid not null,
    attempt       integer not null,
    day           date not null,
    tenant        integer not null,
    token         bigint not null,
    worker_id     uuid not null,
    started_at    timestamptz,
    finished_at   timestamptz not null,
    outcome       text not null,
    error         text,
    primary key (execution_id, attempt, day),
    constraint outcome_is_known check (outcome in (
        'succeeded', 'failed', 'timed_out', 'cancelled', 'worker_lost', 'released'))
) partition by range (day);

create table detent.logs (
    execution_id  uuid not null,
    attempt       integer not null,
    seq           integer not null,
    day           date not null,
    tenant        integer not null,
    logged_at     timestamptz not null,
    stream        text not null,
    text          text not null,
    primary key (execution_id, attempt, seq, day),
    constraint stream_is_known check (stream in ('stdout', 'stderr', 'log'))
) partition by range (day);

-- Executions out of attempts, waiting for a person. A letter outlives the history, so one that ran with a payload
-- of its own keeps a copy; the others have that of their revision.
--   waiting -> replayed | discarded; both are final
create table detent.dead_letters (
    tenant        integer not null,
    execution_id  uuid primary key,
    job_id        uuid not null,
    revision      integer not null,
    status        text not null default 'waiting',
    reason        text not null,
    error         text,
    payload       text,
    died_at       timestamptz not null,
    settled_at    timestamptz,
    replayed_as   uuid,
    note          text,
    constraint letter_status_is_known check (status in ('waiting', 'replayed', 'discarded')),
    constraint replayed_names_its_execution check ((status = 'replayed') = (replayed_as is not null))
);
create index dead_letters_by_status on detent.dead_letters (tenant, status, execution_id);
create index dead_letters_of_a_job on detent.dead_letters (job_id, execution_id);

-- Callbacks that wait to be delivered, or that were given up (failed_at) and wait for a person.
create table detent.callbacks (
    tenant        integer not null,
    execution_id  uuid primary key,
    job_id        uuid not null,
    url           text not null,
    not_before    timestamptz not null,
    tries         integer not null default 0,
    last_error    text,
    failed_at     timestamptz,
    created_at    timestamptz not null default clock_timestamp()
);
create index callbacks_due on detent.callbacks (not_before) where failed_at is null;

-- The fleet -------------------------------------------------------------------------------------------------

-- One row for each incarnation of a worker. beat is a counter: liveness never rests on a clock alone.
--   live -> draining -> stopped;  live | draining -> lost (for good)
create table detent.workers (
    worker_id      uuid primary key,
    tenant         integer not null,
    name           text not null,
    host           text not null,
    pid            integer not null,
    pools          text[] not null,
    slots          integer not null,
    tasks          text[] not null,
    status         text not null default 'live',
    beat           bigint not null default 0,
    beat_at        timestamptz not null default clock_timestamp(),
    lease_seconds  double precision not null,
    in_flight      integer not null default 0,
    overdue_at     timestamptz,  -- when the first of its running attempts is out of time
    stale_writes   bigint not null default 0,
    started_at     timestamptz not null default clock_timestamp(),
    ended_at       timestamptz,
    constraint worker_status_is_known check (status in ('live', 'draining', 'stopped', 'lost'))
) with (fillfactor = 50);
create index workers_present on detent.workers (worker_id) where status in ('live', 'draining');

create table detent.nodes (
    node_id     uuid primary key,
    tenant      integer not null,
    host        text not null,
    pid         integer not null,
    lock_key    bigint not null,
    beat        bigint not null default 0,
    beat_at     timestamptz not null default clock_timestamp(),
    skew_ms     double precision,
    lag_ms      double precision not null default 0,  -- how late its last fires were
    standby     boolean not null default false,
    leaving     boolean not null default false,
    started_at  timestamptz not null default clock_timestamp(),
    ended_at    timestamptz
) with (fillfactor = 50);

create table detent.shard_leases (
    shard       smallint primary key,
    tenant      integer not null default 1,
    node_id     uuid,
    epoch       bigint not null default 0,
    expires_at  timestamptz not null default '-infinity',
    constraint lease_shard_is_one_of_256 check (shard between 0 and 255)
) with (fillfactor = 50);
insert into detent.shard_leases (shard) select generate_series(0, 255);

-- What a person should know. One open row for each thing that is wrong; a repeat counts up.
create table detent.alerts (
    alert_id     bigint generated always as identity primary key,
    tenant       integer not null,
    kind         text not null,
    subject      text not null,
    message      text not null,
    times        bigint not null default 1,
    raised_at    timestamptz not null default clock_timestamp(),
    last_at      timestamptz not null default clock_timestamp(),
    resolved_at  timestamptz
);
create unique index one_open_alert_for_each_subject on detent.alerts (tenant, kind, subject) where resolved_at is null;

-- Tokens grow for ever. The timeline in the high bits keeps a failover that lost commits from issuing a
-- token twice.
create sequence detent.tokens;
create function detent.next_token() returns bigint language sql volatile as $$
    select (('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint << 40)
           | nextval('detent.tokens')
$$;

-- Partitions -----------------------------------------------------------------------------------------------------

create function detent.first_id_of(day date) returns uuid language sql immutable as $$
    select (lpad(to_hex((extract(epoch from day::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

-- Makes the day partitions of all history tables. Tables are made apart and then attached: attaching locks
-- out neither readers nor writers of the parent.
create function detent.ensure_partitions(first_day date, last_day date) returns integer
language plpgsql as $$
declare
    parent  text;
    child   text;
    d       date;
    made    integer := 0;
begin
    perform pg_advisory_xact_lock(hashtext('detent.partitions'));
    for d in select generate_series(first_day, last_day, interval '1 day')::date loop
        foreach parent in array array['fires', 'executions', 'inputs', 'progress', 'attempts', 'logs'] loop
            child := parent || '_' || to_char(d, 'YYYYMMDD');
            if to_regclass(format('detent.%I', child)) is null then
                execute format('create table detent.%I (like detent.%I including all)', child, parent);
                if parent in ('executions', 'inputs', 'progress') then
                    execute format('alter table detent.%I attach partition detent.%I for values from (%L) to (%L)',
                                   parent, child, detent.first_id_of(d), detent.first_id_of(d + 1));
                else
                    execute format('alter table detent.%I attach partition detent.%I for values from (%L) to (%L)',
                                   parent, child, d, d + 1);
                end if;
                made := made + 1;
            end if;
        end loop;
    end loop;
    return made;
end
$$;

-- Drops the day partitions before a day. A partition that somebody reads just now is left for the next time:
-- waiting for it would make everybody who comes after wait too. So are the others of its table, or a long reader
-- would be waited for once for each day, with the tables locked that days were dropped from before. A day with
-- work still open stays.
create function detent.drop_partitions(before date) returns integer
language plpgsql as $$
declare
    child    record;
    busy     text[] := '{}';
    dropped  integer := 0;
begin
    perform pg_advisory_xact_lock(hashtext('detent.partitions'));
    perform set_config('lock_timeout', '200ms', true);
    for child in
        select c.relname, p.relname as parent
        from pg_inherits i
        join pg_class c on c.oid = i.inhrelid
        join pg_class p on p.oid = i.inhparent
        join pg_namespace n on n.oid = p.relnamespace
        where n.nspname = 'detent' and p.relname in ('fires', 'executions', 'inputs', 'progress', 'attempts', 'logs')
          and c.relname ~ '_[0-9]{8}$' and to_date(right(c.relname, 8), 'YYYYMMDD') < before
        order by right(c.relname, 8), c.relname
    loop
        if child.parent = any(busy)
           or exists (select from detent.live l where l.queued_at < before
                      and l.queued_at >= to_date(right(child.relname, 8), 'YYYYMMDD')) then
            continue;
        end if;
        begin
            execute format('drop table detent.%I', child.relname);
            dropped := dropped + 1;
        exception when lock_not_available then
            busy := busy || child.parent::text;
        end;
    end loop;
    return dropped;
end
$$;

select detent.ensure_partitions((clock_timestamp() at time zone 'UTC')::date - 8,
                                (clock_timestamp() at time zone 'UTC')::date + 8);
