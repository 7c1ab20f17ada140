"""Rows that are hard to store, or impossible, among others: each harms itself only, is told, and the rest goes on."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import asyncpg
import pytest
from customer import Acknowledged
from killing import Systems
from story import ask
from systems import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

NUL = "a\0b"
PAYLOAD_LIMIT, RESULT_LIMIT = 262_144, 65_536
BAD_BYTES = r"printf 'a\377b\000c\n'; printf '\355\240\200' >&2"
AHEAD = 4.0


def gives(name: str, **payload: Any) -> dict[str, Any]:
    return {"name": name, "task": "fault.gives", "payload": payload, "max_retries": 0, "delay": AHEAD}


def full_payload() -> dict[str, Any]:
    """One that just fits."""
    frame = len('{"result":"ok","filler":""}')
    return {"result": "ok", "filler": "x" * (PAYLOAD_LIMIT - frame)}


async def spoil(url: str, jobs: list[Acknowledged]) -> None:
    """Give some jobs a rule that cannot be evaluated, as only another program could have."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            "update detent.job_revisions set spec = spec - 'delay' || '{\"cron\": \"no rule\"}'::jsonb"
            " where job_id = any($1::uuid[])",
            [job.job_id for job in jobs],
        )
        await connection.execute(
            "update detent.timers set version = version + 1 where job_id = any($1::uuid[])",
            [job.job_id for job in jobs],
        )
    finally:
        await connection.close()


def test_rows_that_are_hard_to_store_harm_themselves_only(systems: Systems) -> None:
    """All are due at one instant, so that they share the batches of firing, claiming and recording."""
    systems.start("--slots", "50").ready()
    create = systems.api.create
    plain = [create(gives(f"plain {n}", result=n)) for n in range(10)]
    nul = create(gives("nul", result=NUL))
    nul_error = create(gives("nul error", error=NUL))
    lone_error = create(gives("lone error", error="half", half=True))
    lone = create(gives("lone", result="half", half=True))
    full = create(gives("full", **full_payload()))
    big = create(gives("big", result="x", times=RESULT_LIMIT - 2))
    too_big = create(gives("too big", result="x", times=RESULT_LIMIT - 1))
    bytes_ = create({**gives("bytes"), "task": {"kind": "shell", "command": BAD_BYTES}})
    raises = [create(gives(f"raises {n}", result=n)) for n in range(2)]
    asyncio.run(spoil(systems.database, raises))

    def ended(job: Acknowledged) -> Any:
        executions = systems.api.all(f"/jobs/{job.job_id}/executions")
        found = [one for one in executions if one["finished_at"]]
        return systems.api.call("GET", f"/executions/{found[0]['execution_id']}") if found else None

    def end(job: Acknowledged) -> Any:
        return until(lambda: ended(job), 30, f"the end of {job.body['name']}")

    for number, job in enumerate(plain):
        execution = end(job)
        assert (execution["status"], execution["result"], execution["attempt"]) == ("succeeded", number, 1)
        assert execution["lateness_ms"] < 2000
    assert end(nul)["result"] == NUL
    assert end(big)["result"] == "x" * (RESULT_LIMIT - 2)
    assert end(full)["result"] == "ok"
    for job in (nul_error, lone_error, too_big):
        execution = end(job)
        assert (execution["status"], len(execution["attempts"])) == ("dead_lettered", 1)
        assert "\0" not in execution["error"]["message"]
    assert end(lone)["status"] in ("succeeded", "dead_lettered")
    assert "65,536 are allowed" in end(too_big)["error"]["message"]
    execution = end(bytes_)
    assert execution["status"] == "succeeded"
    assert execution["stdout"] == "a\ufffdb\ufffdc\n"
    for job in raises:
        until(lambda job=job: parked(systems, job), 10, "its being parked")  # type: ignore[misc]
        [fire] = systems.api.all(f"/jobs/{job.job_id}/fires")
        assert fire["decision"] == "parked"
        assert "cannot be evaluated" in fire["reason"]
        assert systems.api.all(f"/jobs/{job.job_id}/executions") == []
    alerts = systems.api.call("GET", "/stats/overview")["alerts"]
    assert {one["subject"] for one in alerts if one["kind"] == "parked"} == {
        str(job.job_id) for job in raises
    }
    assert all("is parked: its rule cannot be evaluated" in line for line in systems.complaints())
    systems.stop()


def parked(systems: Systems, job: Acknowledged) -> bool:
    status = "select status from detent.timers where job_id = $1"
    return bool(ask(systems.database, status, job.job_id) == "parked")
