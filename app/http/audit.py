"""``GET /audit``: who changed what, when, and what became of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Depends, Request, Response
from pydantic import MISSING, AfterValidator, AwareDatetime, Field, Strict, TypeAdapter

from app.domain.alterations import Outcome
from app.domain.errors import ClusterAuthorizationError
from app.http.guards import Granted, MayReadAudit, services_of
from app.http.middleware import action_of
from app.http.models import (
    UNSET_IS_MISSING,
    AlterationId,
    AuditAction,
    ClusterId,
    Entity,
    JsonResponse,
    NextPageToken,
    Op,
    Refusal,
    RequestId,
    ResponseModel,
    Time,
    Values,
    entity_json,
    json_bytes,
    plain_json,
    rfc3339,
    values_json,
)
from app.http.query_params import (
    Filter,
    PageSize,
    PageToken,
    PastTime,
    QueryParameters,
    StrictQuery,
    page_token,
    parse_filter,
    past_time,
    query_fingerprint,
    read_page_token,
)
from app.http.responses import answers
from app.http.route import feature_router
from app.service.auth.denials import DeniedAttempt
from app.service.ports.audit_log import AuditPage as RowPage
from app.service.ports.audit_log import AuditQuery
from app.service.ports.audit_log import AuditRow as Row
from app.service.runtime.tasks import off_loop

router = feature_router("audit")

_BOUND: Final = ("entity", "actor", "since", "until", "outcome", "action")
_YEARS: Final = Field(ge=datetime(1, 1, 2, tzinfo=UTC), lt=datetime(9999, 12, 30, tzinfo=UTC))
"""Times that are of the years 1 to 9999 in every zone."""

_At = Annotated[AwareDatetime, _YEARS]
_Id = Annotated[str, AfterValidator(lambda text: str(UUID(text)))]
_Ordinal = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
_POSITION: Final = TypeAdapter(tuple[_At, _Id, _Ordinal])


class AuditConditions(QueryParameters):
    """Which rows."""

    entity: Annotated[Filter, Field(examples=[["user=alice", "client-id:default"]])] = ()
    """A condition on the entity, in the grammar of `filter` of `GET /quotas`."""
    actor: Annotated[str | None, Field(examples=["User:ci"])] = None
    """The principal who asked, as Kafka prints it. Another one than oneself needs the `audit`
    permission."""
    since: Annotated[PastTime | None, Field(examples=[["2026-11-21T00:00:00Z", "2h"]])] = None
    """The earliest time, included. RFC 3339; a plus sign is written `%2B`. Or how long ago: `90s`,
    `30m`, `2h`, `7d`."""
    until: Annotated[PastTime | None, Field(examples=[["2026-11-22T00:00:00Z", "1h"]])] = None
    """Upper bound, exclusive. RFC 3339; a plus sign is written `%2B`. Or how long ago."""
    outcome: Annotated[Outcome, Strict(strict=False)] | None = None
    """What became of the entity's alteration."""
    action: AuditAction | None = None
    """What was asked for."""

    def asked(self) -> AuditQuery:
        """Return the conditions as the log takes them."""
        conditions = self.model_dump(include=set(_BOUND))
        entity = parse_filter(self.entity) if self.entity else None
        times = {"since": past_time(self.since), "until": past_time(self.until)}
        return AuditQuery(**{**conditions, **times, "entity": entity})


class AuditParameters(AuditConditions):
    """The query."""

    page_size: PageSize = 100
    page_token: PageToken = None


class AppliedPlan(ResponseModel):
    """The plan that was applied; only where one was."""

    plan_id: AlterationId
    owner: str
    """In whose name it was applied."""
    force: bool
    taken_over: dict[str, str]
    """The owners from which keys were taken over by force, by key."""


class DeniedChange(ResponseModel):
    """What was refused; only in rows of denied attempts."""

    entities: Annotated[int, Field(ge=0)] | None
    """How many were asked for; null where the body could not be read, or was over 16 KiB."""
    first: list[Entity] | None
    """The first of them, at most 20."""
    attempts: Annotated[int, Field(ge=1)]
    """How many the row stands for."""


