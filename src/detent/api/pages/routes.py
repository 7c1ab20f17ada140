"""The addresses of the pages."""

from __future__ import annotations

from litestar import HttpMethod, Response, get, route
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.types import ExceptionHandlersMap

from detent.api import executions, jobs
from detent.api.body import AnyRequest, Query, path_id
from detent.api.pages import execution, frame, job, lists, overview, tables
from detent.api.paging import NEWEST, cursor_of, place_of
from detent.api.state import state_of
from detent.model.errors import NotFound
from detent.model.execution import OPEN
from detent.store.executions import ExecutionFilter, list_executions, read_detail
from detent.store.job_read import names_of_jobs
from detent.store.jobs import JobFilter, list_fires, list_jobs, upcoming_jobs
from detent.store.stats import read_overview

SHOWN = 10
SHOWN_FIRES = 8
SHOWN_OF_A_JOB = 20
METHODS = [HttpMethod(word) for word in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")]

FAILURES: ExceptionHandlersMap = {Exception: frame.failed}


@get("/", exception_handlers=FAILURES)
async def front(request: AnyRequest) -> Response[bytes]:
    state = state_of(request)
    database, tenant, now = state.database, state.tenant, state.clock.now()
    figures = await read_overview(database, tenant, now)
    ran = await list_executions(database, tenant, ExecutionFilter(), before=None, limit=SHOWN)
    newest = await list_jobs(database, tenant, JobFilter(), before=None, limit=SHOWN)
    seen = overview.Seen(
        now=state.clock.now(),
        address=f"{request.url.scheme}://{request.headers['host']}",
        figures=figures,
        upcoming=await upcoming_jobs(database, tenant, SHOWN_FIRES),
        executions=ran.items,
        names=await names_of_jobs(database, tenant, overview.jobs_named(ran.items, figures.alerts)),
        jobs=newest.items,
    )
    return frame.page("Overview", overview.content(seen), here="/", raw="/api/v1/stats/overview")


@get("/jobs", exception_handlers=FAILURES)
async def all_jobs(request: AnyRequest) -> Response[bytes]:
    state = state_of(request)
    query = Query(request, "status", "limit", "cursor", "page")
    status = query.choice("status", jobs.STATUSES)
    place = place_of(query)
    query.done()
    found = await list_jobs(
        state.database,
        state.tenant,
        JobFilter(status=status),
        before=place.before,
        limit=place.limit,
        skip=place.skip,
    )
    shown = tables.jobs("Jobs, newest first", found.items, state.clock.now()) if found.items else None
    whole = lists.content("Jobs", "/jobs", jobs.STATUSES, status, shown, cursor_of(found.next_before))
    return frame.page("Jobs", whole, here="/jobs", raw="/api/v1/jobs")


@get("/jobs/{job_id:str}", exception_handlers=FAILURES)
async def one_job(request: AnyRequest) -> Response[bytes]:
    state = state_of(request)
    standing = await jobs.find(state, request.path_params["job_id"])
    found = standing.job
    ledger = await list_fires(state.database, state.tenant, found.job_id, NEWEST, SHOWN_OF_A_JOB)
    wanted = ExecutionFilter(found.job_id)
    ran = await list_executions(state.database, state.tenant, wanted, before=None, limit=SHOWN_OF_A_JOB)
    seen = job.Seen(now=state.clock.now(), job=found, ledger=ledger, executions=ran.items)
    return frame.page(found.spec.name, job.content(seen), raw=f"/api/v1/jobs/{found.job_id}")


@get("/executions", exception_handlers=FAILURES)
async def all_executions(request: AnyRequest) -> Response[bytes]:
    state = state_of(request)
    query = Query(request, "status", "limit", "cursor", "page")
    status = query.choice("status", executions.STATUSES)
    place = place_of(query)
    query.done()
    wanted = ExecutionFilter(status=status)
    found = await list_executions(
        state.database, state.tenant, wanted, before=place.before, limit=place.limit, skip=place.skip
    )
    names = await names_of_jobs(state.database, state.tenant, (one.job_id for one in found.items))
    now = state.clock.now()
    shown = tables.executions("Executions, newest first", found.items, now, names) if found.items else None
    older = cursor_of(found.next_before)
    whole = lists.content("Executions", "/executions", executions.STATUSES, status, shown, older)
    return frame.page("Executions", whole, here="/executions", raw="/api/v1/executions")


@get("/executions/{execution_id:str}", exception_handlers=FAILURES)
async def one_execution(request: AnyRequest) -> Response[bytes]:
    state = state_of(request)
    wanted = path_id(request.path_params["execution_id"], "execution")
    found = await read_detail(state.database, state.tenant, wanted, state.clock.now())
    if found is None:
        raise NotFound("no such execution")
    of_job = found.execution.job_id
    names = await names_of_jobs(state.database, state.tenant, [of_job])
    title = f"Execution of {names.get(of_job, of_job)}"
    return frame.page(
        title,
        execution.content(found, names.get(of_job), state.clock.now()),
        refresh=found.execution.status in OPEN,
        raw=f"/api/v1/executions/{wanted}",
    )


@get("/static/{name:str}", exception_handlers=FAILURES)
async def static(request: AnyRequest) -> Response[bytes]:
    name = request.path_params["name"]
    if name not in frame.FILES:
        raise NotFound(f"there is nothing at /static/{name}")
    return frame.file_answer(name)


@route("/{rest:path}", http_method=METHODS)
async def elsewhere(request: AnyRequest) -> Response[bytes]:
    """What no address stands for: a page for browsers, a problem for programs."""
    missing = NotFoundException()
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        return frame.failed(request, missing)
    raise missing


HANDLERS: list[HTTPRouteHandler] = [
    front,
    all_jobs,
    one_job,
    all_executions,
    one_execution,
    static,
    elsewhere,
]
