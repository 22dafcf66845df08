"""``/analytics/…``: what the pipeline advises, each answer with what would do it."""

from typing import Annotated, Final

from fastapi import Depends, Request, Response

from app.http.analytics.advice_models import (
    CommitPage,
    DriftPage,
    DriftParameters,
    OvercommitParameters,
    RecommendationPage,
    RecommendationsParameters,
    StalePage,
    StaleParameters,
    UncoveredPage,
    UncoveredParameters,
)
from app.http.analytics.models import RUN_ID_PATTERN
from app.http.analytics.paging import answer_page
from app.http.analytics.whatif_models import (
    WhatIfMinutesPage,
    WhatIfMinutesParameters,
    WhatIfPage,
    WhatIfParameters,
)
from app.http.guards import may_describe, services_of
from app.http.query_params import StrictQuery
from app.http.responses import answers
from app.http.route import feature_router, path_id
from app.service.queries.analytics import Result

router = feature_router("analytics")

_MAY_DESCRIBE: Final = [Depends(may_describe)]

RunId = Annotated[str, path_id("run_id", "a report of `quota-pipeline whatif`", RUN_ID_PATTERN)]


@router.get(
    "/analytics/recommendations",
    summary="Show which values to raise or lower",
    dependencies=_MAY_DESCRIBE,
    responses=answers(
        RecommendationPage,
        "One page, the largest change first.",
        "recommendations",
        errors=("NoRun",),
    ),
)
async def show_recommendations(
    request: Request,
    query: Annotated[RecommendationsParameters, Depends(StrictQuery(RecommendationsParameters))],
) -> Response:
    """Show what each stored value should be, from what its buckets used."""
    return await answer_page(request, Result.RECOMMENDATIONS, query)


@router.get(
    "/analytics/stale",
    summary="Show which values do nothing",
    dependencies=_MAY_DESCRIBE,
    responses=answers(StalePage, "One page, by kind and entity.", "stale", errors=("NoRun",)),
)
async def show_stale(
    request: Request,
    query: Annotated[StaleParameters, Depends(StrictQuery(StaleParameters))],
) -> Response:
    """Show stored values that may be removed: shadowed, redundant, orphaned, idle or unused."""
    return await answer_page(request, Result.STALE, query)


@router.get(
    "/analytics/uncovered",
    summary="Show who has no value of their own",
    dependencies=_MAY_DESCRIBE,
    responses=answers(
        UncoveredPage, "One page, the largest share first.", "uncovered", errors=("NoRun",)
    ),
)
async def show_uncovered(
    request: Request,
    query: Annotated[UncoveredParameters, Depends(StrictQuery(UncoveredParameters))],
) -> Response:
    """Show who uses most under a default, or without any limit."""
    return await answer_page(request, Result.UNCOVERED, query)


@router.get(
    "/analytics/overcommit",
    summary="Show what brokers have promised",
    dependencies=_MAY_DESCRIBE,
    responses=answers(
        CommitPage, "One page, by broker and direction.", "overcommit", errors=("NoRun",)
    ),
)
async def show_overcommit(
    request: Request,
    query: Annotated[OvercommitParameters, Depends(StrictQuery(OvercommitParameters))],
) -> Response:
    """Show the limits and the use of each broker's buckets beside its capacity."""
    return await answer_page(request, Result.OVERCOMMIT, query)


@router.get(
    "/analytics/drift",
    summary="Show where document, log and cluster differ",
    dependencies=_MAY_DESCRIBE,
    responses=answers(
        DriftPage, "One page, by kind and entity.", "drift-findings", errors=("NoRun",)
    ),
)
async def show_drift(
    request: Request,
    query: Annotated[DriftParameters, Depends(StrictQuery(DriftParameters))],
) -> Response:
    """Show where the desired document, the audit log and the live quotas differ."""
    return await answer_page(request, Result.DRIFT, query)


@router.get(
    "/analytics/whatif/{run_id}",
    summary="Show what new quotas would have throttled",
    dependencies=_MAY_DESCRIBE,
    responses=answers(
        WhatIfPage, "One page, throttled longest first.", "whatif", errors=("NoRun", "NotFound")
    ),
)
async def show_whatif(
    request: Request,
    run_id: RunId,
    query: Annotated[WhatIfParameters, Depends(StrictQuery(WhatIfParameters))],
) -> Response:
    """Show what a run of what-if was asked, and what it found of each bucket on each broker."""
    run = await services_of(request).analytics.whatif_run(run_id)
    return await answer_page(request, Result.WHATIF, query, of_run=run)


@router.get(
    "/analytics/whatif/{run_id}/timeline",
    summary="Show the minutes that would be throttled longest",
    dependencies=_MAY_DESCRIBE,
    responses=answers(
        WhatIfMinutesPage,
        "One page, by bucket, broker and time.",
        "whatif-timeline",
        errors=("NoRun", "NotFound"),
    ),
)
async def show_whatif_timeline(
    request: Request,
    run_id: RunId,
    query: Annotated[WhatIfMinutesParameters, Depends(StrictQuery(WhatIfMinutesParameters))],
) -> Response:
    """Show the minutes of those buckets that would be throttled longest, beside their limits."""
    run = await services_of(request).analytics.whatif_run(run_id)
    return await answer_page(request, Result.WHATIF_MINUTES, query, of_run=run)