class AuditRow(ResponseModel):
    """One entity of one recorded request."""

    cluster_id: ClusterId
    alteration_id: AlterationId
    at: Time
    principal: str
    """Who asked, as Kafka prints it."""
    authentication: str
    """The method; no secret."""
    client_address: str
    """The address of the caller."""
    action: AuditAction
    entity: Entity | None
    """Null for denied attempts."""
    ops: list[Op] | None
    """Null for denied attempts."""
    before: Values
    after: Values
    outcome: Outcome
    reason: str | None
    """The caller's own words."""
    request_id: RequestId
    error: Refusal | None
    plan: Annotated[AppliedPlan | MISSING, UNSET_IS_MISSING] = MISSING
    denied: Annotated[DeniedChange | MISSING, UNSET_IS_MISSING] = MISSING
    expires_at: Annotated[Time | MISSING, UNSET_IS_MISSING] = MISSING
    """When what it sets was to end; only where it was for a time."""
    expires: Annotated[AlterationId | MISSING, UNSET_IS_MISSING] = MISSING
    """The alteration whose temporary values it ended; only of action `expire`."""


class AuditPage(ResponseModel):
    """Rows of the audit log."""

    rows: list[AuditRow]
    """Newest first."""
    next_page_token: NextPageToken
    restricted_to: str | None
    """The principal whose rows alone are listed, because the caller lacks the `audit` permission;
    null: everybody's."""


@router.get(
    "/audit",
    summary="Show the audit log",
    responses=answers(AuditPage, "One page, newest first.", "audit"),
)
async def show_audit(
    request: Request,
    granted: MayReadAudit,
    query: Annotated[AuditParameters, Depends(StrictQuery(AuditParameters))],
) -> Response:
    """Show audit rows, newest first: all for auditors, one's own with describe permission."""
    conditions = query.model_dump(include=set(_BOUND))
    fingerprint = query_fingerprint("audit", {**conditions, "as": granted.actor.caller.principal})
    after = read_page_token(query.page_token, fingerprint, _POSITION)
    asked = replace(query.asked(), limit=query.page_size, after=after)
    audit = services_of(request).audit
    async with recording_denial(request, granted):
        page = await audit.rows(granted.actor.caller, asked)
    return await off_loop(len(page.rows), _response, page, page_token(page.next_after, fingerprint))


@asynccontextmanager
async def recording_denial(request: Request, granted: Granted) -> AsyncIterator[None]:
    """Record the attempt in the log where the caller may not do what is done within."""
    try:
        yield
    except ClusterAuthorizationError as refusal:
        attempt = DeniedAttempt(request.state.request_id, action_of(request), granted.evidence)
        await services_of(request).denials.record(granted.actor.caller, refusal, attempt)
        raise


def _response(page: RowPage, token: str | None) -> Response:
    rows = list(map(row_document, page.rows))
    return JsonResponse(
        {"rows": rows, "next_page_token": token, "restricted_to": page.restricted_to}
    )


def row_document(row: Row) -> dict[str, Any]:
    """Return a row with the members of ``AuditRow``, whose validation takes six times as long."""
    error = row.error
    document = {
        "cluster_id": row.cluster_id,
        "alteration_id": row.alteration_id,
        "at": rfc3339(row.at),
        "principal": row.principal,
        "authentication": row.authentication,
        "client_address": row.client_address,
        "action": row.action,
        "entity": None if row.entity is None else entity_json(row.entity),
        "ops": plain_json(row.ops),
        "before": None if row.before is None else values_json(row.before),
        "after": None if row.after is None else values_json(row.after),
        "outcome": row.outcome,
        "reason": row.reason,
        "request_id": row.request_id,
        "error": error and {"kafka_error": error.kafka_error, "message": error.message},
    }
    optional = {
        "plan": row.plan,
        "denied": row.denied,
        "expires_at": None if row.expires_at is None else rfc3339(row.expires_at),
        "expires": row.expires,
    }
    return document | {name: member for name, member in optional.items() if member is not None}


def row_bytes(row: Row) -> bytes:
    """Return a row in JSON."""
    return json_bytes(row_document(row))
