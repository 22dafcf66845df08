"""``GET`` and ``POST /quotas/resolve``: what applies, and why."""

from functools import lru_cache
from typing import Final

from fastapi import APIRouter, Request, Response

from app.http.admission import read_object
from app.http.declared import requires
from app.http.json_text import JsonBytes, JsonResponse
from app.http.openapi import RESOLVE, RESOLVE_MANY
from app.http.permissions import may_describe
from app.http.plain_route import PlainRoute
from app.http.query import read_query
from app.http.request_rules import identity_violations
from app.http.resolution_documents import resolution_json
from app.http.resolution_usage import add_usage, buckets_of
from app.http.resolution_writing import resolution_bytes, resolutions_bytes
from app.http.route_parameters import RESOLVE_PARAMETERS
from app.http.schemas import read_resolve_request
from app.http.services import services_of
from app.service.off_loop import off_loop
from app.service.reading.resolve import Identity, ResolveQuery

router = APIRouter(tags=["resolve"], route_class=PlainRoute)


@router.get("/quotas/resolve", **RESOLVE)
@requires(may_describe)
async def resolve_quotas(request: Request) -> Response:
    """Tell for each key which quota applies to one identity, and which entities it overrides."""
    query_string = request.scope["query_string"]
    query, with_usage = (
        _known_query(query_string) if len(query_string) <= _SHORT else _read_query(query_string)
    )
    basis = await services_of(request).resolve.basis(query)
    if not (query.explain or with_usage):
        return JsonBytes(resolution_bytes(basis))
    answer = basis.answer()
    document = resolution_json(answer, explain=query.explain)
    if with_usage:
        resolution = answer.resolutions[0]
        buckets = list(buckets_of(resolution).values())
        usage = await services_of(request).analytics.usage(answer.cluster_id, buckets)
        add_usage(document, resolution, usage)
    return JsonResponse(document)


def _read_query(query_string: bytes) -> tuple[ResolveQuery, bool]:
    """Return the query, and whether the usage is asked for."""
    values = read_query(query_string, RESOLVE_PARAMETERS)
    identity = Identity(values["user"], values["client-id"], values["ip"])
    query = ResolveQuery(
        (identity,),
        max_age_ms=values["max_age_ms"],
        explain=values["explain"],
        violations=tuple(identity_violations(identity, lambda name: name or "user")),
    )
    return query, values["usage"]


_SHORT: Final = 512
_known_query: Final = lru_cache(maxsize=1024)(_read_query)
"""The same callers are asked for again and again; only short queries are worth remembering."""


@router.post("/quotas/resolve", **RESOLVE_MANY)
@requires(may_describe)
async def resolve_many(request: Request) -> Response:
    """Resolve up to 10,000 identities, and what would apply after proposed alterations."""
    read_query(request.scope["query_string"], ())
    body = await read_object(request, read_resolve_request)
    query = ResolveQuery(
        body.identities,
        body.alterations,
        body.max_age_ms,
        violations=body.violations,
        expected={
            ordinal: expected
            for ordinal, expected in enumerate(body.expected)
            if expected is not None
        },
    )
    basis = await services_of(request).resolve.basis(query)
    return JsonBytes(await off_loop(len(query.identities), resolutions_bytes, basis))
