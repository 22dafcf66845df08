"""``GET /audit``: who changed what, when, and what became of it."""

from datetime import UTC, datetime
from typing import Annotated, Final
from uuid import UUID

from fastapi import Depends, Request, Response
from pydantic import MISSING, AfterValidator, AwareDatetime, Field, Strict, TypeAdapter

from app.domain.alterations import Outcome
from app.domain.errors import ClusterAuthorizationError
from app.http.guards import MayReadAudit, services_of
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
)
from app.http.query_params import (
    Filter,
    PageSize,
    PageToken,
    QueryParameters,
    StrictQuery,
    TimeParameter,
    page_token,
    parse_filter,
    query_fingerprint,
    read_page_token,
)
from app.http.responses import answers
from app.http.route import feature_router
from app.service.auth.denials import DeniedAttempt
from app.service.ports.audit_log import AuditPage as RowPage
from app.service.ports.audit_log import AuditQuery
from app.service.runtime.tasks import off_loop

router = feature_router("audit")

_BOUND: Final = ("entity", "actor", "since", "until", "outcome", "action")
_YEARS: Final = Field(ge=datetime(1, 1, 2, tzinfo=UTC), lt=datetime(9999, 12, 30, tzinfo=UTC))
"""Times that are of the years 1 to 9999 in every zone."""

_At = Annotated[AwareDatetime, _YEARS]
_Id = Annotated[str, AfterValidator(lambda text: str(UUID(text)))]
_Ordinal = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
_POSITION: Final = TypeAdapter(tuple[_At, _Id, _Ordinal])


class AuditParameters(QueryParameters):
    """The query."""

    entity: Annotated[Filter, Field(examples=[["user=alice", "client-id:default"]])] = ()
    """A condition on the entity, in the grammar of `filter` of `GET /quotas`."""
    actor: Annotated[str | None, Field(examples=["User:ci"])] = None
    """The principal who asked, as Kafka prints it. Another one than oneself needs the `audit`
    permission."""
    since: Annotated[TimeParameter | None, Field(examples=["2026-11-21T00:00:00Z"])] = None
    """The earliest time, included. RFC 3339; a plus sign is written `%2B`."""
    until: Annotated[TimeParameter | None, Field(examples=["2026-11-22T00:00:00Z"])] = None
    """Upper bound, exclusive. RFC 3339; a plus sign is written `%2B`."""
    outcome: Annotated[Outcome, Strict(strict=False)] | None = None
    """What became of the entity's alteration."""
    action: AuditAction | None = None
    """What was asked for."""
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
    services = services_of(request)
    conditions = query.model_dump(include=set(_BOUND))
    fingerprint = query_fingerprint("audit", {**conditions, "as": granted.actor.caller.principal})
    entity = parse_filter(query.entity) if query.entity else None
    after = read_page_token(query.page_token, fingerprint, _POSITION)
    asked = AuditQuery(**{**conditions, "entity": entity}, limit=query.page_size, after=after)
    try:
        page = await services.audit.rows(granted.actor.caller, asked)
    except ClusterAuthorizationError as refusal:
        attempt = DeniedAttempt(request.state.request_id, "GET /audit", granted.evidence)
        await services.denials.record(granted.actor.caller, refusal, attempt)
        raise
    return await off_loop(len(page.rows), _response, page, page_token(page.next_after, fingerprint))


def _response(page: RowPage, token: str | None) -> Response:
    rows = [AuditRow.model_validate(row) for row in page.rows]
    content = AuditPage(rows=rows, next_page_token=token, restricted_to=page.restricted_to)
    return JsonResponse(content)
