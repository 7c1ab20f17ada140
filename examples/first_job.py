"""Schedules jobs from a script and waits for one.

detent up --import tasks          (in this folder, in another terminal)
python first_job.py
"""

import os
from datetime import timedelta

from detent import Client

client = Client(os.environ.get("DETENT_URL", "http://127.0.0.1:8642"))

# A shell command every minute.
hello = client.schedule(
    {"kind": "shell", "command": "echo hello from $(hostname)"},
    name="hello",
    cron="* * * * *",
)
print(f"{hello.name} runs next at {hello.next_run_at}")

# A Python task of tasks.py on weekday mornings in Berlin. The key makes it safe to run this script again.
report = client.schedule(
    "send_report",
    cron="0 9 * * MON-FRI",
    timezone="Europe/Berlin",
    payload={"to": "team@example.org"},
    max_retries=5,
    key="first_job.py/report",
)
print(f"{report.name} runs next at {report.next_run_at}")

# One-time jobs: as soon as possible, and a little later.
sum_job = client.enqueue("add", {"a": 20, "b": 22})
client.schedule("add", delay=timedelta(minutes=5), payload={"a": 1, "b": 1})

execution = client.wait(sum_job, timeout=30)
print(f"20 + 22 = {execution.result} ({execution.status}, {execution.duration_ms} ms)")

# Run the report now, besides its schedule, and read what it wrote.
execution = client.wait(client.run(report.job_id), timeout=30)
print(client.logs(execution.execution_id), end="")
