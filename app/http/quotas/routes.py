"""``GET /quotas``: which quotas are stored; ``GET /quotas/capabilities``."""

from bisect import bisect_right
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from itertools import starmap
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from starlette.responses import StreamingResponse

from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity
from app.domain.errors import BadPageTokenError
from app.domain.quota_keys import QUOTA_KEY_RULES
from app.domain.validation import MAX_CHANGES, MAX_ENCODED_BYTES, MAX_NAME_BYTES
from app.http.headers import list_field, names_tag
from app.http.models import MAX_IDENTITIES, MAX_REASON_CHARACTERS, MAX_WAIT_MS, JsonResponse
from app.http.query_params import (
    StrictQuery,
    page_token,
    parse_filter,
    query_fingerprint,
    read_page_token,
)
from app.http.quotas.formats import (
    QUOTA_LINES,
    QUOTA_TABLE,
    Capabilities,
    DescribeParameters,
    Format,
    QuotaListing,
    QuotaListingResponse,
    RequestLimits,
    Written,
    encode,
    entry_text,
    json_frame,
    metadata_headers,
    negotiate,
    quotas_etag,
    written_entries,
)
from app.http.request_body import MAX_BODY_BYTES
from app.http.responses import answer_of, answers, content_of, headers_of, problems, reference
from app.http.route import Services, feature_router, may_describe, services_of
from app.service.queries.describe import DescribeQuery, SortedSnapshot
from app.service.runtime.tasks import off_loop

_OLDEST_BROKER = "2.6"
_CERTIFIED_BROKER = "4.3.1"


def capabilities(brokers: Mapping[str, Any]) -> Capabilities:
    """Return what can be asked for; ``brokers`` is what the cluster reports of itself."""
    return Capabilities.model_validate(
        {
            "entity_types": ENTITY_TYPES,
            "keys": QUOTA_KEY_RULES,
            "brokers": {"oldest": _OLDEST_BROKER, "certified": _CERTIFIED_BROKER, **brokers},
            "limits": RequestLimits(
                body_bytes=MAX_BODY_BYTES,
                changes_per_request=MAX_CHANGES,
                encoded_bytes_per_request=MAX_ENCODED_BYTES,
                name_bytes=MAX_NAME_BYTES,
                identities_per_request=MAX_IDENTITIES,
                reason_characters=MAX_REASON_CHARACTERS,
                wait_ms=MAX_WAIT_MS,
            ),
        }
    )


router = feature_router("quotas")

_BOUND: Final = {"filter", "strict", "has_key"}
"""What the pages of one query have in common."""

_DEFAULT_PAGE_SIZE = 1000

_LARGEST_WHOLE = 1000
"""Up to so many entities an answer is sent at once; more are streamed."""


_LISTED: Final = ("Vary", "X-Cluster-Id", "X-As-Of", "X-Next-Page-Token", "ETag")

_TEXT: Final = {"type": "string"}


@router.get(
    "/quotas",
    summary="Describe quotas",
    dependencies=[Depends(may_describe)],
    responses={
        200: {
            **answer_of(
                QuotaListing,
                "The quotas, in the format that `Accept` asks for.",
                "quotas",
                headers=_LISTED,
            ),
            "content": {
                Format.JSON.value: content_of("quotas"),
                Format.NDJSON.value: content_of(
                    "quotas-ndjson", schema={**_TEXT, "description": QUOTA_LINES}
                ),
                Format.CSV.value: content_of(
                    "quotas-csv", schema={**_TEXT, "description": QUOTA_TABLE}
                ),
                Format.YAML.value: content_of("quotas-yaml", schema=reference("QuotaDocument")),
            },
        },
        304: {
            "description": "The caller's copy still says the same.",
            "headers": headers_of(*_LISTED),
        },
        **problems("NotAcceptable"),
    },
    openapi_extra={"parameters": [reference("If-None-Match", "parameters")]},
)
async def describe_quotas(
    request: Request, query: Annotated[DescribeParameters, Depends(StrictQuery(DescribeParameters))]
) -> Response:
    """Describe the quotas that match the filter, sorted by user, client-id and ip."""
    services = services_of(request)
    media_type = negotiate(list_field(request.headers, "accept"))
    answer, snapshot, page = await _answer(services, query)
    if snapshot is None:
        etag = await off_loop(len(answer.entries), _etag, media_type, answer, page)
    else:
        answer, etag = await _render(media_type, answer, snapshot)
    headers = {**metadata_headers(media_type, answer), "ETag": etag, "Cache-Control": "no-cache"}
    if names_tag(list_field(request.headers, "if-none-match"), etag):
        return Response(None, HTTPStatus.NOT_MODIFIED, headers=headers)
    if answer.written is not None:
        return stream_written(answer, answer.written, headers)
    body = encode(media_type, answer)
    if len(answer.entries) <= _LARGEST_WHOLE:
        return Response(b"".join(body), headers=headers)
    return StreamingResponse(body, headers=headers)


