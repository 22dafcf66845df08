"""``GET`` and ``POST /quotas/resolve``: what applies, and why."""

from typing import Annotated

from fastapi import Depends, Request, Response

from app.http.encoding import JsonBytes, JsonResponse
from app.http.guards import may_describe
from app.http.query_params import StrictQuery
from app.http.resolve.models import (
    Resolution,
    ResolveAnswer,
    ResolveParameters,
    ResolveRequest,
)
from app.http.resolve.rendering import (
    add_usage,
    buckets_of,
    resolution_bytes,
    resolution_json,
    resolutions_bytes,
)
from app.http.responses import READING, WITH_BODY, answer_of, problems, request_examples
from app.http.route import feature_router
from app.http.services import services_of
from app.service.runtime.offload import off_loop

router = feature_router("resolve")


@router.get(
    "/quotas/resolve",
    summary="Resolve one identity",
    dependencies=[Depends(may_describe)],
    responses={
        200: answer_of(
            Resolution,
            "What applies for each key, and why.",
            "resolution-client",
            "resolution-address",
        ),
        **problems(*READING, "InvalidRequest"),
    },
)
async def resolve_quotas(
    request: Request,
    parameters: Annotated[ResolveParameters, Depends(StrictQuery(ResolveParameters, cached=True))],
) -> Response:
    """Report for each key which quota applies to one identity, and which entities it overrides."""
    query = parameters.query()
    basis = await services_of(request).resolve.basis(query)
    if not (query.explain or parameters.usage):
        return JsonBytes(resolution_bytes(basis))
    answer = basis.answer()
    document = resolution_json(answer, explain=query.explain)
    if parameters.usage:
        resolution = answer.resolutions[0]
        buckets = list(buckets_of(resolution).values())
        usage = await services_of(request).analytics.usage(answer.cluster_id, buckets)
        add_usage(document, resolution, usage)
    return JsonResponse(document)


@router.post(
    "/quotas/resolve",
    summary="Resolve many identities, and what-if",
    dependencies=[Depends(may_describe)],
    responses={
        200: answer_of(ResolveAnswer, "In the order of the identities.", "resolutions"),
        **problems(*READING, *WITH_BODY, "ExpectationFailed", "InvalidRequest"),
    },
    openapi_extra=request_examples("present", "what-if"),
)
async def resolve_many(request: Request, body: ResolveRequest) -> Response:
    """Resolve up to 10,000 identities, and what would apply after proposed alterations."""
    query = body.query()
    basis = await services_of(request).resolve.basis(query)
    return JsonBytes(await off_loop(len(query.identities), resolutions_bytes, basis))
