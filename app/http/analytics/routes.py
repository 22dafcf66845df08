"""``/analytics/…``: who is near a limit, who was throttled, and the runs that find it out."""

import re
from typing import Annotated, Final

from fastapi import Depends, Request, Response

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
from app.http.analytics.paging import answer_page
from app.http.guards import may_describe, services_of
from app.http.models import BUCKET_ID_PATTERN, JsonResponse
from app.http.query_params import StrictQuery
from app.http.responses import answers
from app.http.route import feature_router, path_id
from app.service.queries.analytics import Result

router = feature_router("analytics")

_BUCKET_ID: Final = re.compile("-?[0-9]{1,19}")
_BIGINT: Final = range(-(2**63), 2**63)
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
    return await answer_page(request, Result.UTILIZATION, query, None)


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
    return await answer_page(request, Result.INCIDENTS, query, None)


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
    return await answer_page(request, Result.HOURS, query, number)


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
    return await answer_page(request, Result.RUNS, query, None)


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
