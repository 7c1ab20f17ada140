"""Celery on Redis: one worker process, prefetching, without results. Four threads were its fastest pool throughout.

Jobs with an instant are held in the worker's memory until then, for which it must prefetch all of them.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime

from body import instants, write
from celery import Celery

app = Celery("drive_celery", broker=os.environ["BENCH_REDIS"])
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=0 if os.environ["BENCH_DELAYED"] == "1" else 256,
    worker_enable_remote_control=False,
    worker_timer_precision=0.001,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    task_acks_late=False,
)


@app.task(name="write")
def run(at: float) -> None:
    write(at)


def load(n: int, first: float, rate: int) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for instant in instants(n, first, rate):
            eta = datetime.fromtimestamp(instant, UTC) if instant else None
            run.apply_async((instant,), eta=eta, producer=producer)


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
    else:
        app.worker_main(
            ["worker", "--pool", "threads", "--concurrency", "4", "--loglevel", "ERROR", "--without-gossip", "--without-mingle",
             "--without-heartbeat", "--hostname", f"w{os.getpid()}@bench"]
        )  # fmt: skip