_TEXTS_AT_ONCE: Final = 1_000
"""Entities in a message: about 200 KB."""


def stream_written(
    answer: QuotaListingResponse, written: Written, headers: Mapping[str, str]
) -> StreamingResponse:
    """Send entries as fast as the caller takes them; nothing needs to be waited for in a thread."""
    head, tail = json_frame(answer)
    size = len(head) + written.size + len(tail)
    bodies = _bodies(head, written.texts, tail)
    return StreamingResponse(bodies, headers={**headers, "Content-Length": str(size)})


async def _bodies(head: bytes, texts: Sequence[bytes], tail: bytes) -> AsyncIterator[bytes]:
    yield head
    for begin in range(0, len(texts), _TEXTS_AT_ONCE):
        body = b",".join(texts[begin : begin + _TEXTS_AT_ONCE])
        yield b"," + body if begin else body
    yield tail


async def _render(
    media_type: Format, answer: QuotaListingResponse, snapshot: SortedSnapshot
) -> tuple[QuotaListingResponse, str]:
    """Return the answer and its entity tag, worked out once for all answers from one image."""
    number, name = len(answer.entries), ("entity tag", media_type, answer.cluster_id)
    async with snapshot.turn:
        if media_type is Format.JSON:
            answer = replace(answer, written=await off_loop(number, written_entries, snapshot))
        if name not in snapshot.memo:
            snapshot.memo[name] = await off_loop(number, _etag, media_type, answer)
    etag: str = snapshot.memo[name]
    return answer, etag


def _etag(media_type: Format, answer: QuotaListingResponse, page: str = "") -> str:
    texts = answer.written.texts if answer.written else starmap(entry_text, answer.entries)
    return quotas_etag(media_type, answer.cluster_id, texts, page)


async def _answer(
    services: Services, parameters: DescribeParameters
) -> tuple[QuotaListingResponse, SortedSnapshot | None, str]:
    """Return the answer, what is cached with its entries, and which page of the whole it is."""
    query = DescribeQuery(
        parse_filter(parameters.filter, strict=parameters.strict),
        parameters.has_key,
        parameters.max_age_ms,
    )
    size, token = parameters.page_size or _DEFAULT_PAGE_SIZE, parameters.page_token
    fingerprint = query_fingerprint("quotas", parameters.model_dump(include=_BOUND))
    after = None if token is None else _entity(read_page_token(token, fingerprint)).sort_key()
    listing = await services.describe.describe(query)
    answer = QuotaListingResponse(listing.cluster_id, listing.as_of, listing.entries)
    if parameters.page_size is None and token is None:
        return answer, listing.snapshot, ""
    begin, following, total = 0, None, len(listing.entries)
    if after is not None:
        begin = bisect_right(listing.entries, after, key=lambda entry: entry[0].sort_key())
    entries = listing.entries[begin : begin + size]
    if begin + size < total:
        following = page_token(entries[-1][0].as_dict(), fingerprint)
    answer = replace(answer, entries=entries, next_page_token=following, total=total)
    return answer, None, f"{token}+{size}/{total}/{following}"


def _entity(position: Any) -> ClientQuotaEntity:
    names = position.items() if isinstance(position, dict) else [(None, None)]
    if not all(kind in ENTITY_TYPES and isinstance(name, str | None) for kind, name in names):
        raise BadPageTokenError
    return ClientQuotaEntity.of(position)


@router.get(
    "/quotas/capabilities",
    summary="Show what can be limited",
    dependencies=[Depends(may_describe)],
    responses=answers(Capabilities, "Types, keys, bounds and limits.", "capabilities"),
)
async def show_capabilities(request: Request) -> Response:
    """Report the entity types, the keys with unit and bounds, and the limits of this service."""
    return JsonResponse(capabilities(await services_of(request).brokers()))
