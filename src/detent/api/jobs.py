"""/jobs: creating, reading, listing, editing and cancelling them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from litestar import delete, get, patch, post, put

from detent.api import decide, render
from detent.api.answer import Answer
from detent.api.body import AnyRequest, Fields, Query, header_key, headers_of, path_id, read_object, value_of
from detent.api.job_fields import Definition, read_definition
from detent.api.keys import body_hash, definition_hash, one_key, request_key
from detent.api.paging import PARAMETERS, cursor_of, place_of
from detent.api.refusals import MOST, Refusals
from detent.api.state import ApiState, state_of
from detent.api.values import text
from detent.api.vocabulary import refuse_unknown
from detent.model.errors import FieldError, InvalidInput, NotFound
from detent.model.ids import new_job_id
from detent.store.jobs import (
    Change,
    Draft,
    JobFilter,
    KeyReused,
    Made,
    RequestKey,
    Standing,
    cancel_job,
    change_job,
    create_jobs,
    list_jobs,
    put_by_name,
)

MOST_JOBS = 10_000
BREATHE_EVERY = 200  # jobs of a batch between two looks at other requests
BATCH_LIMIT = 32 * 1024 * 1024
STATUSES = ("scheduled", "paused", "running", "completed", "failed", "cancelled")
SETTABLE = ("paused", "scheduled")
NULL = b"null"
BY_NAME = b"/jobs/by-name/"

_raw_list = msgspec.json.Decoder(list[msgspec.Raw])
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


@post("/jobs")
async def create(request: AnyRequest) -> Answer:
    state = state_of(request)
    header = header_key(headers_of(request))
    fields = await read_object(request)
    refusals = Refusals()
    definition = read_definition(fields, refusals)
    key = one_key(definition.idempotency_key if definition else None, header, refusals)
    refusals.raise_any()
    assert definition is not None
    now = decide.armed(state.clock.now())
    draft = _draft(definition, now, key)
    made = await state.create_job(draft)
    if made.new and made.job.next_run_at is not None:
        state.notifier.timers([made.job.job_id])
    return render.json_answer(render.job(made.job), 201 if made.new else 200, _location(made))


@post("/jobs/batch", request_max_body_size=BATCH_LIMIT)
async def create_batch(request: AnyRequest) -> Answer:
    """All of them or none."""
    state = state_of(request)
    header = header_key(headers_of(request))
    fields = await read_object(request)
    given = _jobs_of(fields)
    now = decide.armed(state.clock.now())
    drafts, errors = await _drafts(given, now)
    errors = errors or _repeated_keys(drafts)
    if errors:
        raise InvalidInput(*errors[:MOST])
    if header is not None:
        # The whole batch is what was asked under the header's key: each job is noted under its position.
        whole = body_hash([definition_hash(Definition(d.spec, d.payload)) for d in drafts])
        drafts = [
            draft if draft.request_key else _keyed(draft, RequestKey("batch", f"{header}:{i}", whole))
            for i, draft in enumerate(drafts)
        ]
    try:
        made = await _create(state, drafts, now)
    except KeyReused as reused:
        raise _reused_in_batch(reused, drafts) from None
    status = 201 if any(one.new for one in made) else 200
    return render.json_answer({"items": [render.job(one.job) for one in made]}, status)


@put("/jobs/by-name/{name:path}")
async def replace_by_name(request: AnyRequest) -> Answer:
    state = state_of(request)
    header = header_key(headers_of(request))
    name = text("name", _name_in_path(request))
    fields = await read_object(request)
    refusals = Refusals()
    if bytes(fields.get("name", NULL)) == NULL:
        fields["name"] = msgspec.Raw(msgspec.json.encode(name))
    definition = read_definition(fields, refusals)
    if definition is not None and definition.spec.name != name:
        refusals.add("name", f"differs from the name in the path, {name!r}", "mismatch")
    key = one_key(definition.idempotency_key if definition else None, header, refusals)
    refusals.raise_any()
    assert definition is not None
    now = state.clock.now()
    armed_at = decide.armed(now)
    draft = _draft(definition, armed_at, None)
    changed = await put_by_name(
        state.database,
        state.tenant,
        draft,
        lambda standing: decide.edit(standing, definition, now),
        armed_at,
        request_key(f"by-name/{name}", key, definition_hash(definition)),
    )
    if changed.changed:
        state.notifier.timers([changed.job.job_id])
    return render.json_answer(render.job(changed.job), 201 if changed.created else 200)


@get("/jobs")
async def list_all(request: AnyRequest) -> Answer:
    state = state_of(request)
    query = Query(request, "tag", "status", "name", "pool", *PARAMETERS)
    wanted = JobFilter(
        name=query.text("name"),
        tag=query.text("tag"),
        status=query.choice("status", STATUSES),
        pool=query.text("pool"),
    )
    place = place_of(query)
    query.done()
    found = await list_jobs(
        state.database, state.tenant, wanted, before=place.before, limit=place.limit, skip=place.skip
    )
    return render.json_answer(render.page(map(render.job, found.items), cursor_of(found.next_before)))


@get("/jobs/{job_id:str}")
async def read(request: AnyRequest) -> Answer:
    standing = await find(state_of(request), request.path_params["job_id"])
    return render.json_answer(render.job(standing.job))


@patch("/jobs/{job_id:str}")
async def edit(request: AnyRequest) -> Answer:
    state = state_of(request)
    header = header_key(headers_of(request))
    target = path_id(request.path_params["job_id"], "job")
    fields = await read_object(request)
    asked = _meaning(fields)
    status = _status(fields)
    now = state.clock.now()

    def change(standing: Standing) -> Change | None:
        refusals = Refusals()
        current = Definition(standing.job.spec, standing.job.payload)
        wanted = read_definition(fields, refusals, current=current)
        refusals.raise_any()
        assert wanted is not None
        return decide.edit(standing, wanted, now, status)

    key = request_key(f"edit/{target}", header, asked)
    changed = await change_job(state.database, state.tenant, target, change, now, key)
    if changed.changed:
        state.notifier.timers([target])
    return render.json_answer(render.job(changed.job))


@delete("/jobs/{job_id:str}", status_code=200)
async def cancel(request: AnyRequest) -> Answer:
    state = state_of(request)
    target = path_id(request.path_params["job_id"], "job")
    key = request_key(f"cancel/{target}", header_key(headers_of(request)), b"")
    cancelled = await cancel_job(state.database, state.tenant, target, state.clock.now(), key)
    if cancelled.changed:
        state.notifier.timers([target])
        state.notifier.orders(cancelled.workers)
    return render.json_answer(render.job(cancelled.job))


async def find(state: ApiState, job_id: str) -> Standing:
    standing = await state.read_job(path_id(job_id, "job"))
    if standing is None:
        raise NotFound("no such job")
    return standing


def _draft(definition: Definition, now: datetime, key: str | None) -> Draft:
    job_id = new_job_id(now)
    return Draft(
        job_id=job_id,
        spec=definition.spec,
        payload=definition.payload,
        due_at=decide.first_due(definition.spec, now, now, job_id.int),
        idempotency_key=key,
        request_key=request_key("jobs", key, definition_hash(definition) if key is not None else b""),
        armed_at=now,
    )


def _keyed(draft: Draft, key: RequestKey) -> Draft:
    return replace(draft, request_key=key)


async def _create(state: ApiState, drafts: Sequence[Draft], now: datetime) -> list[Made]:
    made = await create_jobs(state.database, state.tenant, drafts, now)
    state.notifier.timers([one.job.job_id for one in made if one.new and one.job.next_run_at is not None])
    return made


def _location(made: Made) -> dict[str, str]:
    return {"location": f"/api/v1/jobs/{made.job.job_id}"}


def _jobs_of(fields: Fields) -> list[msgspec.Raw]:
    refusals = Refusals()
    refuse_unknown((name for name in fields if name != "jobs"), ("jobs",), refusals)
    refusals.raise_any()
    if "jobs" not in fields:
        raise InvalidInput.of("jobs", "is needed: a list of jobs", "required")
    try:
        given = _raw_list.decode(fields["jobs"])
    except msgspec.ValidationError:
        raise InvalidInput.of("jobs", "must be a list of jobs", "wrong_type") from None
    if len(given) > MOST_JOBS:
        message = f"has {len(given):,} jobs, at most {MOST_JOBS:,} are allowed"
        raise InvalidInput.of("jobs", message, "too_many")
    return given


async def _drafts(given: Sequence[msgspec.Raw], now: datetime) -> tuple[list[Draft], list[FieldError]]:
    drafts: list[Draft] = []
    errors: list[FieldError] = []
    for position, raw in enumerate(given):
        if position % BREATHE_EVERY == BREATHE_EVERY - 1:
            await asyncio.sleep(0)
        refusals = Refusals(f"jobs[{position}]")
        try:
            definition = read_definition(_raw_object.decode(raw), refusals)
            if definition is not None:
                drafts.append(_draft(definition, now, definition.idempotency_key))
        except msgspec.ValidationError:
            refusals.add("", "must be a JSON object", "wrong_type")
        except InvalidInput as refusal:
            refusals.take(refusal)
        errors.extend(refusals.errors)
        if len(errors) >= MOST:
            break
    return drafts, errors


def _repeated_keys(drafts: Sequence[Draft]) -> list[FieldError]:
    first: dict[str, int] = {}
    errors = []
    for position, draft in enumerate(drafts):
        key = draft.idempotency_key
        if key is not None and first.setdefault(key, position) != position:
            field = f"jobs[{position}].idempotency_key"
            errors.append(FieldError(field, "conflicting_fields", f"is also that of jobs[{first[key]}]"))
    return errors


def _reused_in_batch(reused: KeyReused, drafts: Sequence[Draft]) -> KeyReused:
    message = "was used before with another body"
    own = [drafts[i].idempotency_key is not None for i in reused.positions]
    fields = [f"jobs[{i}].idempotency_key" for i, is_own in zip(reused.positions, own, strict=True) if is_own]
    if not all(own):
        fields.insert(0, "Idempotency-Key")
    reused.errors = tuple(FieldError(field, reused.code, message) for field in fields[:MOST])
    return reused


def _meaning(fields: Fields) -> bytes:
    """The same for two edits that say the same, whatever their blanks and the order of their fields."""
    refusals = Refusals()
    said = {name: value_of(raw, name, refusals) for name, raw in fields.items()}
    refusals.raise_any()
    return body_hash(said)


def _status(fields: dict[str, Any]) -> str | None:
    """What the edit says about pausing; taken out of the fields."""
    value = msgspec.json.decode(fields.pop("status", NULL))
    if value is None:
        return None
    if value not in SETTABLE:
        message = f"must be one of {', '.join(SETTABLE)}; DELETE the job to cancel it"
        raise InvalidInput.of("status", message)
    return str(value)


def _name_in_path(request: AnyRequest) -> str:
    """The name as it was written: the framework would fold its slashes."""
    scope: Mapping[str, Any] = request.scope
    raw: bytes = scope.get("raw_path") or request.url.path.encode()
    try:
        return unquote_to_bytes(raw.partition(BY_NAME)[2]).decode()
    except UnicodeDecodeError:
        raise InvalidInput.of("name", "must be UTF-8 text") from None
