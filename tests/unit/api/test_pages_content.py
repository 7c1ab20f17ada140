"""What pages say, without a store behind them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from detent.api.pages import job, overview, tables, words
from detent.model.execution import Execution
from detent.model.ids import new_job_id
from detent.model.job import Job, JobSpec, PythonTask, ShellTask
from detent.store.alerts import Alert
from detent.store.jobs import Fire
from detent.store.migrate import known
from detent.store.stats import CAP, Fleet, Overview

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ID = UUID("01890000-0000-7000-8000-000000000000")


def fleet(**given: Any) -> Fleet:
    facts = {"shards_leased": 256, "workers_live": 1, "slots_live": 10, "read_only": False}
    return Fleet(database_time=NOW, **{**facts, **given})


def seen(**given: Any) -> overview.Seen:
    figures = Overview({}, {}, {}, {}, 0, 0, 0, 0, [], fleet())
    empty = {"figures": figures, "upcoming": [], "executions": [], "names": {}, "jobs": []}
    return overview.Seen(now=NOW, address="http://127.0.0.1:9000", **{**empty, **given})


def a_job(**given: Any) -> Job:
    fields = {name: given.pop(name) for name in list(given) if name in Job.__struct_fields__}
    spec = JobSpec(**{"name": "job", "task": PythonTask("noop"), **given})
    facts = {
        "tenant": 1,
        "job_id": new_job_id(NOW),
        "payload": "null",
        "status": "scheduled",
        "next_run_at": None,
        "revision": 1,
        "armed_at": NOW,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Job(spec=spec, **{**facts, **fields})


def an_execution(**given: Any) -> Execution:
    facts: dict[str, Any] = {
        "execution_id": ID,
        "job_id": ID,
        "status": "queued",
        "cause": "schedule",
        "scheduled_for": NOW - timedelta(seconds=3),
        "queued_at": NOW,
        "started_at": None,
        "finished_at": None,
        "attempt": 0,
        "worker_id": None,
        "result": None,
        "error": None,
        "revision": 1,
    }
    return Execution(**{**facts, **given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"shards_leased": 0}, "Nobody fires"),
        ({"shards_leased": 100}, "100 of 256 shards"),
        ({"workers_live": 0}, "Nobody works"),
        ({"read_only": True}, "takes no writes"),
    ],
)
def test_what_keeps_jobs_from_happening_is_said(given: dict[str, Any], said: str) -> None:
    assert said in overview.warnings(fleet(**given))


def test_an_alert_names_its_job_and_leads_there() -> None:
    job = UUID("01998c2e-5c7a-7b3e-9f00-0123456789ab")
    alert = Alert(1, "dead_letter", str(job), "executions of this job are dead letters", 1, NOW, NOW)
    html = overview.warnings(fleet(), [alert], {job: "nightly <backup>"})
    assert f'href="/jobs/{job}"' in html
    assert "nightly &lt;backup&gt;" in html
    assert f'href="/jobs/{job}"' in overview.warnings(fleet(), [alert])
    assert overview.jobs_named([], [alert]) == {job}


def test_a_whole_fleet_needs_no_warning() -> None:
    assert overview.warnings(fleet()) == ""


def test_no_jobs_at_all_teaches_the_first_one() -> None:
    html = overview.content(seen())
    assert "Your first job" in html
    assert "--url http://127.0.0.1:9000" in html
    assert "Recent executions" not in html


def test_the_usual_address_needs_no_naming() -> None:
    html = overview.content(overview.Seen(NOW, overview.DEFAULT_ADDRESS, seen().figures, [], [], {}, []))
    assert "detent job create hello" in html
    assert "--url" not in html


def test_a_count_that_stopped_says_so() -> None:
    figures = Overview({"scheduled": CAP, "paused": 3}, {}, {}, {}, 25_600, 25_600, 0, 0, [], fleet())
    html = overview.content(seen(figures=figures, jobs=[a_job()]))
    assert ">10,003+<" in html
    assert ">10,000+<" in html
    assert ">25,600+<" in html


def test_a_rule_that_cannot_be_read_does_not_stop_the_page() -> None:
    bad = a_job(cron="61 * * * *", parked_reason="the rule raised <ValueError>", next_run_at=NOW)
    html = job.content(job.Seen(NOW, bad, [], []))
    assert "61 * * * * (cannot be read)" in html
    assert "the rule raised &lt;ValueError&gt;" in html
    assert "parked" in tables.jobs("x", [bad], NOW)


def test_a_range_of_the_ledger_says_how_many_instants_it_covers() -> None:
    row = Fire(
        nominal_at=NOW - timedelta(hours=2),
        generation=1,
        decision="skipped_misfire",
        decided_at=NOW,
        through_at=NOW - timedelta(hours=1),
        instants=60,
        execution_id=None,
        revision=1,
        node_id=None,
        reason=None,
    )
    html = job.content(job.Seen(NOW, a_job(every=60.0), [row], []))
    assert "skipped: too late" in html
    assert "60 instants through " in html


def test_an_unstarted_execution_says_how_late_it_is_by_now() -> None:
    assert "3.0 s so far" in str(tables.lateness(an_execution(), NOW))
    assert "none" in str(tables.lateness(an_execution(status="cancelled"), NOW))


def test_a_running_one_says_how_long_it_has_run() -> None:
    running = an_execution(status="running", started_at=NOW - timedelta(seconds=2))
    assert tables.lateness(running, NOW) == "1.0 s"
    assert "2.0 s so far" in str(tables.duration(running, NOW))


def test_a_once_job_says_its_instant_also_when_it_was_a_delay() -> None:
    assert "12:00:30" in tables.schedule(a_job(delay=30.0), NOW)
    assert "Mon 2 Mar 12:00:00" in tables.schedule(a_job(scheduled_at=NOW + timedelta(days=1)), NOW)


def test_the_values_of_an_environment_are_not_shown() -> None:
    task = ShellTask(("env", "a b"), env={"TOKEN": "hush"}, cwd="/srv")
    html = job.content(job.Seen(NOW, a_job(task=task), [], []))
    assert "TOKEN" in html
    assert "hush" not in html
    assert "env &#x27;a b&#x27;" in html


def test_payloads_are_laid_out_if_they_can_be() -> None:
    assert job.pretty('{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert job.pretty("not json") == "not json"
    long = '"' + "x" * job.LONGEST_FORMATTED + '"'
    assert job.pretty(long) == long


def test_every_decision_has_its_words() -> None:
    schema = "".join(one.text for one in known())
    listed = schema.split("decision_is_known check (decision in (")[1].split("))")[0]
    assert {word.strip(" '\n") for word in listed.split(",")} == set(words.DECISIONS)
