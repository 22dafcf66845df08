"""``/analytics/…``: who is near a limit, who was throttled, and the runs that find it out."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from pydantic import TypeAdapter

from app.domain.errors import NotFoundError
from app.http.analytics.models import (
    RUN_ID_PATTERN,
    AnalyticsParameters,
    BucketPage,
    BucketParameters,
    IncidentPage,
    IncidentsParameters,
    PipelineRun,
    RunPage,
    UtilizationPage,
    UtilizationParameters,
)
from app.http.guards import may_describe, services_of
from app.http.models import BUCKET_ID_PATTERN, JsonResponse, ResponseModel
from app.http.query_params import (
    StrictQuery,
    page_token,
    parse_filter,
    query_fingerprint,
    read_page_token,
)
from app.http.responses import answers
from app.http.route import feature_router, path_id
from app.service.queries.analytics import COLUMNS, AnalyticsPage, AnalyticsQuery, Position, Result
from app.service.runtime.tasks import off_loop

router = feature_router("analytics")

_BUCKET_ID: Final = re.compile("-?[0-9]{1,19}")
_BIGINT: Final = range(-(2**63), 2**63)
_POSITION: Final = TypeAdapter(Position)
_MAY_DESCRIBE: Final = [Depends(may_describe)]

BucketId = Annotated[str, path_id("bucket_id", "a row", BUCKET_ID_PATTERN)]
RunId = Annotated[str, path_id("run_id", "an answer", RUN_ID_PATTERN)]


@router.get(
    "/analytics/utilization",
    summary="Show who is near a limit",
    dependencies=_MAY_DESCRIBE,
    responses=answers(UtilizationPage, "One page.", "utilization", errors=("NoRun",)),
)
async def show_utilization(
    request: Request,
    query: Annotated[UtilizationParameters, Depends(StrictQuery(UtilizationParameters))],
) -> Response:
    """Show each bucket's days beside its limit: the newest day first, in it the fullest bucket."""
    return await _page(request, Result.UTILIZATION, query, None)


@router.get(
    "/analytics/incidents",
    summary="Show who was throttled",
    dependencies=_MAY_DESCRIBE,
    responses=answers(IncidentPage, "One page, newest first.", "incidents", errors=("NoRun",)),
)
async def show_incidents(
    request: Request,
    query: Annotated[IncidentsParameters, Depends(StrictQuery(IncidentsParameters))],
) -> Response:
    """Show the stretches in which a bucket was throttled or over its limit, newest first."""
    return await _page(request, Result.INCIDENTS, query, None)


@router.get(
    "/analytics/buckets/{bucket_id}",
    summary="Show the hours of a bucket",
    dependencies=_MAY_DESCRIBE,
    responses=answers(
        BucketPage, "One page, oldest first.", "bucket-hours", errors=("NoSuchBucket",)
    ),
)
async def show_bucket(
    request: Request,
    bucket_id: BucketId,
    query: Annotated[BucketParameters, Depends(StrictQuery(BucketParameters))],
) -> Response:
    """Show the last 14 days of one bucket by hour, oldest first, and who it is."""
    number = int(bucket_id) if _BUCKET_ID.fullmatch(bucket_id) else None
    if number is None or number not in _BIGINT:
        raise NotFoundError("A bucket_id is a whole number of 64 bits, as other answers have it.")
    return await _page(request, Result.HOURS, query, number)


@router.get(
    "/analytics/runs",
    summary="Show the runs of the pipeline",
    dependencies=_MAY_DESCRIBE,
    responses=answers(RunPage, "One page, newest first.", "runs", errors=("NoRun",)),
)
async def show_runs(
    request: Request,
    query: Annotated[AnalyticsParameters, Depends(StrictQuery(AnalyticsParameters))],
) -> Response:
    """Show the runs of the pipeline, newest first."""
    return await _page(request, Result.RUNS, query, None)


@router.get(
    "/analytics/runs/{run_id}",
    summary="Show one run",
    dependencies=_MAY_DESCRIBE,
    responses=answers(PipelineRun, "Its record.", "run-succeeded", errors=("NotFound",)),
)
async def show_run(request: Request, run_id: RunId) -> Response:
    """Show one run: whether it still goes on, or what became of it."""
    return JsonResponse(
        PipelineRun.model_validate(await services_of(request).analytics.run(run_id))
    )


async def _page(
    request: Request, table: Result, query: AnalyticsParameters, bucket_id: int | None
) -> Response:
    services = services_of(request)
    conditions = query.conditions()
    fingerprint = query_fingerprint(table.value, {**conditions, "bucket_id": bucket_id})
    page = await services.analytics.page(
        AnalyticsQuery(
            table,
            **_conditions(conditions),
            bucket_id=bucket_id,
            limit=query.page_size,
            after=read_page_token(query.page_token, fingerprint, _POSITION),
        )
    )
    if bucket_id is not None and not page.buckets and not page.rows:
        raise NotFoundError("There is no such bucket; GET /analytics/utilization lists them.")
    more = page_token(page.next_after, fingerprint)
    return JsonResponse(await off_loop(len(page.rows), page_model, table, page, more))


def _conditions(conditions: Mapping[str, Any]) -> dict[str, Any]:
    entity = conditions.get("entity")
    return {**conditions, "entity": parse_filter(entity) if entity else None}


_MODELS: Final[Mapping[Result, type[ResponseModel]]] = {
    Result.UTILIZATION: UtilizationPage,
    Result.INCIDENTS: IncidentPage,
    Result.HOURS: BucketPage,
    Result.RUNS: RunPage,
}
_NO_RUN: Final = dict.fromkeys(("run_id", "data_through", "coverage"))


def page_model(table: Result, page: AnalyticsPage, token: str | None) -> ResponseModel:
    """Return one page of a table."""
    columns = COLUMNS[table]
    document = {
        **(asdict(page.run) if page.run else _NO_RUN),
        "rows": [{name: row[name] for name in columns} for row in page.rows],
        "next_page_token": token,
    }
    if table is not Result.RUNS:
        document["buckets"] = page.buckets
    return _MODELS[table].model_validate(document)
