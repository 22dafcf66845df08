"""``POST /quotas/alterations``, the record of one alteration, and reverting it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, Protocol

from fastapi import Depends, Request, Response

from app.domain.alterations import AlterationResult, Outcome, Overall
from app.domain.authorization import Operation
from app.domain.errors import EntityBusyError, QuotaError, Violation
from app.http.alterations.impact import FoundImpact, impact_json, impact_of_values
from app.http.alterations.models import AlterationRecord as RecordDocument
from app.http.alterations.models import AlterationRequest, RevertRequest
from app.http.guards import AnyCaller, Granted, MayAlter, Permission, services_of
from app.http.headers import REPLAYED_HEADER
from app.http.models import UUID7_PATTERN, JsonResponse, result_json, rfc3339
from app.http.request_body import JsonBody, Key, read_denied, read_superseded
from app.http.responses import answer_of, answers, problems, request_examples
from app.http.route import feature_router, path_id
from app.http.validation import parse_object, validated
from app.metrics import ClusterMetrics
from app.service.auth.denials import MAX_FIRST_ENTITIES, RequestedChange
from app.service.ports.alterations import Alteration, AlterationRecord, IdempotencyKey
from app.service.runtime.tasks import off_loop

router = feature_router("alterations")

AlterationIdPath = Annotated[str, path_id("alteration_id", "an answer", UUID7_PATTERN)]


def altered(description: str, *examples: str, headers: tuple[str, ...] = ()) -> dict[str, Any]:
    """Describe the answer of a route that alters; it may have further headers."""
    names = ("Location", REPLAYED_HEADER, *headers)
    return answer_of(RecordDocument, description, *examples, headers=names)


class Asking(Protocol):
    """A body, or a query, that asks for an alteration."""

    @property
    def asked(self) -> dict[str, Any]:
        """What is asked, by the names of an ``Alteration``."""

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Rules that it breaks."""


def alteration_of(
    request: Request, granted: Granted, key: IdempotencyKey | None, asking: Asking, **more: Any
) -> Alteration:
    """Return the alteration that a request asks for, and who asks."""
    return Alteration(
        granted.actor.caller,
        request.state.request_id,
        evidence=granted.evidence,
        confirm=granted.confirm,
        key=key,
        supersedes=read_superseded(request.headers),
        violations=asking.violations,
        **asking.asked,
        **more,
    )


def denied_change(_: Request, body: bytes) -> RequestedChange:
    """Return what the body of a denied alteration asked for."""
    asked = validated(AlterationRequest, parse_object(body))
    reason = None if asked.violations else asked.reason
    first = [alteration.entity for alteration in asked.changes[:MAX_FIRST_ENTITIES]]
    return RequestedChange(len(asked.changes), first, reason)


may_alter_these: Final = Permission(
    Operation.ALTER_CONFIGS, read_denied=partial(read_denied, denied_change)
)
"""Lets a caller pass who may alter; a denied attempt is recorded with what it asked for."""


@router.post(
    "/quotas/alterations",
    summary="Alter quotas",
    responses={
        200: altered("All applied, or all validated.", "alteration-applied"),
        207: altered("Some refused, the others done.", "alteration-partial"),
    },
    openapi_extra=request_examples("set-and-remove", "check-only", "several-kinds", "for-a-night"),
)
async def alter_quotas(
    request: Request,
    granted: Annotated[Granted, Depends(may_alter_these)],
    body: Annotated[AlterationRequest, Depends(JsonBody(AlterationRequest))],
    key: Key,
) -> Response:
    """Set and remove quotas, or only check; one result for each entity, in request order."""
    alteration = alteration_of(request, granted, key, body)
    altering = services_of(request).alter.alter(granted.actor, alteration)
    return await alteration_response(request, alteration, altering, with_impact=body.impact)


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
    alteration = alteration_of(request, granted, key, body)
    reverting = services_of(request).revert.revert(granted.actor, alteration, alteration_id)
    return await alteration_response(request, alteration, reverting)


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
    record = await services_of(request).audit.alteration(granted.actor.caller, alteration_id)
    return await off_loop(len(record.results), lambda: JsonResponse(logged_document(record)))


