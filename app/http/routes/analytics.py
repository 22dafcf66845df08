"""``/analytics/…``: who is near a limit, who was throttled, and the runs that find it out."""

import re
from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from app.domain.authorization import DecisionRule
from app.domain.errors import NotFoundError
from app.http.admission import begin_work, read_object
from app.http.analytics_documents import page_json, row_json
from app.http.analytics_parameters import (
    BUCKET_PARAMETERS,
    INCIDENTS_PARAMETERS,
    RUNS_PARAMETERS,
    UTILIZATION_PARAMETERS,
)
from app.http.analytics_reading import read_run_request
from app.http.declared import requires
from app.http.filter_query import parse_filter
from app.http.json_text import JsonResponse
from app.http.openapi import (
    BUCKET,
    CANCEL_RUN,
    INCIDENTS,
    QUEUE_RUN,
    RUN,
    RUNS,
    UTILIZATION,
)
from app.http.page_tokens import page_token, query_fingerprint, read_page_token
from app.http.permissions import granted_to, may_alter, may_describe
from app.http.plain_route import PlainRoute
from app.http.query import QueryValues, read_query
from app.http.query_parameters import QueryParameter
from app.http.route_parameters import NO_PARAMETERS
from app.http.services import services_of
from app.service.off_loop import off_loop
from app.service.reading.analytics import AnalyticsPage, AnalyticsQuery, Result
from app.service.reading.analytics_columns import COLUMNS

router = APIRouter(tags=["analytics"], route_class=PlainRoute)

_BUCKET_ID: Final = re.compile("-?[0-9]{1,19}")
_BIGINT: Final = range(-(2**63), 2**63)
_PAGING: Final = ("page_size", "page_token")


@router.get("/analytics/utilization", **UTILIZATION)
@requires(may_describe)
async def show_utilization(request: Request) -> Response:
    """Show each bucket's days beside its limit: the newest day first, in it the fullest bucket."""
    return await _listed(request, Result.UTILIZATION, UTILIZATION_PARAMETERS)


@router.get("/analytics/incidents", **INCIDENTS)
@requires(may_describe)
async def show_incidents(request: Request) -> Response:
    """Show the stretches in which a bucket was throttled or over its limit, newest first."""
    return await _listed(request, Result.INCIDENTS, INCIDENTS_PARAMETERS)


@router.get("/analytics/buckets/{bucket_id}", **BUCKET)
@requires(may_describe)
async def show_bucket(request: Request, bucket_id: str) -> Response:
    """Show the minutes of one bucket, oldest first, and who it is."""
    values = read_query(request.scope["query_string"], BUCKET_PARAMETERS)
    number = int(bucket_id) if _BUCKET_ID.fullmatch(bucket_id) else None
    if number is None or number not in _BIGINT:
        raise NotFoundError("A bucket_id is a whole number of 64 bits, as other answers have it.")
    return await _page(request, Result.MINUTES, values, number)


@router.get("/analytics/runs", **RUNS)
@requires(may_describe)
async def show_runs(request: Request) -> Response:
    """Show the runs of the pipeline, newest first."""
    return await _listed(request, Result.RUNS, RUNS_PARAMETERS)


@router.get("/analytics/runs/{run_id}", **RUN)
@requires(may_describe)
async def show_run(request: Request, run_id: str) -> Response:
    """Show one run: how far it is, or what became of it."""
    read_query(request.scope["query_string"], NO_PARAMETERS)
    return JsonResponse(row_json(await services_of(request).analytics.run(run_id)))


@router.post("/analytics/runs", **QUEUE_RUN)
@requires(may_alter)
async def queue_run(request: Request) -> Response:
    """Queue a run for the next worker that is free."""
    granted = granted_to(request)
    read_query(request.scope["query_string"], NO_PARAMETERS)
    body = await read_object(request, read_run_request)
    row = await services_of(request).analytics.queue(granted.caller, body.job, body.options)
    location = f"/analytics/runs/{row['run_id']}"
    return JsonResponse(row_json(row), 202, {"Location": location})


@router.post("/analytics/runs/{run_id}/cancel", **CANCEL_RUN)
@requires(may_alter)
async def cancel_run(request: Request, run_id: str) -> Response:
    """End a run that waits, or ask the worker to end one that runs."""
    granted = granted_to(request)
    read_query(request.scope["query_string"], NO_PARAMETERS)
    begin_work(request)
    may_cancel_any = granted.evidence.get("rule") == DecisionRule.SUPER_USER
    analytics = services_of(request).analytics
    row = await analytics.cancel(granted.caller, run_id, may_cancel_any=may_cancel_any)
    return JsonResponse(row_json(row))


async def _listed(
    request: Request, table: Result, parameters: Sequence[QueryParameter]
) -> Response:
    return await _page(request, table, read_query(request.scope["query_string"], parameters), None)


async def _page(
    request: Request, table: Result, values: QueryValues, bucket_id: int | None
) -> Response:
    services = services_of(request)
    conditions = {name: value for name, value in values.items() if name not in _PAGING}
    fingerprint = query_fingerprint(table.value, {**conditions, "bucket_id": bucket_id})
    token = values["page_token"]
    after = None if token is None else read_page_token(token, fingerprint)
    entity = values.get("entity")
    query = AnalyticsQuery(
        table,
        key=values.get("key"),
        entity=parse_filter(entity, parameter="entity") if entity else None,
        min_util_p99=values.get("min_util_p99"),
        since=values.get("since"),
        until=values.get("until"),
        bucket_id=bucket_id,
        limit=values["page_size"],
        after=after,
    )
    page = await services.analytics.page(query)
    if bucket_id is not None and not page.buckets and not page.rows:
        raise NotFoundError("There is no such bucket; GET /analytics/utilization lists them.")
    further = page.next_after
    more = None if further is None else page_token(list(further), fingerprint)
    document = await off_loop(len(page.rows), _document, page, table, more)
    return JsonResponse(document)


def _document(page: AnalyticsPage, table: Result, token: str | None) -> dict[str, Any]:
    document = page_json(page, COLUMNS[table], token)
    if table is not Result.RUNS:
        document["buckets"] = [row_json(bucket) for bucket in page.buckets]
    return document
