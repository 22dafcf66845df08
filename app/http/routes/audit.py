"""``GET /audit``: who changed what, when, and what became of it."""

from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from fastapi import APIRouter, Request, Response

from app.domain.errors import BadPageTokenError, ClusterAuthorizationError
from app.http.audit_documents import audit_row_json
from app.http.declared import requires
from app.http.filter_query import parse_filter
from app.http.json_text import JsonResponse
from app.http.openapi import AUDIT
from app.http.page_tokens import page_token, query_fingerprint, read_page_token
from app.http.permissions import granted_to, may_read_audit
from app.http.plain_route import PlainRoute
from app.http.query import QueryValues, read_query
from app.http.route_parameters import AUDIT_PARAMETERS
from app.http.services import services_of
from app.service.audit_records import AuditPage, AuditQuery
from app.service.permissions.denials import DeniedAttempt

router = APIRouter(tags=["audit"], route_class=PlainRoute)

_BOUND = ("entity", "actor", "since", "until", "outcome", "action")
_ORDINALS: Final = range(2**31)
"""What the column holds."""


@router.get("/audit", **AUDIT)
@requires(may_read_audit)
async def show_audit(request: Request) -> Response:
    """Show audit rows, newest first: all for auditors, one's own with describe permission."""
    granted = granted_to(request)
    services = services_of(request)
    values = read_query(request.scope["query_string"], AUDIT_PARAMETERS)
    conditions = {name: values[name] for name in _BOUND}
    fingerprint = query_fingerprint("audit", {**conditions, "as": granted.caller.principal})
    query = _query(values, _position(values["page_token"], fingerprint))
    try:
        page = await services.audit.rows(granted.caller, query)
    except ClusterAuthorizationError as refusal:
        attempt = DeniedAttempt(request.state.request_id, "GET /audit", granted.evidence)
        await services.denials.record(granted.caller, refusal, attempt)
        raise
    rows = [audit_row_json(row) for row in page.rows]
    token = _token(page, fingerprint)
    return JsonResponse({"rows": rows, "next_page_token": token})


def _query(values: QueryValues, after: tuple[datetime, str, int] | None) -> AuditQuery:
    entity = parse_filter(values["entity"], parameter="entity") if values["entity"] else None
    return AuditQuery(
        entity=entity,
        actor=values["actor"],
        since=values["since"],
        until=values["until"],
        outcome=values["outcome"],
        action=values["action"],
        limit=values["page_size"],
        after=after,
    )


def _position(token: str | None, fingerprint: str) -> tuple[datetime, str, int] | None:
    if token is None:
        return None
    try:
        at, alteration_id, ordinal = read_page_token(token, fingerprint)
        return datetime.fromisoformat(at).astimezone(UTC), str(UUID(alteration_id)), _int4(ordinal)
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise BadPageTokenError from None


def _int4(value: Any) -> int:
    if type(value) is not int or value not in _ORDINALS:
        raise BadPageTokenError
    return value


def _token(page: AuditPage, fingerprint: str) -> str | None:
    if page.next_after is None:
        return None
    at, alteration_id, ordinal = page.next_after
    return page_token([at.isoformat(), alteration_id, ordinal], fingerprint)
