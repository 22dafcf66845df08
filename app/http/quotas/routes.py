"""``GET /quotas``: which quotas are stored; ``GET /quotas/capabilities``."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from pydantic import AfterValidator, TypeAdapter
from starlette.responses import StreamingResponse

from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity, EntityType
from app.domain.expiry import Expiries
from app.domain.plans import Holdings
from app.domain.quota_keys import QUOTA_KEY_RULES
from app.domain.validation import MAX_CHANGES, MAX_ENCODED_BYTES, MAX_NAME_BYTES
from app.http.guards import actor_of, may_describe, services_of
from app.http.headers import list_field, names_tag
from app.http.middleware import context_of
from app.http.models import MAX_IDENTITIES, MAX_REASON_CHARACTERS, MAX_WAIT_MS, JsonResponse
from app.http.query_params import (
    StrictQuery,
    page_token,
    parse_filter,
    query_fingerprint,
    read_page_token,
)
from app.http.quotas.expiries import (
    Notes,
    exported,
    notes_bytes,
    owners_bytes,
    owners_of,
    texts_with_owners,
    texts_with_temporaries,
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
    etag_with,
    json_frame,
    metadata_headers,
    negotiate,
    quotas_etag,
    without_thread,
    written_entries,
)
from app.http.rate_limits import Turn
from app.http.request_body import MAX_BODY_BYTES
from app.http.responses import answer_of, answers, content_of, headers_of, problems, reference
from app.http.route import feature_router
from app.service.queries.describe import DescribeQuery, Entry, SortedSnapshot
from app.service.queries.describe import QuotaListing as Listing
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

_BOUND: Final = {"filter", "strict", "has_key", "owner"}
"""What the pages of one query have in common."""

_Position = dict[Annotated[str, AfterValidator(EntityType)], str | None]
_POSITION: Final = TypeAdapter(_Position)
"""Of a page: its last entity."""

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
    wanted = DescribeQuery(
        parse_filter(query.filter, strict=query.strict), query.has_key, query.max_age_ms
    )
    fingerprint = query_fingerprint("quotas", query.model_dump(include=_BOUND))
    after = read_page_token(query.page_token, fingerprint, _POSITION)
    held = await _held(request, query)
    read = await services.describe.read(actor_of(request), wanted)
    async with services.limits.turns.of(Turn.READ, context_of(request).principal or ""):
        listing = await services.describe.select(wanted, read)
        expiries = services.temporary.image.values
        if query.owner:
            number = len(listing.entries)
            listing = await off_loop(number, _of_owners, listing, held)
            expiries = {entity: expiries[entity] for entity in expiries if entity in held}
        listing, notes = await _export(media_type, wanted, listing, expiries)
        answer, snapshot, page = _answer(query, listing, after, fingerprint)
        written, etag = await _write(media_type, answer.cluster_id, page, snapshot)
        texts, tagged = written.texts, notes_bytes(notes)
        owned = await off_loop(len(held), owners_of, answer.entries, held)
        if media_type not in _EXPORTS:
            texts, tagged = texts_with_temporaries(answer.entries, texts, expiries)
            texts = await off_loop(len(owned), texts_with_owners, texts, owned)
        tagged += owners_bytes(owned)
        etag = etag_with(etag, tagged)
    headers = {**metadata_headers(media_type, answer), "ETag": etag, "Cache-Control": "no-cache"}
    if names_tag(list_field(request.headers, "if-none-match"), etag):
        return Response(None, HTTPStatus.NOT_MODIFIED, headers=headers)
    body = encode(media_type, answer, texts, notes, owned)
    if len(answer.entries) <= _LARGEST_WHOLE:
        return Response(b"".join(body), headers=headers)
    if media_type is not Format.JSON:
        return StreamingResponse(body, headers=headers)
    size = written.size if texts is written.texts else sum(map(len, texts)) + len(texts) - 1
    headers["Content-Length"] = str(size + sum(map(len, json_frame(answer))))
    return StreamingResponse(without_thread(body), headers=headers)


async def _held(request: Request, query: DescribeParameters) -> Holdings:
    """Return who holds which keys, as far as that is asked for."""
    if not (query.owner or query.owners):
        return {}
    services = services_of(request)
    cluster_id = await services.cluster.cluster_id()
    return await services.plans.owned(cluster_id, query.owner or None)


def _of_owners(listing: Listing, held: Holdings) -> Listing:
    entries = [entry for entry in listing.entries if entry[0] in held]
    return replace(listing, entries=entries, snapshot=None)


_EXPORTS: Final = frozenset({Format.YAML, Format.CSV})
"""Formats that plan and apply take: they have no values for a time."""


async def _export(
    media_type: Format, wanted: DescribeQuery, listing: Listing, expiries: Expiries
) -> tuple[Listing, Notes]:
    """Return what is to be written of a listing in a format, and the comments in it."""
    if media_type not in _EXPORTS or not expiries:
        return listing, {}

    def is_wanted(entity: ClientQuotaEntity) -> bool:
        has_key = wanted.has_key
        is_named = not has_key or any(key in expiries[entity] for key in has_key)
        return is_named and wanted.quota_filter.matches(entity)

    number = len(listing.entries)
    entries, notes = await off_loop(number, exported, listing.entries, expiries, is_wanted)
    return (replace(listing, entries=entries, snapshot=None), notes) if notes else (listing, {})


async def _write(
    media_type: Format, cluster_id: str, page: str, snapshot: SortedSnapshot
) -> tuple[Written, str]:
    """Return the entries and their entity tag, worked out once for all answers from one image."""
    number, name = len(snapshot.entries), (media_type, cluster_id)
    async with snapshot.turn:
        written = await off_loop(number, written_entries, snapshot)
        if name not in snapshot.memo:
            etag = await off_loop(number, quotas_etag, *name, written.texts, page)
            snapshot.memo[name] = etag
    return written, snapshot.memo[name]


def _answer(
    parameters: DescribeParameters, listing: Listing, after: _Position | None, fingerprint: str
) -> tuple[QuotaListingResponse, SortedSnapshot, str]:
    """Return the answer, what is cached with its entries, and which page of the whole it is."""
    size, token = parameters.page_size or _DEFAULT_PAGE_SIZE, parameters.page_token
    answer = QuotaListingResponse(listing.cluster_id, listing.as_of, listing.entries)
    if parameters.page_size is None and token is None:
        return answer, listing.snapshot or _own(listing.entries), ""
    begin, following, total = 0, None, len(listing.entries)
    if after is not None:
        last = ClientQuotaEntity.of(after).sort_key()
        begin = bisect_right(listing.entries, last, key=lambda entry: entry[0].sort_key())
    entries = listing.entries[begin : begin + size]
    if begin + size < total:
        following = page_token(entries[-1][0].as_dict(), fingerprint)
    answer = replace(answer, entries=entries, next_page_token=following, total=total)
    return answer, _own(entries), f"{token}+{size}/{total}/{following}"


def _own(entries: Sequence[Entry]) -> SortedSnapshot:
    """Return entries that no other answer has."""
    return SortedSnapshot({}, list(entries))


@router.get(
    "/quotas/capabilities",
    summary="Show what can be limited",
    dependencies=[Depends(may_describe)],
    responses=answers(Capabilities, "Types, keys, bounds and limits.", "capabilities"),
)
async def show_capabilities(request: Request) -> Response:
    """Report the entity types, the keys with unit and bounds, and the limits of this service."""
    return JsonResponse(capabilities(await services_of(request).brokers()))
