"""``GET /quotas``: which quotas are stored; ``GET /quotas/capabilities``."""

from dataclasses import replace
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from app.http.capabilities import capabilities_json
from app.http.declared import requires
from app.http.etags import if_none_match, quotas_etag, text_etag
from app.http.filter_query import parse_filter
from app.http.formats import Format, QuotasAnswer, encode, metadata_headers, negotiate
from app.http.header_fields import list_field
from app.http.json_pieces import joined, json_pieces
from app.http.json_text import JsonResponse
from app.http.openapi import CAPABILITIES, DESCRIBE
from app.http.page_tokens import query_fingerprint
from app.http.permissions import may_describe
from app.http.pieces_response import PiecesResponse
from app.http.plain_route import PlainRoute
from app.http.query import QueryValues, read_query
from app.http.route_parameters import DESCRIBE_PARAMETERS
from app.http.services import Services, services_of
from app.service.off_loop import off_loop
from app.service.reading.arranged import Rendering
from app.service.reading.describe import DescribeQuery, QuotaPage

router = APIRouter(tags=["quotas"], route_class=PlainRoute)

_DEFAULT_PAGE_SIZE = 1000

_LARGEST_WHOLE = 1000
"""Up to so many entities an answer is sent as one piece; more are streamed."""


@router.get("/quotas", **DESCRIBE)
@requires(may_describe)
async def describe_quotas(request: Request) -> Response:
    """Describe the quotas that match the filter, sorted by user, client-id and ip."""
    services = services_of(request)
    media_type = negotiate(list_field(request.headers, "accept"))
    values = read_query(request.scope["query_string"], DESCRIBE_PARAMETERS)
    answer, rendering, page = await _answer(services, values)
    if rendering is None:
        etag = await _etag(media_type, answer, page)
    else:
        answer, etag = await _written(media_type, answer, rendering)
    headers = {**metadata_headers(media_type, answer), "ETag": etag, "Cache-Control": "no-cache"}
    if if_none_match(list_field(request.headers, "if-none-match"), etag):
        return Response(None, HTTPStatus.NOT_MODIFIED, headers=headers)
    if answer.pieces is not None:
        return PiecesResponse(answer, answer.pieces, headers)
    body = encode(media_type, answer)
    if len(answer.entries) <= _LARGEST_WHOLE:
        return Response(b"".join(body), headers=headers)
    return StreamingResponse(body, headers=headers)


async def _etag(media_type: Format, answer: QuotasAnswer, page: str) -> str:
    entries = answer.entries
    return await off_loop(len(entries), quotas_etag, media_type, answer.cluster_id, entries, page)


async def _written(
    media_type: Format, answer: QuotasAnswer, rendering: Rendering
) -> tuple[QuotasAnswer, str]:
    """Return the answer and its entity tag, worked out once for all answers from one image."""
    number, name = len(answer.entries), ("entity tag", media_type, answer.cluster_id)
    async with rendering.turn:
        if media_type is Format.JSON:
            answer = replace(answer, pieces=await off_loop(number, json_pieces, rendering))
        if name not in rendering.kept:
            rendering.kept[name] = await off_loop(number, _whole_etag, media_type, answer)
    etag: str = rendering.kept[name]
    return answer, etag


def _whole_etag(media_type: Format, answer: QuotasAnswer) -> str:
    if answer.pieces is None:
        return quotas_etag(media_type, answer.cluster_id, answer.entries)
    return text_etag(media_type, answer.cluster_id, joined(answer.pieces))


async def _answer(
    services: Services, values: QueryValues
) -> tuple[QuotasAnswer, Rendering | None, str]:
    """Return the answer, what is kept with its entries, and which part of the whole it is."""
    query = DescribeQuery(
        parse_filter(values["filter"], strict=values["strict"]),
        values["has_key"],
        values["max_age_ms"],
    )
    if values["page_size"] is None and values["page_token"] is None:
        listing = await services.describe.describe(query)
        answer = QuotasAnswer(listing.cluster_id, listing.as_of, listing.entries)
        return answer, listing.rendering, ""
    answer, page = await _page(services, values, query)
    return answer, None, page


async def _page(
    services: Services, values: QueryValues, query: DescribeQuery
) -> tuple[QuotasAnswer, str]:
    size = values["page_size"] or _DEFAULT_PAGE_SIZE
    bound = {name: values[name] for name in ("filter", "strict", "has_key", "max_age_ms")}
    fingerprint = query_fingerprint("quotas", bound)
    token = values["page_token"]
    if token is None:
        page = await services.describe.first_page(query, size)
        position = 0
    else:
        place = services.page_tokens.read(token, fingerprint)
        position = place["position"]
        page = services.describe.next_page(place["snapshot"], position, size)
    following = _token(services, page, fingerprint)
    listing = page.listing
    answer = QuotasAnswer(listing.cluster_id, listing.as_of, page.entries, following)
    return answer, f"{position}+{size}/{page.next_position}"


def _token(services: Services, page: QuotaPage, fingerprint: str) -> str | None:
    if page.next_position is None:
        return None
    place = {"snapshot": page.snapshot_id, "position": page.next_position}
    return services.page_tokens.make(place, fingerprint)


@router.get("/quotas/capabilities", **CAPABILITIES)
@requires(may_describe)
async def show_capabilities(request: Request) -> Response:
    """Tell the entity types, the keys with unit and bounds, and the limits of this service."""
    read_query(request.scope["query_string"], ())
    return JsonResponse(capabilities_json(await services_of(request).brokers()))
