"""``/quotas/{entity_key}``: one entity by its key; read, replaced and removed."""

from dataclasses import replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Path, Request, Response
from pydantic import Field, PrivateAttr
from starlette.convertors import StringConvertor, register_url_convertor

from app.domain.alterations import Outcome, Values
from app.domain.authorization import Operation
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import NoSuchEntityError, Violation
from app.domain.plans import Holdings
from app.http.alterations.expiry import ExpiresAt, ExpiresIn, end_asked_for
from app.http.alterations.models import ReplaceRequest, broken_reason
from app.http.alterations.routes import alteration_of, alteration_response, altered
from app.http.guards import Granted, MayDescribe, Permission, services_of
from app.http.headers import list_field, names_tag
from app.http.models import MAX_WAIT_MS, JsonResponse, answer_head, json_bytes, quota_json
from app.http.query_params import READ_INTEGER, Flag, QueryParameters, StrictQuery, read_query
from app.http.quotas.expiries import (
    MEMBER,
    OWNERS,
    owners_bytes,
    owners_of,
    temporaries_json,
)
from app.http.quotas.formats import (
    Format,
    MaxAgeMs,
    QuotaOfEntity,
    entry_text,
    etag_with,
    quotas_etag,
)
from app.http.request_body import JsonBody, Key, key_of, read_denied
from app.http.responses import answer_of, headers_of, problems, reference, request_examples
from app.http.route import feature_router
from app.http.validation import parse_object, validated
from app.service.alterations.replace import ReplaceQuotas
from app.service.auth.denials import RequestedChange
from app.service.ports.alterations import DEFAULT_WAIT_MS, Alteration, AlterationRecord, Wait

router = feature_router("quotas")


class _EntityKeys(StringConvertor):
    """Whatever is not a word of small letters, which names a route below ``/quotas`` if anything.

    Every key has a capital letter: base64 of {" begins with eyI or eyJ.
    """

    regex = "[^/]*[^a-z/][^/]*"


register_url_convertor("entity_key", _EntityKeys())

_PATH: Final = "/quotas/{entity_key:entity_key}"

EntityKeyPath = Annotated[
    str,
    Path(
        description="The `entity_key` of an entity, as the list of quotas has it.",
        json_schema_extra={"pattern": "^[A-Za-z0-9_-]+$"},
        openapi_examples={"alice": {"value": ClientQuotaEntity.of({"user": "alice"}).key}},
    ),
]


class EntityParameters(QueryParameters):
    """The query of ``GET /quotas/{entity_key}``."""

    max_age_ms: MaxAgeMs = 0
    owners: Flag = False
    """With the owners of its keys, as in `GET /quotas`; the `ETag` is then that of the owners, too,
    and fits no `If-Match`."""


