"""The OpenAPI document against the application: neither says more than the other, and neither lies.

Every operation is tried with generated requests, right ones and wrong ones, on jobs and executions in every
state. No answer may be a fault of the server, have a status, a type or a shape that is not documented, or
take what the document forbids.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import hypothesis
import jsonschema_rs
import pytest
import schemathesis
from api_client import Api
from hypothesis import strategies as st
from litestar import Litestar
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

from detent.api.app import API_HANDLERS, create_app
from detent.api.openapi import document
from detent.api.pages.routes import HANDLERS as PAGES

CHECKS: list[Callable[..., Any]] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
OPERATIONS = [(method, path) for path, operations in document()["paths"].items() for method in operations]
UNKNOWN = "01890000-0000-7000-8000-000000000000"
FEW, MANY = 15, 300


def routes(app: Litestar) -> set[tuple[str, str]]:
    pages = {getattr(handler, "fn", handler) for handler in PAGES}
    found = set()
    for route in app.routes:
        for handler in getattr(route, "route_handlers", []):
            if handler.fn in pages or handler.fn.__module__.startswith("detent.api.pages"):
                continue
            path = "/".join(
                f"{{{part.split(':')[0].strip('{')}}}" if part.startswith("{") else part
                for part in route.path_format.split("/")
            )
            path = path.replace("{{", "{").replace("}}", "}")
            found |= {(method.lower(), path) for method in handler.http_methods if method != "OPTIONS"}
    return found


def test_the_document_has_every_route_and_no_other() -> None:
    app = create_app(None)  # type: ignore[arg-type]
    assert routes(app) == set(OPERATIONS)
    assert len(OPERATIONS) == len(API_HANDLERS) + 3, "besides: the document itself, health and readiness"


async def test_the_document_is_served_and_is_valid_openapi(door: Api) -> None:
    served = await door.get("/openapi.json")
    assert served.body == json.loads(json.dumps(document()))
    assert served.body["openapi"] == "3.1.0"
    jsonschema_rs.Draft202012Validator(OPENAPI).validate(served.body)
    for name, schema in served.body["components"]["schemas"].items():
        jsonschema_rs.meta.validate({**schema, "$schema": DIALECT})
        assert name[0].isupper()


def test_every_reference_leads_somewhere_and_every_schema_is_used() -> None:
    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*map(references, value.values()))
        return set().union(*map(references, value)) if isinstance(value, list) else set()

    named = {f"#/components/schemas/{name}" for name in document()["components"]["schemas"]}
    assert references(json.loads(json.dumps(document()))) == named


def test_operation_names_are_unique() -> None:
    names = [operation["operationId"] for path in document()["paths"].values() for operation in path.values()]
    assert len(set(names)) == len(names)


async def specimens(api: Api) -> dict[str, list[str]]:
    """Jobs and executions in every state that a request could meet."""
    jobs = {
        "recurring": await api.job(cron="0 0 * * *", tags=["a"]),
        "paused": await api.job(every=60),
        "manual": await api.job(payload={"a": 1}),
        "cancelled": await api.job(every=60),
        "completed": await api.job(delay=0),
    }
    await api.stage.fire()
    claims = await api.stage.claim(await api.stage.worker())
    await api.stage.record(*(api.stage.ended(claim, "succeeded") for claim in claims))
    await api.post(f"/jobs/{jobs['paused']['job_id']}/pause")
    await api.delete(f"/jobs/{jobs['cancelled']['job_id']}")
    queued = await api.post(f"/jobs/{jobs['manual']['job_id']}/run")
    return {
        "job_id": [job["job_id"] for job in jobs.values()],
        "closed": [str(claim.execution_id) for claim in claims],
        "open": [queued.body["execution_id"]],
    }


def cases(
    operation: Any, mode: GenerationMode, fixed: list[dict[str, str]]
) -> st.SearchStrategy[schemathesis.Case]:
    """Requests of one operation; its ids are real ones, an unknown one, or nonsense."""
    if not fixed:
        found: st.SearchStrategy[schemathesis.Case] = operation.as_strategy(generation_mode=mode)
        return found
    return st.one_of(
        operation.as_strategy(generation_mode=mode),
        *(operation.as_strategy(generation_mode=mode, path_parameters=ids) for ids in fixed),
    )


def explore(api: Api, method: str, path: str, known: dict[str, list[str]], examples: int) -> None:
    operation = schemathesis.openapi.from_dict(json.loads(json.dumps(document())))[path][method.upper()]
    fixed: list[dict[str, str]] = []
    if "{job_id}" in path:
        fixed = [{"job_id": job_id} for job_id in (*known["job_id"], UNKNOWN)]
    if "{execution_id}" in path:
        # Following what is open would go on for as long as it is.
        ids = known["closed"] if path.endswith("/logs") else [*known["closed"], *known["open"]]
        fixed = [{"execution_id": execution_id} for execution_id in (*ids, UNKNOWN)]
    attempt(api.address, cases(operation, GenerationMode.POSITIVE, fixed), CHECKS, examples)
    if operation.body or operation.query or operation.headers:
        wrong = cases(operation, GenerationMode.NEGATIVE, fixed)
        attempt(api.address, wrong, [*CHECKS, negative_data_rejection], examples)


def attempt(
    address: str,
    strategy: st.SearchStrategy[schemathesis.Case],
    checks: list[Callable[..., Any]],
    examples: int,
) -> None:
    @hypothesis.settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=strategy)
    def tried(case: schemathesis.Case) -> None:
        empty = any(value in ("", None, [], {}) for value in (case.query or {}).values())
        # A parameter that is sent empty was not filled in, which is not wrong.
        kept = [check for check in checks if not (empty and check is negative_data_rejection)]
        case.call_and_validate(base_url=address, checks=kept, timeout=30)

    tried()


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda part: part)
async def test_generated_requests_meet_only_documented_answers(api: Api, method: str, path: str) -> None:
    await asyncio.to_thread(explore, api, method, path, await specimens(api), FEW)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda part: part)
async def test_many_generated_requests_meet_only_documented_answers(api: Api, method: str, path: str) -> None:
    await asyncio.to_thread(explore, api, method, path, await specimens(api), MANY)


DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT = {"type": "string"}
# What OpenAPI 3.1 asks of a document, for the parts that ours has. Nothing else may be in it.
OPENAPI: dict[str, Any] = {
    "$schema": DIALECT,
    "type": "object",
    "required": ["openapi", "info", "paths"],
    "additionalProperties": False,
    "properties": {
        "openapi": {"pattern": r"^3\.1\.\d+$"},
        "info": {
            "type": "object",
            "required": ["title", "version"],
            "additionalProperties": False,
            "properties": {
                "title": TEXT,
                "version": TEXT,
                "description": TEXT,
                "license": {
                    "type": "object",
                    "required": ["name"],
                    "additionalProperties": False,
                    "properties": {"name": TEXT, "identifier": TEXT},
                },
            },
        },
        "servers": {
            "type": "array",
            "items": {"type": "object", "required": ["url"], "properties": {"url": TEXT}},
        },
        "components": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "schemas": {
                    "type": "object",
                    "propertyNames": {"pattern": "^[a-zA-Z0-9._-]+$"},
                    "additionalProperties": {"$ref": "#/$defs/schema"},
                }
            },
        },
        "paths": {
            "type": "object",
            "propertyNames": {"pattern": "^/"},
            "additionalProperties": {
                "type": "object",
                "propertyNames": {"enum": ["get", "put", "post", "delete", "patch"]},
                "additionalProperties": {"$ref": "#/$defs/operation"},
            },
        },
    },
    "$defs": {
        "schema": {"$ref": DIALECT},
        "content": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": "^[a-z]+/[a-z+.-]+$"},
            "additionalProperties": {
                "type": "object",
                "required": ["schema"],
                "additionalProperties": False,
                "properties": {"schema": {"$ref": "#/$defs/schema"}},
            },
        },
        "operation": {
            "type": "object",
            "required": ["operationId", "summary", "responses"],
            "additionalProperties": False,
            "properties": {
                "operationId": TEXT,
                "summary": TEXT,
                "parameters": {"type": "array", "items": {"$ref": "#/$defs/parameter"}},
                "requestBody": {
                    "type": "object",
                    "required": ["content"],
                    "additionalProperties": False,
                    "properties": {"required": {"type": "boolean"}, "content": {"$ref": "#/$defs/content"}},
                },
                "responses": {
                    "type": "object",
                    "minProperties": 1,
                    "propertyNames": {"pattern": "^[1-5][0-9][0-9]$"},
                    "additionalProperties": {
                        "type": "object",
                        "required": ["description"],
                        "additionalProperties": False,
                        "properties": {"description": TEXT, "content": {"$ref": "#/$defs/content"}},
                    },
                },
            },
        },
        "parameter": {
            "type": "object",
            "required": ["name", "in", "schema"],
            "additionalProperties": False,
            "properties": {
                "name": TEXT,
                "in": {"enum": ["query", "header", "path"]},
                "required": {"type": "boolean"},
                "allowEmptyValue": {"type": "boolean"},
                "description": TEXT,
                "schema": {"$ref": "#/$defs/schema"},
            },
            "if": {"properties": {"in": {"const": "path"}}},
            "then": {"required": ["required"], "properties": {"required": {"const": True}}},
        },
    },
}
