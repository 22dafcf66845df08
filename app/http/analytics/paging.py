"""Pages of what the pipeline published, whatever the table."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from fastapi import Request, Response
from pydantic import TypeAdapter

from app.domain.errors import NotFoundError
from app.http.analytics.advice_models import (
    CommitPage,
    DriftPage,
    RecommendationPage,
    StalePage,
    UncoveredPage,
)
from app.http.analytics.models import (
    AnalyticsParameters,
    BucketPage,
    IncidentPage,
    RunPage,
    UtilizationPage,
)
from app.http.analytics.whatif_models import WhatIfMinutesPage, WhatIfPage
from app.http.guards import services_of
from app.http.models import JsonResponse, ResponseModel
from app.http.query_params import page_token, parse_filter, query_fingerprint, read_page_token
from app.service.queries.analytics import (
    COLUMNS,
    NAMED_BY_ID,
    AnalyticsPage,
    AnalyticsQuery,
    Position,
    Result,
)
from app.service.runtime.tasks import off_loop

_POSITION: Final = TypeAdapter(Position)
_MODELS: Final[Mapping[Result, type[ResponseModel]]] = {
    Result.UTILIZATION: UtilizationPage,
    Result.INCIDENTS: IncidentPage,
    Result.HOURS: BucketPage,
    Result.RUNS: RunPage,
    Result.RECOMMENDATIONS: RecommendationPage,
    Result.STALE: StalePage,
    Result.UNCOVERED: UncoveredPage,
    Result.OVERCOMMIT: CommitPage,
    Result.DRIFT: DriftPage,
    Result.WHATIF: WhatIfPage,
    Result.WHATIF_MINUTES: WhatIfMinutesPage,
}
_NO_RUN: Final = dict.fromkeys(("run_id", "data_through", "coverage"))
_EQUAL: Final = ("action", "kind", "direction", "broker_id", "run_id")
"""Parameters that are columns and have the column's value."""


async def answer_page(
    request: Request,
    table: Result,
    query: AnalyticsParameters,
    bucket_id: int | None = None,
    of_run: Mapping[str, Any] | None = None,
) -> Response:
    """Answer one page of a table.

    Args:
        request: Of a caller who may see it.
        table: Which.
        query: Conditions and paging.
        bucket_id: Whose rows alone.
        of_run: The run of what-if whose rows alone, which the answer has.

    Raises:
        NotFoundError: ``no-run``; or there is no such bucket.
        BadPageTokenError: The token is of another query.
    """
    services = services_of(request)
    conditions = query.conditions()
    if of_run is not None:
        conditions["run_id"] = of_run["run_id"]
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
    return JsonResponse(await off_loop(len(page.rows), page_model, table, page, more, of_run))


def _conditions(conditions: Mapping[str, Any]) -> dict[str, Any]:
    entity = conditions.get("entity")
    named = {name: value for name, value in conditions.items() if name not in _EQUAL}
    equal = {name: conditions[name] for name in _EQUAL if conditions.get(name) is not None}
    return {**named, "equal": equal, "entity": parse_filter(entity) if entity else None}


def page_model(
    table: Result, page: AnalyticsPage, token: str | None, of_run: Mapping[str, Any] | None
) -> ResponseModel:
    """Return one page of a table."""
    columns = COLUMNS[table]
    document = {
        **(asdict(page.run) if page.run else _NO_RUN),
        "rows": [{name: row[name] for name in columns} for row in page.rows],
        "next_page_token": token,
    }
    if table in NAMED_BY_ID:
        document["buckets"] = page.buckets
    if table is Result.WHATIF:
        document["run"] = of_run
    return _MODELS[table].model_validate(document)
