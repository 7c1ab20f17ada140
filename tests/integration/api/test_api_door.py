"""Who may knock, and how large a thing may be brought along."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from api_client import Api
from yarl import URL

MIB = 1024 * 1024
UNKNOWN = "01890000-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"", "empty"),
        (b"   ", "empty"),
        (b'{"name": "n",}', "line 1, column 14"),
        (b'{\n  "name": "n"\n  "cron": "* * * * *"\n}', "line 3, column 3"),
        (b'{"name": "n"', "line 1, column 13"),
        (b"{'name': 'n'}", "line 1, column 2"),
        (b'{"name": "n"} x', "line 1, column 15"),
        (b'{"name": nope}', "line 1, column 1"),
        (b'{"name": "\xff\xfe"}', "UTF-8"),
        (b"\xef\xbb\xbf{}", "line 1, column 1"),
        (b'{"name": "\\ud800"}', "surrogate"),
        (b'{"name": "\\udc00x"}', "surrogate"),
        (b'{"name": "n", "payload": {"deep": ["\\ud800\\u0041"]}}', "surrogate"),
        (b'{"\\udfff": 1}', "surrogate"),
        (b'{"name": "n", "payload": ' + b"[" * 5000 + b"]" * 5000 + b"}", "nested"),
    ],
)
async def test_broken_json_is_answered_with_the_place(api: Api, body: bytes, place: str) -> None:
    for method, path in (("POST", "/jobs"), ("PUT", "/jobs/by-name/n"), ("POST", "/schedules/preview")):
        answer = await api.ask(method, path, raw=body, headers={"content-type": "application/json"})
        assert (answer.status, answer.code) == (400, "malformed_json"), answer.text
        assert place in answer.body["detail"], answer.text
    assert await api.jobs_stored() == 0


@pytest.mark.parametrize("body", [[], 5, "text", None, True])
async def test_a_body_that_is_no_object_is_refused(api: Api, body: Any) -> None:
    for path in ("/jobs", "/jobs/batch", "/schedules/preview"):
        (await api.post(path, body)).refuses("body", "wrong_type", "object")


async def test_nul_and_emoji_travel_in_a_payload(api: Api) -> None:
    payload = {"nul": "a\0b", "emoji": "🗓", "\0": [1], "pair": "\U0001f4a9"}
    made = await api.job(payload=payload)
    assert made["payload"] == (await api.read(made))["payload"] == payload


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", ""],
)
async def test_only_json_is_taken(api: Api, kind: str) -> None:
    job = await api.job()
    for method, path in (
        ("POST", "/jobs"),
        ("POST", "/jobs/batch"),
        ("PUT", "/jobs/by-name/n"),
        ("PATCH", f"/jobs/{job['job_id']}"),
        ("POST", f"/jobs/{job['job_id']}/run"),
    ):
        answer = await api.ask(method, path, raw=b'{"name": "n"}', headers={"content-type": kind})
        assert (answer.status, answer.code) == (415, "unsupported_media_type")
        assert "application/json" in answer.body["detail"]
    assert await api.jobs_stored() == 1


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON", "application/json; charset=utf-8"])
async def test_json_may_be_written_in_several_ways(api: Api, kind: str) -> None:
    assert (await api.post("/jobs", raw=b'{"name": "n"}', headers={"content-type": kind})).status == 201


async def test_an_action_needs_no_body(api: Api) -> None:
    job = await api.job()
    assert (await api.post(f"/jobs/{job['job_id']}/pause")).status == 200
    assert (await api.post(f"/jobs/{job['job_id']}/resume", {})).status == 200
    (await api.post(f"/jobs/{job['job_id']}/run", {"payload": 1})).refuses("payload", "unknown_field")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "0.0.0.0", "localhost.", "[::2]", ""]
)
async def test_a_host_that_is_not_loopback_is_forbidden(api: Api, host: str) -> None:
    for method, path in (("GET", "/jobs"), ("POST", "/jobs"), ("GET", "/healthz"), ("GET", "/openapi.json")):
        answer = await api.ask(method, path, headers={"host": host})
        assert (answer.status, answer.code) == (403, "forbidden_host"), answer.text
        assert "127.0.0.1" in answer.body["detail"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8642", "127.0.0.1:1", "[::1]", "[::1]:8642"])
async def test_every_loopback_name_is_let_in(api: Api, host: str) -> None:
    assert (await api.get("/jobs", headers={"host": host})).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost.evil.example"},
        {"origin": "file://"},
        {"origin": "http://[::"},
        {"sec-fetch-site": "cross-site"},
    ],
)
async def test_a_change_from_a_page_of_another_site_is_forbidden(api: Api, headers: dict[str, str]) -> None:
    job = await api.job()
    for method, path in (
        ("POST", "/jobs"),
        ("DELETE", f"/jobs/{job['job_id']}"),
        ("POST", f"/jobs/{job['job_id']}/run"),
        ("PATCH", f"/jobs/{job['job_id']}"),
        ("PUT", "/jobs/by-name/n"),
    ):
        answer = await api.ask(method, path, headers=headers)
        assert (answer.status, answer.code) == (403, "forbidden_origin"), answer.text
    assert await api.read(job) == job
    assert await api.jobs_stored() == 1


async def test_a_page_of_this_server_may_change_things(api: Api) -> None:
    headers = {"origin": api.address, "sec-fetch-site": "same-origin"}
    assert (await api.post("/jobs", {"name": "n"}, headers=headers)).status == 201


async def test_a_body_of_more_than_one_mebibyte_is_too_large(api: Api) -> None:
    spaces = b" " * (MIB - len(b'{"name": "n"}'))
    assert (await api.post("/jobs", raw=b'{"name": "n"}' + spaces)).status == 201
    answer = await api.post("/jobs", raw=b'{"name": "n"}' + spaces + b" ")
    assert (answer.status, answer.code) == (413, "body_too_large")
    assert "1 MiB" in answer.body["detail"]
    assert await api.jobs_stored() == 1


async def test_a_batch_may_have_thirty_two_mebibytes(api: Api) -> None:
    jobs = [{"name": "n", "payload": "x" * 200_000}] * 20
    body = json.dumps({"jobs": jobs}).encode()
    assert len(body) > 3 * MIB
    assert (await api.post("/jobs/batch", raw=body)).status == 201
    answer = await api.post("/jobs/batch", raw=body + b" " * (32 * MIB - len(body) + 1))
    assert (answer.status, answer.code) == (413, "body_too_large")
    assert "32 MiB" in answer.body["detail"]
    assert await api.jobs_stored() == 20


async def test_a_body_without_an_announced_length_is_measured_as_it_comes(api: Api) -> None:
    reader, writer = await asyncio.open_connection(*api.address.removeprefix("http://").split(":"))
    writer.write(
        b"POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"transfer-encoding: chunked\r\n\r\n"
    )
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    try:
        for _ in range(40):
            writer.write(chunk)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
    except ConnectionError:
        pass  # it need not listen to the end
    async with asyncio.timeout(10):
        assert b" 413 " in await reader.readline()
    writer.close()


async def test_a_payload_of_more_than_256_kibibytes_is_refused_by_its_name(api: Api) -> None:
    most = 256 * 1024
    assert (await api.job(payload="x" * (most - 2)))["payload"] == "x" * (most - 2)
    for name in ("payload", "config"):
        answer = await api.post("/jobs", {"name": "n", name: "x" * (most - 1)})
        answer.refuses(name, "too_large", "262,144")
    assert await api.jobs_stored() == 1


async def test_blanks_in_a_payload_do_not_count(api: Api) -> None:
    answer = await api.post("/jobs", raw=b'{"name": "n", "payload": [' + b" " * 300_000 + b"1 , 2]}")
    assert (answer.status, answer.body["payload"]) == (201, [1, 2])


@pytest.mark.parametrize(
    "path",
    [
        f"/jobs/{UNKNOWN}",
        "/jobs/nonsense",
        "/jobs/%00",
        "/jobs/%ff",
        f"/jobs/{UNKNOWN.replace('-', '')}",
        f"/jobs/%7B{UNKNOWN}%7D",
        f"/jobs/{UNKNOWN}/executions",
        f"/jobs/{UNKNOWN}/fires",
        f"/jobs/{UNKNOWN}/next",
        "/jobs/1/next",
        f"/executions/{UNKNOWN}",
        "/executions/1",
        f"/executions/{UNKNOWN}/logs",
        "/executions/x/logs?follow=true",
        "/nothing",
        "/",
    ],
)
async def test_what_is_not_there_is_not_found(api: Api, path: str) -> None:
    answer = await api.get("/api/v1/" if path == "/" else path)
    assert (answer.status, answer.code) == (404, "not_found"), answer.text


async def test_changes_of_what_is_not_there_are_not_found(api: Api) -> None:
    for job_id in (UNKNOWN, "nonsense", "%F0%9F"):
        assert (await api.patch(f"/jobs/{job_id}", {})).status == 404
        assert (await api.delete(f"/jobs/{job_id}")).status == 404
        for verb in ("pause", "resume", "run"):
            assert (await api.post(f"/jobs/{job_id}/{verb}")).status == 404
        assert (await api.post(f"/executions/{job_id}/cancel")).status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/jobs"),
        ("DELETE", "/jobs"),
        ("POST", f"/jobs/{UNKNOWN}"),
        ("GET", "/schedules/preview"),
        ("GET", f"/jobs/{UNKNOWN}/run"),
        ("POST", "/stats/overview"),
        ("DELETE", "/healthz"),
        ("PATCH", "/jobs/batch/x/y"),
    ],
)
async def test_a_method_that_is_not_possible_says_so(api: Api, method: str, path: str) -> None:
    answer = await api.ask(method, path)
    assert answer.status in (404, 405), answer.text
    if path != "/jobs/batch/x/y":
        assert (answer.status, answer.code) == (405, "method_not_allowed")
        assert answer.headers["allow"]


async def test_a_query_parameter_that_is_not_known_or_given_twice_is_refused(api: Api) -> None:
    (await api.get("/jobs?tgs=a")).refuses("tgs", "unknown_field", "'tag'")
    (await api.get("/jobs?tag=a&tag=b")).refuses("tag", "conflicting_fields")
    (await api.get("/jobs?name=%00")).refuses("name", "invalid", "NUL")
    (await api.get("/jobs?name=%ff")).refuses("name", "invalid", "UTF-8")
    (await api.get("/stats/overview?a=1")).refuses("a", "unknown_field")


@pytest.mark.parametrize("hosts", [("evil.example", "127.0.0.1"), ("127.0.0.1", "evil.example")])
async def test_two_hosts_are_refused(api: Api, hosts: tuple[str, str]) -> None:
    port = URL(api.address).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    named = "".join(f"Host: {host}\r\n" for host in hosts)
    writer.write(f"GET /api/v1/jobs HTTP/1.1\r\n{named}Connection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    assert answer.startswith("HTTP/1.1 403")
    assert '"forbidden_host"' in answer
