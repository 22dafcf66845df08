"""``POST /quotas/alterations``, the record of one alteration, and taking it back."""

from functools import partial

from fastapi import APIRouter, Request, Response

from app.http.admission import read_object
from app.http.alteration_documents import record_json
from app.http.altered import altered
from app.http.declared import requires
from app.http.idempotency import read_key, read_superseded
from app.http.json_text import JsonResponse
from app.http.openapi import ALTER, ALTERATION, REVERT
from app.http.permissions import Granted, any_caller, granted_to, may_alter
from app.http.plain_route import PlainRoute
from app.http.query import read_query
from app.http.route_parameters import NO_PARAMETERS
from app.http.schemas import read_alter_request, read_revert_request
from app.http.services import services_of
from app.http.strict_json import JsonObject
from app.service.alterations.alteration_command import AlterCommand
from app.service.audit_records import AlterationRecord
from app.service.off_loop import off_loop

router = APIRouter(tags=["alterations"], route_class=PlainRoute)

_ALTER_PATH = "/quotas/alterations"
_ALTERATION_PATH = "/quotas/alterations/{alteration_id}"
_REVERT_PATH = "/quotas/alterations/{alteration_id}/revert"


@router.post(_ALTER_PATH, **ALTER)
@requires(may_alter)
async def alter_quotas(request: Request) -> Response:
    """Set and remove quotas, or only check; one result for each entity, in request order."""
    granted = granted_to(request)
    read_query(request.scope["query_string"], NO_PARAMETERS)
    command = await read_object(request, partial(_alter_command, request, granted))
    return await altered(request, command, services_of(request).alter.alter(command))


def _alter_command(request: Request, granted: Granted, body: JsonObject) -> AlterCommand:
    read = read_alter_request(body)
    return AlterCommand(
        caller=granted.caller,
        evidence=granted.evidence,
        request_id=request.state.request_id,
        alterations=read.alterations,
        validate_only=read.validate_only,
        all_or_nothing=read.all_or_nothing,
        wait=read.wait,
        wait_ms=read.wait_ms,
        reason=read.reason,
        expected={
            ordinal: expected
            for ordinal, expected in enumerate(read.expected)
            if expected is not None
        },
        violations=read.violations,
        key=read_key(request.headers, _ALTER_PATH, body),
        supersedes=read_superseded(request.headers),
    )


@router.post(_REVERT_PATH, **REVERT)
@requires(may_alter)
async def revert_alteration(request: Request, alteration_id: str) -> Response:
    """Take an alteration back; 412 where the present values are not its ``after``."""
    granted = granted_to(request)
    read_query(request.scope["query_string"], NO_PARAMETERS)
    command = await read_object(request, partial(_revert_command, request, granted, alteration_id))
    revert = services_of(request).revert
    return await altered(request, command, revert.revert(command, alteration_id))


def _revert_command(
    request: Request, granted: Granted, alteration_id: str, body: JsonObject
) -> AlterCommand:
    read = read_revert_request(body)
    return AlterCommand(
        caller=granted.caller,
        evidence=granted.evidence,
        request_id=request.state.request_id,
        alterations=(),
        validate_only=read.validate_only,
        reason=read.reason,
        violations=read.violations,
        key=read_key(request.headers, f"{_REVERT_PATH} {alteration_id}", body),
        supersedes=read_superseded(request.headers),
    )


@router.get(_ALTERATION_PATH, **ALTERATION)
@requires(any_caller)
async def show_alteration(request: Request, alteration_id: str) -> Response:
    """Show what is known of one alteration, to its principal and to auditors."""
    caller = granted_to(request).caller
    read_query(request.scope["query_string"], NO_PARAMETERS)
    record = await services_of(request).audit.alteration(caller, alteration_id)
    return await off_loop(len(record.results), _record, record)


def _record(record: AlterationRecord) -> Response:
    return JsonResponse(record_json(record))
