"""``GET /quotas/temporary``, and another end for the values of one alteration."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from pydantic import ConfigDict, Field, TypeAdapter

from app.domain.entities import SortKey
from app.domain.errors import InvalidRequestError, UnreadableRequestError, Violation
from app.domain.expiry import TemporaryValue
from app.http.alterations.expiry import Expiring
from app.http.alterations.routes import AlterationIdPath
from app.http.guards import MayAlter, may_describe, services_of
from app.http.models import (
    AlterationId,
    Entity,
    EntityKey,
    JsonResponse,
    NextPageToken,
    ResponseModel,
    ReturnsTo,
    StoredValue,
    Time,
    entity_json,
    rfc3339,
    stored_json,
)
from app.http.query_params import (
    Filter,
    Flag,
    PageSize,
    PageToken,
    QueryParameters,
    StrictQuery,
    page_token,
    parse_filter,
    query_fingerprint,
    read_page_token,
)
from app.http.request_body import JsonBody
from app.http.responses import answers, problems, request_examples
from app.http.route import feature_router
from app.service.ports.alterations import Alteration
from app.service.ports.temporary import Asked
from app.service.runtime.tasks import off_loop

router = feature_router("alterations")

_BOUND: Final = {"filter", "strict", "has_key"}
_POSITION: Final = TypeAdapter(tuple[tuple[str, str, str], str])
"""Of a page: the position of its last row in the order."""


class TemporaryParameters(QueryParameters):
    """The query of ``GET /quotas/temporary``."""

    filter: Annotated[Filter, Field(examples=[["user^=team-a-"]])] = ()
    """A condition on the entity, as in `GET /quotas`; several are ANDed."""
    strict: Flag = False
    """Only entities with exactly the filter's types."""
    has_key: Annotated[tuple[str, ...], Field(examples=[["producer_byte_rate"]])] = ()
    """Only these quota keys."""
    page_size: PageSize = 1000
    page_token: PageToken = None


class TemporaryRow(ResponseModel):
    """A value that ends by itself."""

    alteration_id: AlterationId
    entity: Entity
    entity_key: EntityKey
    key: str
    value: Annotated[StoredValue | None, Field(description="Null: the key is removed for a time.")]
    returns_to: ReturnsTo
    expires_at: Time
    principal: str
    """Who asked for it, as Kafka prints it."""
    reason: str | None
    """The caller's own words."""


class TemporaryPage(ResponseModel):
    """Values that end by themselves, in the order of `GET /quotas`, then by key."""

    rows: list[TemporaryRow]
    next_page_token: NextPageToken


class ExpiryRequest(Expiring):
    """The body of ``PUT /quotas/alterations/{alteration_id}/expiry``: one of the two."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["expires_at"]},
                {"required": ["expires_in"], "properties": {"expires_in": {"type": "string"}}},
            ]
        }
    )

    def broken_rules(self) -> Iterator[Violation]:
        """Refuse a body that says nothing, then as any."""
        if "expires_at" not in self.model_fields_set and self.expires_in is None:
            detail = "Say expires_in, or expires_at: a time, or null for good."
            violation = Violation("/expires_at", "missing-field", detail)
            raise UnreadableRequestError(detail, violations=[violation])
        yield from super().broken_rules()


@router.get(
    "/quotas/temporary",
    summary="List values that end by themselves",
    dependencies=[Depends(may_describe)],
    responses=answers(TemporaryPage, "One page.", "temporary"),
)
async def list_temporary_values(
    request: Request,
    query: Annotated[TemporaryParameters, Depends(StrictQuery(TemporaryParameters))],
) -> Response:
    """List the values that are for a time, when each ends, and what it returns to."""
    quota_filter = parse_filter(query.filter, strict=query.strict)
    fingerprint = query_fingerprint("temporary", query.model_dump(include=_BOUND))
    after = read_page_token(query.page_token, fingerprint, _POSITION)
    values = await services_of(request).temporary.matching(quota_filter, query.has_key)
    return await off_loop(len(values), _page, values, after, query.page_size, fingerprint)


Position = tuple[SortKey, str]


def row_json(value: TemporaryValue) -> dict[str, Any]:
    """Return a temporary value, with the members of ``TemporaryRow``."""
    return {
        "alteration_id": value.alteration_id,
        "entity": entity_json(value.entity),
        "entity_key": value.entity.key,
        "key": value.key,
        "value": stored_json(value.value),
        "returns_to": stored_json(value.returns_to),
        "expires_at": rfc3339(value.expires_at),
        "principal": value.principal,
        "reason": value.reason,
    }


def _position(value: TemporaryValue) -> Position:
    return value.entity.sort_key(), value.key


def _page(
    values: Sequence[TemporaryValue], after: Position | None, size: int, fingerprint: str
) -> Response:
    left = (value for value in values if after is None or _position(value) > after)
    found = list(islice(left, size + 1))
    rows = found[:size]
    last = _position(rows[-1]) if len(found) > size else None
    return JsonResponse(
        {"rows": [row_json(row) for row in rows], "next_page_token": page_token(last, fingerprint)}
    )


@router.put(
    "/quotas/alterations/{alteration_id}/expiry",
    summary="Let temporary values end at another time, or never",
    responses={
        **answers(TemporaryPage, "The values, with their new time.", "temporary"),
        **problems("NotFound"),
    },
    openapi_extra=request_examples("expire-later", "keep-for-good"),
)
async def change_expiry(
    request: Request,
    granted: MayAlter,
    alteration_id: AlterationIdPath,
    body: Annotated[ExpiryRequest, Depends(JsonBody(ExpiryRequest))],
) -> Response:
    """Set another end for what is left of an alteration for a time; null: it is for good."""
    if body.violations:
        raise InvalidRequestError(body.violations[0].detail, violations=body.violations)
    asked = Asked(granted.actor.caller, request.state.request_id)
    services, ends = services_of(request), body.asked["expires_at"]
    changes = await services.temporary.set_by(alteration_id)
    judged = Alteration(*asked, changes, evidence=granted.evidence, expires_at=ends)
    await services.policy.admitted(judged)
    values = await services.temporary.change_expiry(alteration_id, ends, asked)
    return JsonResponse({"rows": [row_json(value) for value in values], "next_page_token": None})