class RemoveParameters(QueryParameters):
    """The query of ``DELETE /quotas/{entity_key}``."""

    reason: str | None = None
    """Why; stored in the audit log, at most 1,000 characters."""
    validate_only: Flag = False
    """Check everything, with the broker's own validate-only too."""
    wait: Literal["readable", "all_brokers", "none"] = "readable"
    """When to answer, as in `POST /quotas/alterations`."""
    wait_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS), READ_INTEGER] = DEFAULT_WAIT_MS
    """The longest wait, in milliseconds; then `readable` is false."""
    expires_in: ExpiresIn = None
    expires_at: ExpiresAt = None
    _end: datetime | None = PrivateAttr(None)
    _broken: tuple[Violation, ...] = PrivateAttr(())

    def model_post_init(self, _: Any) -> None:
        """Read the time once."""
        self._end, self._broken = end_asked_for(self.expires_in, self.expires_at)

    @property
    def asked(self) -> dict[str, Any]:
        """What is asked, by the names of an ``Alteration``."""
        asked = self.model_dump(exclude={"expires_in"})
        return {**asked, "wait": Wait(self.wait), "expires_at": self._end}

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Why the audit log cannot hold the reason, and what is wrong with the end."""
        broken = (*broken_reason(self.reason), *self._broken)
        return tuple(replace(each, pointer=each.pointer.removeprefix("/")) for each in broken)


@router.get(
    _PATH,
    summary="Describe one entity",
    responses={
        200: answer_of(QuotaOfEntity, "The entity's quotas.", "quota", headers=("ETag",)),
        304: {
            "description": "The caller's copy still says the same.",
            "headers": headers_of("ETag"),
        },
        **problems("NoSuchEntity"),
    },
    openapi_extra={"parameters": [reference("If-None-Match", "parameters")]},
)
async def describe_entity(
    request: Request,
    granted: MayDescribe,
    entity_key: EntityKeyPath,
    query: Annotated[EntityParameters, Depends(StrictQuery(EntityParameters))],
) -> Response:
    """Describe the quotas of one entity; 404 where it has none."""
    entity = _entity(entity_key)
    describe = services_of(request).describe
    listing = await describe.entity(granted.actor, entity, query.max_age_ms)
    if not listing.entries:
        raise NoSuchEntityError(f"{entity} has no values; look for it in GET /quotas.")
    values = listing.entries[0][1]
    held = _temporaries(request, entity, values)
    etag = _etag(request, listing.cluster_id, entity, values)
    more: dict[str, Any] = {MEMBER: held} if held else {}
    if query.owners:
        owned = owners_of(listing.entries, await _holdings(request, listing.cluster_id, entity))
        etag = etag_with(etag, owners_bytes(owned))
        more |= {OWNERS: owned[0]} if owned else {}
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if names_tag(list_field(request.headers, "if-none-match"), etag):
        return Response(None, HTTPStatus.NOT_MODIFIED, headers=headers)
    head = answer_head(listing.cluster_id, listing.as_of)
    return JsonResponse({**head, **quota_json(entity, values), **more}, headers=headers)


async def _holdings(request: Request, cluster_id: str, entity: ClientQuotaEntity) -> Holdings:
    nobody = ""
    return await services_of(request).plans.holdings(cluster_id, nobody, [entity])


def _temporaries(
    request: Request, entity: ClientQuotaEntity, values: Values
) -> dict[str, dict[str, Any]]:
    return temporaries_json(entity, values, services_of(request).temporary.image.values)


def _denied_change(request: Request, body: bytes) -> RequestedChange:
    """Return what a denied request asked for; a DELETE has no body."""
    if body:
        reason = validated(ReplaceRequest, parse_object(body)).reason
    else:
        reason = read_query(request.scope["query_string"], RemoveParameters).reason
    broken = any(broken_reason(reason))
    return RequestedChange(
        1, [_entity(request.path_params["entity_key"])], None if broken else reason
    )


may_alter_entity: Final = Permission(
    Operation.ALTER_CONFIGS, read_denied=partial(read_denied, _denied_change)
)
"""Lets a caller pass who may alter; a denied attempt is recorded with its entity."""

MayAlterEntity = Annotated[Granted, Depends(may_alter_entity)]

_CONDITIONAL: Final = {
    "parameters": [reference("If-Match", "parameters"), reference("If-None-Match", "parameters")]
}


@router.put(
    _PATH,
    summary="Replace the quotas of one entity",
    responses={
        200: altered("Replaced, or only checked.", "alteration-applied", headers=("New-ETag",)),
        **problems("NoSuchEntity"),
    },
    openapi_extra={**_CONDITIONAL, **request_examples("replace", "check-replacing")},
)
async def replace_entity(
    request: Request,
    granted: MayAlterEntity,
    entity_key: EntityKeyPath,
    body: Annotated[ReplaceRequest, Depends(JsonBody(ReplaceRequest))],
    key: Key,
) -> Response:
    """Make these all the values of the entity: keys that are not named are removed."""
    alteration, entity = alteration_of(request, granted, key, body), _entity(entity_key)
    alteration = await _with_precondition(request, alteration, entity)
    work = _replacing(request).replace(granted.actor, alteration, entity, body.values)
    tag = partial(_tag_of_applied, request)
    return await alteration_response(request, alteration, work, headers_of=tag)


def _tag_of_applied(request: Request, record: AlterationRecord) -> dict[str, str]:
    """Return the entity tag of what an alteration made of one entity, where that held."""
    (result,) = record.results.values()
    is_new = result.outcome is Outcome.APPLIED and not record.replayed
    if not (is_new and result.after):
        return {}
    cluster_id = record.alteration.cluster_id
    return {"ETag": _etag(request, cluster_id, result.entity, result.after)}


@router.delete(
    _PATH,
    summary="Remove the quotas of one entity",
    responses={
        200: altered("Removed, or only checked.", "alteration-applied"),
        **problems("NoSuchEntity"),
    },
    openapi_extra=_CONDITIONAL,
)
async def remove_entity(
    request: Request,
    granted: MayAlterEntity,
    entity_key: EntityKeyPath,
    query: Annotated[RemoveParameters, Depends(StrictQuery(RemoveParameters))],
) -> Response:
    """Remove all values of the entity; 404 where it has none."""
    key = key_of(request, query.model_dump())
    alteration, entity = alteration_of(request, granted, key, query), _entity(entity_key)
    alteration = await _with_precondition(request, alteration, entity)
    work = _replacing(request).remove(granted.actor, alteration, entity)
    return await alteration_response(request, alteration, work)


def _replacing(request: Request) -> ReplaceQuotas:
    services = services_of(request)
    return ReplaceQuotas(services.describe, services.alter)


def _entity(entity_key: str) -> ClientQuotaEntity:
    try:
        return ClientQuotaEntity.from_key(entity_key)
    except ValueError:
        detail = "The path has no entity_key; take one from GET /quotas."
        violation = Violation("entity_key", "no-such-entity", detail)
        raise NoSuchEntityError(detail, violations=[violation]) from None


def _etag(request: Request, cluster_id: str, entity: ClientQuotaEntity, values: Values) -> str:
    etag = quotas_etag(Format.JSON, cluster_id, [entry_text(entity, values)], "entity")
    held = _temporaries(request, entity, values)
    return etag_with(etag, json_bytes(held) if held else b"")


async def _with_precondition(
    request: Request, alteration: Alteration, entity: ClientQuotaEntity
) -> Alteration:
    match = list_field(request.headers, "if-match")
    none_match = list_field(request.headers, "if-none-match")
    if match is None and none_match is None:
        return alteration
    cluster_id = await services_of(request).cluster.cluster_id()

    def holds(values: Values) -> bool:
        etag = _etag(request, cluster_id, entity, values) if values else None
        return _is_met(etag, match, none_match)

    return replace(alteration, precondition=holds)


def _is_met(etag: str | None, match: str | None, none_match: str | None) -> bool:
    """Tell whether an entity with this tag, null where it has no values, is as wanted."""
    if etag is None:
        return match is None
    return (match is None or names_tag(match, etag, strong=True)) and not names_tag(
        none_match, etag
    )
