"""The pages as people see them: in a real browser, on every width, with and without scripts."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from systems import Up, until

from detent.api.pages import frame

HOSTILE = "<script>document.title='broken in'</script><img src=x onerror=\"document.title='broken in'\">"
WIDTHS = (1440, 1024, 390)
REFRESHED = 1000 * frame.REFRESH_SECONDS + 100

# Text whose contrast with what lies behind it is below 4.5 (3 for large letters).
FAINT = """() => {
  const numbers = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length > 3 ? m : [...m, 1]; };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c[3] === 1) return c;
    }
    return [255, 255, 255, 1];
  };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.nodeValue.trim());
    if (!own || !e.checkVisibility() || e.closest(".unseen, .skip")) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(numbers(style.color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) found.push([ratio, e.outerHTML.slice(0, 120)]);
  }
  return found;
}"""


def ask(up: Up, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{up.url}/api/v1{path}", data, {"content-type": "application/json"})
    request.method = method
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def shell(command: str) -> dict[str, str]:
    return {"kind": "shell", "command": command}


@pytest.fixture(scope="module")
def jobs(system: Up) -> dict[str, str]:
    """Jobs of all kinds, by what they are; those that run have run."""
    given: dict[str, dict[str, Any]] = {
        "hostile": {
            "name": HOSTILE,
            "task": shell(f"echo '{HOSTILE}'; exit 3"),
            "delay": 0,
            "max_retries": 0,
            "payload": {"x": HOSTILE},
            "tags": [HOSTILE[:40]],
        },
        "zoned": {"task": shell("echo"), "cron": "30 9 * * MON-FRI", "timezone": "Asia/Kolkata"},
        "long": {
            "name": "long-" * 40,
            "task": shell("echo " + "word" * 200),
            "every": 3600,
            "tags": ["t" * 60],
        },
        "paused": {"task": shell("echo"), "cron": "* * * * *"},
        "well": {"task": shell("seq 500"), "delay": 0},
        "running": {"task": shell("echo begun; exec sleep 600"), "delay": 0},
    }
    made = {
        kind: ask(system, "POST", "/jobs", {"name": kind, **body})["job_id"] for kind, body in given.items()
    }
    ask(system, "POST", f"/jobs/{made['paused']}/pause", {})
    for kind, status in (("hostile", "dead_lettered"), ("well", "succeeded"), ("running", "running")):
        until(
            lambda kind=kind, status=status: status_of(system, made[kind]) == status, 30, f"{kind} {status}"
        )
    return made


def status_of(up: Up, job_id: str) -> str | None:
    items = ask(up, "GET", f"/jobs/{job_id}/executions")["items"]
    return items[0]["status"] if items else None


def execution_of(up: Up, job_id: str) -> str:
    return str(ask(up, "GET", f"/jobs/{job_id}/executions")["items"][0]["execution_id"])


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """What the browser says about a page: errors, and whatever the policy refused. There must be none."""
    heard: list[str] = []
    yield heard
    assert heard == []


def look(context: BrowserContext, complaints: list[str]) -> Page:
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(request.url))
    page.clock.install()
    return page


def refresh(page: Page) -> None:
    """Let the time pass after which a page asks for itself again."""
    page.clock.run_for(REFRESHED)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_every_width_and_can_be_read(
    system: Up, jobs: dict[str, str], browser: Browser, complaints: list[str], scheme: Any
) -> None:
    failed, ran = execution_of(system, jobs["hostile"]), execution_of(system, jobs["well"])
    paths = ["/", "/jobs", "/executions", *(f"/jobs/{job}" for job in jobs.values())]
    paths += [f"/executions/{failed}", f"/executions/{ran}"]
    for width in WIDTHS:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = look(context, complaints)
        for path in paths:
            page.goto(system.url + path)
            over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert over <= 0, f"{path} is {over} px too wide at {width}"
            assert page.evaluate(FAINT) == [], f"{path} in {scheme}"
            assert page.title() != "broken in"
            expect(page.locator("h1")).to_have_count(1)
        context.close()


def test_a_page_refreshes_itself_and_keeps_the_readers_place(
    system: Up, jobs: dict[str, str], browser: Browser, complaints: list[str]
) -> None:
    page = look(browser.new_context(viewport={"width": 1000, "height": 500}), complaints)
    page.goto(system.url)
    link = page.locator(f"#j-{jobs['zoned']} a").first
    link.focus()
    page.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
    before = link.bounding_box()
    late = ask(system, "POST", "/jobs", {"name": "late-comer", "task": shell("echo")})["job_id"]
    row = page.locator(f"#j-{late}")
    refresh(page)
    expect(row).to_contain_text("late-comer")
    expect(link).to_be_focused()
    after = link.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(after["y"] - before["y"]) < 120  # a row was added above it; the page did not jump to its top
    assert page.evaluate("scrollY") > 0
    ask(system, "DELETE", f"/jobs/{late}")
    refresh(page)
    expect(row).to_contain_text("cancelled")


def test_an_execution_is_followed_to_its_end(
    system: Up, jobs: dict[str, str], browser: Browser, complaints: list[str]
) -> None:
    page = look(browser.new_context(), complaints)
    ran = execution_of(system, jobs["running"])
    page.goto(f"{system.url}/executions/{ran}")
    expect(page.locator("h1")).to_contain_text("running")
    ask(system, "POST", f"/executions/{ran}/cancel", {})
    until(lambda: status_of(system, jobs["running"]) == "cancelled", 30, "its end")
    refresh(page)
    expect(page.locator("h1")).to_contain_text("cancelled")


def test_a_lost_server_is_said_and_found_again(system: Up, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.clock.install()
    page.goto(system.url)
    context.set_offline(True)
    refresh(page)
    told = page.get_by_role("status")
    expect(told).to_contain_text("No answer from the server")
    expect(page.locator("h1")).to_have_text("Overview")
    context.set_offline(False)
    refresh(page)
    expect(told).to_have_text("")


def test_pages_work_without_scripts(system: Up, jobs: dict[str, str], browser: Browser) -> None:
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(system.url)
    page.get_by_role("link", name="zoned").first.click()
    expect(page.locator("h1")).to_contain_text("zoned")
    expect(page.get_by_role("columnheader", name="Asia/Kolkata")).to_be_visible()


def test_rows_stay_a_table_for_readers_on_a_phone(system: Up, jobs: dict[str, str], browser: Browser) -> None:
    page = browser.new_context(viewport={"width": 390, "height": 800}).new_page()
    page.goto(f"{system.url}/jobs")
    row = page.get_by_role("table").get_by_role("row").filter(has_text="zoned")
    expect(row.get_by_role("cell")).to_have_count(6)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
