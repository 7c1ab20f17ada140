"""Jobs in the store: made in `job_create`, read in `job_read`, changed in `job_change` and `work_change`."""

from detent.store.job_change import Change, Changed, Revision, Skipped, change_job, put_by_name
from detent.store.job_create import Draft, Made, create_each, create_jobs
from detent.store.job_read import (
    Fire,
    JobFilter,
    Standing,
    list_fires,
    list_jobs,
    read_each_job,
    read_job,
    upcoming_jobs,
)
from detent.store.request_keys import KeyReused, RequestKey
from detent.store.work_change import Run, RunAsked, cancel_execution, cancel_job, run_each, run_job

__all__ = [
    "Change",
    "Changed",
    "Draft",
    "Fire",
    "JobFilter",
    "KeyReused",
    "Made",
    "RequestKey",
    "Revision",
    "Run",
    "RunAsked",
    "Skipped",
    "Standing",
    "cancel_execution",
    "cancel_job",
    "change_job",
    "create_each",
    "create_jobs",
    "list_fires",
    "list_jobs",
    "put_by_name",
    "read_each_job",
    "read_job",
    "run_each",
    "run_job",
    "upcoming_jobs",
]