async def alteration_response(
    request: Request,
    alteration: Alteration,
    altering: Awaitable[AlterationRecord],
    *,
    with_impact: bool = False,
    headers_of: Callable[[AlterationRecord], Mapping[str, str]] | None = None,
) -> Response:
    """Wait for an alteration, count how it ended, and answer, with further headers."""
    metrics = services_of(request).metrics
    try:
        record = await altering
    except QuotaError as error:
        _record_metrics(metrics, alteration, error, error.results or ())
        raise
    _record_metrics(metrics, alteration, record, record.results.values())
    impact = await _impact(request, alteration, record) if with_impact else None
    response = await off_loop(len(record.results), _response, request, record, impact)
    response.headers.update(headers_of(record) if headers_of is not None else {})
    return response


async def _impact(
    request: Request, alteration: Alteration, record: AlterationRecord
) -> FoundImpact:
    pairs = zip(alteration.changes, record.results.values(), strict=True)
    valid = [pair for pair in pairs if pair[1].outcome is Outcome.VALIDATED]
    values = {result.entity: result.after or {} for _, result in valid}
    return await impact_of_values(request, [change for change, _ in valid], values)


def _response(request: Request, record: AlterationRecord, impact: FoundImpact | None) -> Response:
    status = HTTPStatus.MULTI_STATUS if record.overall is Overall.PARTIAL else HTTPStatus.OK
    below = request.scope["root_path"]
    headers = {"Location": f"{below}/quotas/alterations/{record.alteration.alteration_id}"}
    if record.replayed:
        headers[REPLAYED_HEADER] = "true"
    document = alteration_document(record)
    if impact is not None:
        document["impact"] = impact_json(impact.answer())
        for written, result in zip(document["results"], record.results.values(), strict=True):
            if result.outcome is Outcome.VALIDATED:
                written["impact"] = impact_json(impact.answer(result.entity))
    return JsonResponse(document, status, headers=headers)


_KEY_REFUSED: Final[Mapping[str, str]] = {
    "idempotency-key-running": "conflict",
    "idempotency-key-reused": "mismatch",
}


def _record_metrics(
    metrics: ClusterMetrics,
    alteration: Alteration,
    ending: AlterationRecord | QuotaError,
    results: Iterable[AlterationResult],
) -> None:
    """Count the outcomes of a request that is not a replay, and what its key did."""
    if not ending.replayed:
        metrics.count_alterations(result.outcome for result in results)
    if alteration.key is None or alteration.validate_only:
        return
    result = _key_result(ending)
    if result is not None:
        metrics.idempotency.labels(result).inc()


def _key_result(ending: AlterationRecord | QuotaError) -> str | None:
    """Return what the key did; null where nothing was recorded, so that the key is still free."""
    if ending.replayed:
        return "replay"
    if isinstance(ending, AlterationRecord):
        return "new"
    if ending.code in _KEY_REFUSED:
        return _KEY_REFUSED[ending.code]
    recorded = ending.alteration_id is not None and not isinstance(ending, EntityBusyError)
    return "new" if recorded else None


def alteration_document(record: AlterationRecord) -> dict[str, Any]:
    """Return the answer to an alteration."""
    alteration = record.alteration
    return {
        "alteration_id": alteration.alteration_id,
        "cluster_id": alteration.cluster_id,
        "validate_only": alteration.validate_only,
        "outcome": record.overall.value,
        "readable": record.readable,
        "results": [result_json(result) for result in record.results.values()],
        **_expiry_document(alteration),
    }


def _expiry_document(alteration: Alteration) -> dict[str, Any]:
    document = {}
    if alteration.expires_at is not None:
        document["expires_at"] = rfc3339(alteration.expires_at)
    if alteration.expires is not None:
        document["expires"] = alteration.expires
    return document


def logged_document(record: AlterationRecord) -> dict[str, Any]:
    """Return what the log has of an alteration."""
    alteration = record.alteration
    return {
        **alteration_document(record),
        "principal": alteration.caller.principal,
        "client_address": alteration.caller.host,
        "action": alteration.action,
        "reason": alteration.reason,
        "request_id": alteration.request_id,
        "history": [
            {"at": rfc3339(at), "event": event, "detail": detail}
            for at, event, detail in record.history
        ],
    }
