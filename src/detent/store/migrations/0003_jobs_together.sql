-- A job's rows are written together, by one statement, and jobs are never deleted. Looking each reference up, and
-- locking what it refers to, cost nearly half of making jobs in bulk: 51 of PostgreSQL's microseconds a job against
-- 28 without; and every job of a tenant locked that tenant's one row.
alter table detent.jobs drop constraint jobs_tenant_fkey;
alter table detent.job_revisions drop constraint job_revisions_job_id_fkey;
alter table detent.job_tags drop constraint job_tags_job_id_fkey;
alter table detent.timers drop constraint timers_job_id_fkey;
