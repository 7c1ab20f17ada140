"""Tasks that a worker can run. Start it beside them:

detent up --import tasks          (in this folder)
"""

import asyncio

from detent import Context, NonRetryable, task


@task("send_report")
async def send_report(payload, ctx: Context):
    """Runs on the worker's event loop. What it returns is the execution's result."""
    if "@" not in payload["to"]:
        raise NonRetryable(f"{payload['to']!r} is no address: trying again would not help")
    ctx.log(f"attempt {ctx.attempt}: sending the report of {ctx.scheduled_for:%Y-%m-%d} to {payload['to']}")
    await asyncio.sleep(0.1)
    return {"sent_to": payload["to"]}


@task("add")
def add(payload):
    """A plain function runs in a thread."""
    return payload["a"] + payload["b"]
