"""APScheduler 3: one process, jobs in PostgreSQL, run by threads. Two processes would run every job twice.

A running scheduler does not hear of jobs that another process makes, so it is started after they were made.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.blocking import BlockingScheduler
from body import instants, write

URL = os.environ["BENCH_URL"].replace("postgresql://", "postgresql+psycopg://")
DEFAULTS = {"misfire_grace_time": None, "coalesce": False, "max_instances": 1_000_000}


def run(at: float) -> None:
    write(at)


def load(n: int, first: float, rate: int) -> None:
    scheduler = BackgroundScheduler(jobstores={"default": SQLAlchemyJobStore(url=URL)}, job_defaults=DEFAULTS)
    scheduler.start(paused=True)
    now = datetime.now(UTC)
    for instant in instants(n, first, rate):
        due = datetime.fromtimestamp(instant, UTC) if instant else now
        scheduler.add_job("drive_apscheduler:run", "date", run_date=due, args=[instant])
    scheduler.shutdown()


def work() -> None:
    scheduler = BlockingScheduler(
        jobstores={"default": SQLAlchemyJobStore(url=URL)},
        executors={"default": ThreadPoolExecutor(20)},
        job_defaults=DEFAULTS,
    )
    scheduler.start()


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
    else:
        work()
