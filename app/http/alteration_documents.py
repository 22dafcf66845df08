"""Alterations as JSON documents."""

from typing import Any

from app.domain.alterations import Overall, overall_outcome
from app.http.answers import alteration_result_json
from app.http.times import rfc3339
from app.service.alterations.alteration_command import AlterationReport
from app.service.audit_records import AlterationRecord


def alteration_json(report: AlterationReport) -> dict[str, Any]:
    """Return the answer to an alteration."""
    return {
        "alteration_id": report.alteration_id,
        "cluster_id": report.cluster_id,
        "validate_only": report.validate_only,
        "outcome": report.overall.value,
        "readable": report.readable,
        "results": [alteration_result_json(result) for result in report.results],
    }


def record_json(record: AlterationRecord) -> dict[str, Any]:
    """Return what the log knows of an alteration."""
    request = record.request
    results = [record.results[ordinal] for ordinal in sorted(record.results)]
    outcomes = [result.outcome for result in results]
    denied = not outcomes and request.action == "denied"
    return {
        "alteration_id": request.alteration_id,
        "cluster_id": request.cluster_id,
        "validate_only": request.action == "validate",
        "outcome": Overall.REFUSED.value if denied else overall_outcome(outcomes).value,
        "readable": None,
        "results": [alteration_result_json(result) for result in results],
        "principal": request.caller.principal,
        "client_address": request.caller.host,
        "action": request.action,
        "reason": request.reason,
        "request_id": request.request_id,
        "history": [
            {"at": rfc3339(at), "event": event, "detail": detail}
            for at, event, detail in record.history
        ],
    }
