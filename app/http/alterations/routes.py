"""``POST /quotas/alterations``, the record of one alteration, and reverting it."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from pydantic import MISSING

from app.domain.alterations import Outcome, Overall, overall_outcome
from app.domain.authorization import Operation
from app.domain.errors import EntityBusyError, QuotaError, Violation
from app.http.alterations.impact import impact_of_values
from app.http.alterations.models import AlterationRecord as RecordDocument
from app.http.alterations.models import AlterationReport as ReportDocument
from app.http.alterations.models import AlterationRequest, RevertRequest
from app.http.headers import REPLAYED_HEADER, read_superseded
from app.http.metrics import HttpMetrics
from app.http.models import UUID7_PATTERN, JsonResponse, alteration_results
from app.http.request_body import parse_object
from app.http.responses import answer_of, answers, problems, request_examples
from app.http.route import (
    AnyCaller,
    Granted,
    JsonBody,
    Key,
    MayAlter,
    Permission,
    feature_router,
    path_id,
    services_of,
)
from app.http.validation import validated
from app.service.alterations.command import AlterationReport, AlterCommand, IdempotencyKey
from app.service.auth.denials import MAX_FIRST_ENTITIES, RequestedChange
from app.service.ports.audit_log import AlterationRecord
from app.service.runtime.tasks import off_loop

router = feature_router("alterations")

AlterationIdPath = Annotated[str, path_id("alteration_id", "an answer", UUID7_PATTERN)]


def altered(description: str, *examples: str) -> dict[str, Any]:
    """Describe the answer of a route that alters."""
    headers = ("Location", REPLAYED_HEADER)
    return answer_of(ReportDocument, description, *examples, headers=headers)


def command_of(
    request: Request, granted: Granted, key: IdempotencyKey | None, violations: Sequence[Violation]
) -> AlterCommand:
    """Return the command of a request, without what its body or query names."""
    return AlterCommand(
        caller=granted.caller,
        evidence=granted.evidence,
        confirm=granted.confirm,
        request_id=request.state.request_id,
        alterations=(),
        violations=tuple(violations),
        key=key,
        supersedes=read_superseded(request.headers),
    )


def denied_change(_: Request, body: bytes) -> RequestedChange:
    """Return what the body of a denied alteration asked for."""
    asked = validated(AlterationRequest, parse_object(body))
    reason = None if asked.violations else asked.reason
    first = [alteration.entity for alteration in asked.changes[:MAX_FIRST_ENTITIES]]
    return RequestedChange(len(asked.changes), first, reason)


may_alter_these: Final = Permission(Operation.ALTER_CONFIGS, read_denied=denied_change)
"""Lets a caller pass who may alter; a denied attempt is recorded with what it asked for."""


@router.post(
    "/quotas/alterations",
    summary="Alter quotas",
    responses={
        200: altered("All applied, or all validated.", "alteration-applied"),
        207: altered("Some refused, the others done.", "alteration-partial"),
    },
    openapi_extra=request_examples("set-and-remove", "check-only", "several-kinds"),
)
async def alter_quotas(
    request: Request,
    granted: Annotated[Granted, Depends(may_alter_these)],
    body: Annotated[AlterationRequest, Depends(JsonBody(AlterationRequest))],
    key: Key,
) -> Response:
    """Set and remove quotas, or only check; one result for each entity, in request order."""
    command = replace(
        command_of(request, granted, key, body.violations),
        alterations=body.changes,
        reason=body.reason,
        validate_only=body.validate_only,
        all_or_nothing=body.all_or_nothing,
        wait=body.until,
        wait_ms=body.longest_ms,
        expected=body.expected,
    )
    altering = services_of(request).alter.alter(command)
    return await alteration_response(request, command, altering, with_impact=body.impact)


@router.post(
    "/quotas/alterations/{alteration_id}/revert",
    summary="Take one alteration back",
    responses={
        200: altered("Taken back, or only checked.", "alteration-reverted"),
        207: altered("Some refused, the others taken back.", "alteration-partial"),
        **problems("NotFound", "RevertBusy", "CannotRevert"),
    },
    openapi_extra=request_examples("take-back", "check-taking-back"),
)
async def revert_alteration(
    request: Request,
    granted: MayAlter,
    alteration_id: AlterationIdPath,
    body: Annotated[RevertRequest, Depends(JsonBody(RevertRequest))],
    key: Key,
) -> Response:
    """Take an alteration back; 412 where the present values are not its ``after``."""
    command = replace(
        command_of(request, granted, key, body.violations),
        reason=body.reason,
        validate_only=body.validate_only,
    )
    reverting = services_of(request).revert.revert(command, alteration_id)
    return await alteration_response(request, command, reverting)


@router.get(
    "/quotas/alterations/{alteration_id}",
    summary="Show one alteration",
    responses=answers(
        RecordDocument,
        "Its record.",
        "alteration-record",
        "alteration-recovered",
        errors=("NotFound",),
    ),
)
async def show_alteration(
    request: Request, granted: AnyCaller, alteration_id: AlterationIdPath
) -> Response:
    """Show what is recorded of one alteration, to its principal and to auditors."""
    record = await services_of(request).audit.alteration(granted.caller, alteration_id)
    return await off_loop(len(record.results), lambda: JsonResponse(record_document(record)))


async def alteration_response(
    request: Request,
    command: AlterCommand,
    altering: Awaitable[AlterationReport],
    *,
    with_impact: bool = False,
) -> Response:
    """Wait for an alteration, count how it ended, and answer."""
    metrics = services_of(request).metrics
    try:
        report = await altering
    except QuotaError as error:
        _record_metrics(metrics, command, error)
        raise
    _record_metrics(metrics, command, report)
    impact = await _impact(request, command, report) if with_impact else MISSING
    return await off_loop(len(report.results), _response, report, impact)


async def _impact(request: Request, command: AlterCommand, report: AlterationReport) -> Any:
    pairs = zip(command.alterations, report.results, strict=True)
    valid = [pair for pair in pairs if pair[1].outcome is Outcome.VALIDATED]
    values = {result.entity: result.after or {} for _, result in valid}
    return await impact_of_values(request, [alteration for alteration, _ in valid], values)


def _response(report: AlterationReport, impact: Any) -> Response:
    status = HTTPStatus.MULTI_STATUS if report.overall is Overall.PARTIAL else HTTPStatus.OK
    headers = {"Location": f"/quotas/alterations/{report.alteration_id}"}
    if report.replayed:
        headers[REPLAYED_HEADER] = "true"
    return JsonResponse(alteration_document(report, impact), status, headers=headers)


_KEY_REFUSED: Final[Mapping[str, str]] = {
    "idempotency-key-running": "conflict",
    "idempotency-key-reused": "mismatch",
}


def _record_metrics(
    metrics: HttpMetrics, command: AlterCommand, ending: AlterationReport | QuotaError
) -> None:
    """Count the outcomes of a request that is not a replay, and what its key did."""
    if not ending.replayed:
        metrics.count_alterations(result.outcome for result in ending.results or ())
    if command.key is None or command.validate_only:
        return
    result = _key_result(ending)
    if result is not None:
        metrics.idempotency.labels(result).inc()


def _key_result(ending: AlterationReport | QuotaError) -> str | None:
    """Return what the key did; null where nothing was recorded, so that the key is still free."""
    if ending.replayed:
        return "replay"
    if isinstance(ending, AlterationReport):
        return "new"
    if ending.code in _KEY_REFUSED:
        return _KEY_REFUSED[ending.code]
    recorded = ending.alteration_id is not None and not isinstance(ending, EntityBusyError)
    return "new" if recorded else None


def alteration_document(report: AlterationReport, impact: Any = MISSING) -> ReportDocument:
    """Return the answer to an alteration."""
    return ReportDocument(
        alteration_id=report.alteration_id,
        cluster_id=report.cluster_id,
        validate_only=report.validate_only,
        outcome=report.overall,
        readable=report.readable,
        results=alteration_results(report.results),
        impact=impact,
    )


def record_document(record: AlterationRecord) -> RecordDocument:
    """Return what the log knows of an alteration."""
    request = record.request
    results = [record.results[ordinal] for ordinal in sorted(record.results)]
    outcomes = [result.outcome for result in results]
    denied = not outcomes and request.action == "denied"
    return RecordDocument.model_validate(
        {
            "alteration_id": request.alteration_id,
            "cluster_id": request.cluster_id,
            "validate_only": request.action == "validate",
            "outcome": Overall.REFUSED if denied else overall_outcome(outcomes),
            "readable": None,
            "results": alteration_results(results),
            "principal": request.caller.principal,
            "client_address": request.caller.host,
            "action": request.action,
            "reason": request.reason,
            "request_id": request.request_id,
            "history": [
                {"at": at, "event": event, "detail": detail} for at, event, detail in record.history
            ],
        }
    )
