"""What must be true of the tables at every instant, whatever was broken on the way; and what is left at the end.

`unsound` names every row that contradicts a promise. `summary` says what came of it all without ids, tokens and
instants, and without attempts that only a fault explains: two runs of the same story, one of them broken,
must have the same.
"""

from __future__ import annotations

from typing import Any

from detent.store.database import Database

# Each statement answers the rows that must not be there.
CONTRADICTIONS = {
    "an execution is open and closed at once": """
        select l.execution_id from detent.live l join detent.executions x using (execution_id)""",
    "a fire has no execution, or not that of its instant": """
        select f.job_id, f.nominal_at, f.decision from detent.fires f
        left join (select execution_id, job_id, scheduled_for from detent.live
                   union all select execution_id, job_id, scheduled_for from detent.executions) e
            using (execution_id)
        where f.decision in ('fired', 'fired_late')
          and (e.execution_id is null or (e.job_id, e.scheduled_for) <> (f.job_id, f.nominal_at))""",
    "a scheduled execution has no ledger row": """
        select e.execution_id from (select execution_id, cause from detent.live
                                    union all select execution_id, cause from detent.executions) e
        where e.cause = 'schedule' and not exists (select from detent.fires f where f.execution_id = e.execution_id)""",
    "an instant was decided twice": """
        select a.job_id, a.nominal_at, b.nominal_at from detent.fires a
        join detent.fires b on a.job_id = b.job_id and a.generation = b.generation and a.ctid <> b.ctid
        where b.nominal_at between a.nominal_at and coalesce(a.through_at, a.nominal_at)""",
    "attempts are not numbered from 1 without a gap": """
        select e.execution_id, e.attempt, array_agg(a.attempt order by a.attempt) from (
            select execution_id, attempt, attempt - (state = 'running')::integer as ended from detent.live
            union all select execution_id, attempt, attempt from detent.executions) e
        left join detent.attempts a using (execution_id)
        group by e.execution_id, e.attempt, e.ended
        having array_agg(a.attempt order by a.attempt)
               <> coalesce(nullif(array(select generate_series(1, e.ended)), '{}'), array[null::integer])""",
    "an attempt has no token of its own": """
        select a.execution_id, a.attempt from detent.attempts a join detent.attempts b using (execution_id)
        where b.attempt > a.attempt and b.token <= a.token
        union all
        select l.execution_id, l.attempt from detent.live l join detent.attempts a using (execution_id)
        where l.token <= a.token""",
    "a closed execution has no outcome, or two": """
        select x.execution_id, x.status, count(a.attempt) from detent.executions x
        left join detent.attempts a on a.execution_id = x.execution_id and a.outcome = 'succeeded'
        group by x.execution_id, x.status
        having count(a.attempt) <> (x.status = 'succeeded')::integer""",
    "an open execution has succeeded already": """
        select l.execution_id from detent.live l join detent.attempts a using (execution_id)
        where a.outcome = 'succeeded'""",
    "failures or losses were miscounted": """
        select e.execution_id, e.failures, e.losses from (
            select execution_id, failures, losses from detent.live
            union all select execution_id, failures, losses from detent.executions) e
        where e.failures <> (select count(*) from detent.attempts a where a.execution_id = e.execution_id
                             and a.outcome in ('failed', 'timed_out'))
           or e.losses < (select count(*) from detent.attempts a where a.execution_id = e.execution_id
                          and a.outcome = 'worker_lost')""",
    "dead letters and executions differ": """
        select x.execution_id from detent.executions x full join detent.dead_letters d using (execution_id)
        where (x.status = 'dead_lettered') is distinct from (d.execution_id is not null)""",
    "a replay and its letter differ": """
        select d.execution_id, d.replayed_as from detent.dead_letters d
        left join (select execution_id, source_id from detent.live
                   union all select execution_id, source_id from detent.executions) e
            on e.source_id = d.execution_id
        where d.replayed_as is distinct from e.execution_id""",
    "a lease is held by a worker that is gone": """
        select l.execution_id, w.status from detent.live l left join detent.workers w using (worker_id)
        where l.state = 'running' and w.status is distinct from 'live' and w.status is distinct from 'draining'""",
    "a one-time job ended without its execution, or not with it": """
        select j.job_id, e.status from detent.jobs j
        join detent.timers t using (job_id) left join detent.job_ends e using (job_id)
        where exists (select from detent.executions x where x.job_id = j.job_id and x.cause = 'schedule')
          and t.status = 'done' and e.status is null
          and not exists (select from detent.live l where l.job_id = j.job_id)""",
    "a key stands for nothing": """
        select k.scope, k.key from detent.request_keys k
        where not exists (select from detent.jobs j where j.job_id = k.subject)
          and not exists (select from detent.live l where l.execution_id = k.subject)
          and not exists (select from detent.executions x where x.execution_id = k.subject)""",
    "a job has not one timer and its revisions": """
        select j.job_id from detent.jobs j left join detent.timers t using (job_id)
        where t.job_id is null
           or (select count(*) from detent.job_revisions r where r.job_id = j.job_id) <> j.revision""",
}

LEFT = {
    "jobs": "select j.name, j.revision, t.status, t.version, t.fired, t.generation"
    " from detent.jobs j join detent.timers t using (job_id)",
    "fires": "select j.name, f.decision, f.instants from detent.fires f join detent.jobs j using (job_id)",
    "open": "select j.name, l.state, l.cause, l.failures from detent.live l join detent.jobs j using (job_id)",
    "closed": "select j.name, x.status, x.cause, x.failures, x.result"
    " from detent.executions x join detent.jobs j using (job_id)",
    "attempts": "select a.outcome, count(*) from detent.attempts a"
    " where a.outcome not in ('released', 'worker_lost') group by a.outcome",
    "letters": "select j.name, d.status, d.reason from detent.dead_letters d join detent.jobs j using (job_id)",
    "ends": "select j.name, e.status from detent.job_ends e join detent.jobs j using (job_id)",
    "callbacks": "select j.name, count(*) from detent.callbacks c join detent.jobs j using (job_id) group by 1",
    "keys": "select scope like 'jobs', count(*) from detent.request_keys group by 1",
    "logs": "select j.name, g.seq, g.text from detent.logs g"
    " join (select execution_id, job_id from detent.live"
    "       union all select execution_id, job_id from detent.executions) e using (execution_id)"
    " join detent.jobs j using (job_id)",
    "inputs": "select i.payload from detent.inputs i"
    " join (select execution_id from detent.live union all select execution_id from detent.executions) e"
    " using (execution_id)",
    "shards": "select count(*) from detent.shard_leases where expires_at > clock_timestamp()",
}

Summary = dict[str, list[tuple[Any, ...]]]


async def unsound(db: Database) -> list[str]:
    found: list[str] = []
    for what, query in CONTRADICTIONS.items():
        found += [f"{what}: {tuple(row)}" for row in await db.fetch(query)]
    return found


async def summary(db: Database) -> Summary:
    return {
        what: sorted((tuple(row) for row in await db.fetch(query)), key=repr) for what, query in LEFT.items()
    }
