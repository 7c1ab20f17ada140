"""The pages through the real server, on the real store."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from html.parser import HTMLParser
from typing import Any
from uuid import UUID

import pytest
from api_client import Api, Running

from detent.api.pages import frame
from detent.model.execution import ErrorInfo
from detent.model.work import Claim, Finished, LogChunk, us_of
from detent.runtime.clock import Clock
from detent.store import work
from detent.store.database import Database
from stage import HOUR, MINUTE, SECOND, Stage

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)></pre></code>"
UNKNOWN = "01890000-0000-7000-8000-000000000000"
VOID = {"meta", "link", "img", "br", "hr"}


@dataclass
class Page(HTMLParser):
    """A page as a browser without scripts sees it."""

    status: int
    headers: dict[str, str]
    html: str
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._within: list[str] = []
        self.feed(self.html)
        self.close()
        assert not self._within, "every element ends"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag == "pre":
            self.blocks.append("")
        if tag not in VOID:
            self._within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._within.pop() == tag

    def handle_data(self, data: str) -> None:
        if "pre" in self._within:
            self.blocks[-1] += data
        self.text += data + " "

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def links(self) -> list[str]:
        return [attributes["href"] for attributes in self.all("a")]


async def page(api: Api, path: str, method: str = "GET", accept: str = "text/html") -> Page:
    asked = api.session.request(method, api.address + path, headers={"accept": accept})
    async with asked as answer:
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Page(answer.status, headers, (await answer.read()).decode())


async def claimed(api: Api, job: dict[str, Any], *, again: bool = False) -> Claim:
    """Run a job by hand and take it as a worker does."""
    if not again:
        assert (await api.post(f"/jobs/{job['job_id']}/run", {})).status == 202
    [claim] = await api.stage.claim(await api.stage.worker())
    return claim


async def ended(api: Api, claim: Claim, error: ErrorInfo | None, result: str | None = None) -> None:
    now = api.stage.now()
    outcome: Any = "failed" if error else "succeeded"
    await api.stage.record(Finished(claim, outcome, us_of(now), us_of(now) + 2_000_000, result, error))


async def wrote(api: Api, claim: Claim, text: str, stream: Any = "stdout", seq: int = 0) -> None:
    token = (claim.execution_id, claim.attempt, claim.token)
    await work.append_logs(api.stage.db, [LogChunk(*token, seq, stream, api.stage.now(), text)])


async def test_an_empty_system_teaches_a_first_job_that_works(api: Api) -> None:
    empty = await page(api, "/")
    assert empty.status == 200
    command, curl = empty.blocks
    assert shlex.split(command)[-2:] == ["--url", api.address]
    words = shlex.split(curl.replace("\\\n", ""))
    assert words[:2] == ["curl", f"{api.address}/api/v1/jobs"]
    body = json.loads(words[words.index("-d") + 1])
    assert (await api.post("/jobs", body)).status == 201
    filled = await page(api, "/")
    assert "Your first job" not in filled.text
    assert "every 10 seconds" in filled.text


async def test_nobody_who_fires_or_works_is_a_warning_until_somebody_does(api: Api) -> None:
    alone = await page(api, "/")
    assert "Nobody fires" in alone.text
    assert "Nobody works" in alone.text
    await api.stage.node()
    await api.stage.worker()
    together = await page(api, "/")
    assert "Nobody" not in together.text
    assert "256/256" in together.text


async def test_the_overview_shows_figures_next_fires_and_what_ran(api: Api) -> None:
    await api.job(name="later", every=3600)
    await api.job(name="held-back", cron="* * * * *")
    ran = await api.job(name="ran-well")
    await ended(api, await claimed(api, ran), None)
    broken = await api.job(name="ran-badly", max_retries=0)
    await ended(api, await claimed(api, broken), ErrorInfo("Trouble", "no luck"))
    seen = await page(api, "/")
    for said in ("later", "in 1 h", "held-back", "ran-well", "succeeded", "ran-badly", "dead lettered"):
        assert said in seen.text, said
    assert "/executions?status=dead_lettered" in seen.links


async def test_every_page_carries_the_headers_that_keep_others_out(api: Api) -> None:
    job = await api.job(name="one")
    claim = await claimed(api, job)
    script = next(one["src"] for one in (await page(api, "/")).all("script"))
    paths = ("/", "/jobs", f"/jobs/{job['job_id']}", "/executions", f"/executions/{claim.execution_id}")
    for path in (*paths, f"/jobs/{UNKNOWN}", "/nothing", "/static/nothing"):
        seen = await page(api, path)
        policy = dict(part.split(maxsplit=1) for part in seen.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert seen.headers["x-content-type-options"] == "nosniff"
        assert seen.headers["referrer-policy"] == "no-referrer"
        assert seen.headers["content-type"] == "text/html; charset=utf-8"
        assert seen.headers["cache-control"] == "no-store"
    async with api.session.get(api.address + script) as answer:
        assert (answer.status, answer.content_type) == (200, "text/javascript")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "immutable" in answer.headers["cache-control"]


async def test_pages_need_nothing_from_elsewhere_and_nothing_inline(api: Api) -> None:
    job = await api.job(name="one", every=60, tags=["t"])
    claim = await claimed(api, job)
    for path in ("/", "/jobs", f"/jobs/{job['job_id']}", "/executions", f"/executions/{claim.execution_id}"):
        seen = await page(api, path)
        assert seen.status == 200
        resources = [
            a.get("src") or a.get("href") for t, a in seen.elements if t in ("script", "link", "img")
        ]
        assert all(one and one.startswith("/static/") for one in resources)
        assert not seen.all("style")
        assert not [a for _, a in seen.elements if "style" in a or any(n.startswith("on") for n in a)]
        for landmark in ("header", "nav", "main", "footer", "h1", "title"):
            assert seen.all(landmark), landmark
        assert all(one.get("scope") == "col" for one in seen.all("th"))
        ids = [a["id"] for _, a in seen.elements if "id" in a]
        assert len(ids) == len(set(ids))


async def test_what_others_wrote_stays_text_wherever_it_is_shown(api: Api) -> None:
    job = await api.job(
        name=HOSTILE,
        task={"kind": "shell", "command": HOSTILE, "cwd": "/x" + HOSTILE, "env": {"A": HOSTILE}},
        payload={"deep": [HOSTILE]},
        tags=["<script>alert(2)</script>"],
        idempotency_key=HOSTILE,
        max_retries=0,
        every=60,
    )
    claim = await claimed(api, job)
    await wrote(api, claim, HOSTILE)
    await wrote(api, claim, HOSTILE, "stderr", 1)
    await ended(api, claim, ErrorInfo(HOSTILE, HOSTILE, HOSTILE))
    done = await api.job(name=HOSTILE + "2")
    other = await claimed(api, done)
    await ended(api, other, None, json.dumps(HOSTILE))
    await api.stage.db.execute("update detent.executions set reason = $1", HOSTILE)
    await api.stage.db.execute("update detent.timers set parked_reason = $1", HOSTILE)
    for path in (
        "/",
        "/jobs",
        "/executions",
        f"/jobs/{job['job_id']}",
        f"/executions/{claim.execution_id}",
        f"/executions/{other.execution_id}",
    ):
        seen = await page(api, path)
        assert seen.status == 200
        assert "alert(1)" in seen.text
        assert [one.get("src", "").partition("?")[0] for one in seen.all("script")] == ["/static/refresh.js"]
        assert len(seen.all("img")) == 1
    missing = await page(api, "/static/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert missing.status == 404
    assert len(missing.all("script")) == 1


async def test_every_link_leads_somewhere(api: Api) -> None:
    job = await api.job(name="one", cron="* * * * *", timezone="Asia/Tokyo")
    await ended(api, await claimed(api, job), None)
    await claimed(api, await api.job(name="two"))
    waiting, seen = {"/"}, set[str]()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        async with api.session.get(api.address + path, headers={"accept": "text/html"}) as answer:
            assert answer.status == 200, path
            body = await answer.read()
            if answer.content_type == "text/html":
                links = Page(answer.status, {}, body.decode()).links
                waiting |= {link for link in links if not link.startswith("#")} - seen
    assert f"/jobs/{job['job_id']}" in seen
    assert sum(path.endswith("/logs") for path in seen) == 2


async def test_a_job_page_shows_the_instants_of_the_preview_on_both_clocks(api: Api) -> None:
    job = await api.job(name="zoned", cron="30 9 * * *", timezone="America/New_York", tags=["red"])
    preview = (await api.get(f"/jobs/{job['job_id']}/next?count=5")).body["fires"]
    seen = await page(api, f"/jobs/{job['job_id']}")
    shown = [one["datetime"] for one in seen.all("time") if one["datetime"] in preview]
    assert shown == [at for at in preview for _ in range(2)]
    assert "every day at 09:30 America/New_York" in seen.text
    assert "09:30:00" in seen.text
    assert "America/New_York" in {one.get("data-label") for one in seen.all("td")}


async def test_a_job_page_shows_the_ledger_in_words(api: Api) -> None:
    job_id = await api.stage.every(60, 10 * MINUTE + 30 * SECOND, name="minutely")
    assert await api.stage.fire() == 1
    seen = await page(api, f"/jobs/{job_id}")
    assert "fired late" in seen.text
    assert "skipped" in seen.text
    execution = (await api.get(f"/jobs/{job_id}/executions")).body["items"][0]["execution_id"]
    assert seen.links.count(f"/executions/{execution}") == 2  # in the ledger, and among the executions


@pytest.mark.parametrize(
    ("fields", "verb", "said"),
    [
        ({"cron": "* * * * *"}, "pause", "does not fire while it is paused"),
        ({}, None, "runs when somebody asks for it"),
        ({"every": 60}, "cancel", "It is over: cancelled"),
    ],
)
async def test_a_job_that_does_not_fire_says_why(
    api: Api, fields: dict[str, Any], verb: str | None, said: str
) -> None:
    job = await api.job(**fields)
    if verb == "pause":
        await api.post(f"/jobs/{job['job_id']}/pause", {})
    elif verb == "cancel":
        await api.delete(f"/jobs/{job['job_id']}")
    assert said in (await page(api, f"/jobs/{job['job_id']}")).text


async def test_an_overdue_job_is_called_overdue(api: Api) -> None:
    job_id = await api.stage.every(60, 3 * HOUR, name="forgotten")
    assert "overdue by 3 h" in (await page(api, "/")).text
    assert "overdue by 3 h" in (await page(api, f"/jobs/{job_id}")).text


async def test_an_execution_page_tells_the_whole_story(api: Api) -> None:
    job = await api.job(name="flaky", max_retries=1)
    first = await claimed(api, job)
    running = await page(api, f"/executions/{first.execution_id}")
    assert "data-refresh" in running.all("html")[0]
    assert "so far" in running.text
    await ended(api, first, ErrorInfo("FirstError", "not yet"))
    await api.stage.retry_now()
    second = await claimed(api, job, again=True)
    await wrote(api, second, "\x1b[32mgreen\x1b[0m\n" + "x" * 20_000 + "\nthe end\n")
    await ended(api, second, ErrorInfo("LastError", "no more", "Traceback:\n  at the end", 7))
    seen = await page(api, f"/executions/{first.execution_id}")
    assert "data-refresh" not in seen.all("html")[0]
    for said in ("FirstError: not yet", "LastError", "no more", "dead lettered", "out of attempts", "flaky"):
        assert said in seen.text, said
    assert "Traceback:\n  at the end" in seen.blocks[0]
    assert seen.blocks[-1].endswith("x\nthe end\n")
    assert f"/api/v1/executions/{first.execution_id}/logs" in seen.links
    assert len([one for one in seen.all("tr") if one.get("id", "").startswith("a-")]) == 2


async def test_a_result_and_a_terminals_colours_are_readable(api: Api) -> None:
    claim = await claimed(api, await api.job())
    await wrote(api, claim, "\x1b[31mred\x1b[0m\n")
    await ended(api, claim, None, '{"rows":[1,2]}')
    seen = await page(api, f"/executions/{claim.execution_id}")
    result, output = seen.blocks
    assert json.loads(result) == {"rows": [1, 2]}
    assert "\n  " in result
    assert output.strip() == "red"


@pytest.mark.parametrize(
    "path", [f"/jobs/{UNKNOWN}", "/jobs/x", f"/executions/{UNKNOWN}", "/nothing", "/a/b/c"]
)
async def test_what_is_not_there_is_a_page_for_people(api: Api, path: str) -> None:
    seen = await page(api, path)
    assert seen.status == 404
    assert "Nothing here" in seen.text
    assert "/" in seen.links
    assert "data-refresh" not in seen.all("html")[0]


@pytest.mark.parametrize(
    ("method", "path", "accept"),
    [("GET", "/nothing", "*/*"), ("POST", "/nothing", "text/html"), ("GET", "/api/v1/nothing", "text/html")],
)
async def test_programs_are_answered_with_a_problem(api: Api, method: str, path: str, accept: str) -> None:
    async with api.session.request(method, api.address + path, headers={"accept": accept}) as answer:
        assert (answer.status, answer.content_type) == (404, "application/problem+json")


async def test_pages_are_for_loopback_names_alone(api: Api) -> None:
    async with api.session.get(api.address + "/", headers={"host": "evil.example"}) as answer:
        assert answer.status == 403
        assert "Overview" not in (Page(403, {}, await answer.text())).all("h1")


async def test_lists_are_chosen_by_status_and_go_on(api: Api) -> None:
    for number in range(3):
        await api.job(name=f"job-{number}", every=60)
    paused = await api.job(name="resting", every=60)
    await api.post(f"/jobs/{paused['job_id']}/pause", {})
    first = await page(api, "/jobs?limit=2")
    assert "resting" in first.text
    [older] = [link for link in first.links if "cursor=" in link]
    rest = await page(api, older)
    assert "job-0" in rest.text
    assert "resting" not in rest.text
    chosen = await page(api, "/jobs?status=paused")
    assert "resting" in chosen.text
    assert "job-0" not in chosen.text
    [current] = [one for one in chosen.all("a") if one.get("aria-current") and "status=" in one["href"]]
    assert current["href"] == "/jobs?status=paused"
    assert "nothing of this kind" in (await page(api, "/executions?status=held")).text


async def test_a_wrong_choice_is_refused_in_words(api: Api) -> None:
    seen = await page(api, "/jobs?status=nonsense")
    assert seen.status == 422
    assert "must be one of scheduled" in seen.text


async def test_a_page_costs_as_many_reads_with_many_jobs_as_with_one(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 0
    real = Database.connection

    def counted(self: Database) -> Any:
        nonlocal taken
        taken += 1
        return real(self)

    async def cost(path: str) -> int:
        nonlocal taken
        taken = 0
        assert (await page(api, path)).status == 200
        return taken

    async def fill(jobs: int) -> None:
        for number in range(jobs):
            job = await api.job(name=f"job-{number}", every=60)
            await api.post(f"/jobs/{job['job_id']}/run", {})

    await fill(1)
    with monkeypatch.context() as patch:
        patch.setattr(Database, "connection", counted)
        few = [await cost(path) for path in ("/", "/executions", "/jobs")]
    await fill(9)
    with monkeypatch.context() as patch:
        patch.setattr(Database, "connection", counted)
        many = [await cost(path) for path in ("/", "/executions", "/jobs")]
    assert few == many


async def test_other_tenants_jobs_are_not_there(api: Api) -> None:
    db = api.stage.db
    await db.execute("insert into detent.tenants (tenant, name) values (77, 'other')")
    try:
        job_id = await api.stage.job(api.stage.now() + HOUR, tenant=77, name="theirs", every=60.0)
        for path in ("/", "/jobs"):
            assert "theirs" not in (await page(api, path)).text
        assert (await page(api, f"/jobs/{job_id}")).status == 404
    finally:
        await api.stage.clear()
        await db.execute("delete from detent.tenants where tenant = 77")


@asynccontextmanager
async def without_store(url: str) -> AsyncIterator[Api]:
    """A server whose connections to the store are gone."""
    database = await Database.open(url, size=2, application_name="detent test")
    async with Running(Stage(database, database, Clock())) as served:
        await database.close()
        yield served


async def test_a_store_that_is_gone_is_said_and_asked_for_again(database_url: str) -> None:
    async with without_store(database_url) as served:
        for path in ("/", "/jobs", f"/jobs/{UNKNOWN}", f"/executions/{UNKNOWN}"):
            seen = await page(served, path)
            assert seen.status == 503
            assert "connection to the database was lost" in seen.text.lower()
            assert seen.headers["retry-after"] == "1"
            assert seen.all("html")[0]["data-refresh"] == str(frame.REFRESH_SECONDS)
            assert {"http-equiv": "refresh", "content": "10"} in seen.all("meta")
        assert (await page(served, "/nothing")).status == 404


def instants(found: Page) -> Iterator[datetime]:
    for one in found.all("time"):
        yield datetime.fromisoformat(one["datetime"])


async def test_every_instant_is_marked_up_in_full(api: Api) -> None:
    job = await api.job(every=60)
    await ended(api, await claimed(api, job), None)
    found = list(instants(await page(api, f"/jobs/{UUID(job['job_id'])}")))
    assert len(found) > 5
    assert all(at.tzinfo is not None for at in found)
