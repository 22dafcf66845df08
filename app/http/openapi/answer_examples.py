"""Examples of answers, made by what makes the real ones."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import orjson
import yaml

from app.domain.alterations import AlterationResult, Outcome
from app.domain.resolution import resolve_client, resolve_ip
from app.domain.resolution_index import QuotaIndex
from app.http.alteration_documents import alteration_json, record_json
from app.http.audit_documents import audit_row_json
from app.http.capabilities import capabilities_json
from app.http.formats import Format, QuotasAnswer, encode
from app.http.openapi import example_values as given
from app.http.resolution_documents import resolution_json, resolutions_json
from app.service.alterations.alteration_command import AlterationReport
from app.service.audit_records import AlterationRecord, AuditEntity, AuditRequest, AuditRow
from app.service.reading.resolve import ResolveAnswer

Example = dict[str, Any]


def _example(summary: str, value: Any) -> Example:
    return {"summary": summary, "value": value}


def _listing(media_type: Format) -> str:
    entries = sorted(given.QUOTAS.items(), key=lambda entry: entry[0].sort_key())
    answer = QuotasAnswer(given.CLUSTER_ID, given.AT, entries)
    return b"".join(encode(media_type, answer)).decode()


def _report(*results: AlterationResult, readable: bool | None) -> dict[str, Any]:
    validate_only = results[0].outcome is Outcome.VALIDATED
    return alteration_json(
        AlterationReport(given.ALTERATION_ID, given.CLUSTER_ID, validate_only, results, readable)
    )


_SENT: Final = (given.AT, "sent", "handed to broker 1")
_APPLIED: Final = (given.LATER, "outcome", "applied")
_LOST: Final = (given.LATER, "outcome", "unknown")
_FOUND: Final = (given.MUCH_LATER, "recovery", "observed_other")


def _record(*events: tuple[datetime, str, str]) -> dict[str, Any]:
    request = AuditRequest(
        alteration_id=given.ALTERATION_ID,
        cluster_id=given.CLUSTER_ID,
        caller=given.CALLER,
        action="alter",
        request_id=given.REQUEST_ID,
        entities=(AuditEntity(0, given.ALTERATION, given.BEFORE),),
        reason=given.REASON,
    )
    history = ((given.AT, "intent", "committed before anything was sent"), *events)
    results = {0: given.OBSERVED_OTHER if _FOUND in events else given.APPLIED}
    return record_json(
        AlterationRecord(request, given.AT, results, concluded=True, history=history)
    )


def _client_answer() -> ResolveAnswer:
    index = QuotaIndex.of(given.QUOTAS)
    changed = index.with_alterations([given.ALTERATION])
    return ResolveAnswer(
        given.CLUSTER_ID,
        given.AT,
        resolutions=(resolve_client(index, "alice", "etl"),),
        proposed=(resolve_client(changed, "alice", "etl"),),
        callback_class=None,
    )


def _address_answer() -> ResolveAnswer:
    resolution = resolve_ip(QuotaIndex.of(given.QUOTAS), "10.0.0.1", explain=True)
    return ResolveAnswer(given.CLUSTER_ID, given.AT, (resolution,), None, None)


def _audit_page() -> dict[str, Any]:
    row = AuditRow(
        cluster_id=given.CLUSTER_ID,
        alteration_id=given.ALTERATION_ID,
        at=given.AT,
        principal=given.CALLER.principal,
        authentication=given.CALLER.authentication,
        client_address=given.CALLER.host,
        action="alter",
        entity=given.USER_ANY_CLIENT,
        ops=({"key": given.PRODUCER, "value": 1048576}, {"key": given.CONSUMER, "remove": True}),
        before=given.BEFORE,
        after=given.AFTER,
        outcome=Outcome.APPLIED.value,
        reason=given.REASON,
        request_id=given.REQUEST_ID,
        error=None,
    )
    return {"rows": [audit_row_json(row)], "next_page_token": given.PAGE_TOKEN}


_BROKERS: Final = {"describe_api_version": 1, "alter_api_version": 1, "metadata_version": 29}

_LISTING: Final = _listing(Format.JSON)

ANSWER_EXAMPLES: Final[Mapping[str, Example]] = {
    "quotas": _example("Three entities", orjson.loads(_LISTING)),
    "quotas-ndjson": _example("The same, one a line", _listing(Format.NDJSON)),
    "quotas-csv": _example("The same as a table", _listing(Format.CSV)),
    "quotas-yaml": _example("The same as a document", yaml.safe_load(_listing(Format.YAML))),
    "capabilities": _example("Keys, bounds and limits", capabilities_json(_BROKERS)),
    "alteration-applied": _example("Applied", _report(given.APPLIED, readable=True)),
    "alteration-validated": _example("Only checked", _report(given.VALIDATED, readable=None)),
    "alteration-partial": _example(
        "One refused, the other applied", _report(given.APPLIED, given.REFUSED, readable=True)
    ),
    "alteration-reverted": _example("Taken back", _report(given.REVERTED, readable=True)),
    "alteration-record": _example("What the log knows", _record(_SENT, _APPLIED)),
    "alteration-recovered": _example(
        "What was found after an answer was lost", _record(_SENT, _LOST, _FOUND)
    ),
    "resolution-client": _example(
        "A user with a client-id", resolution_json(_client_answer(), explain=False)
    ),
    "resolution-address": _example(
        "An address, every level explained", resolution_json(_address_answer(), explain=True)
    ),
    "resolutions": _example("What-if", resolutions_json(_client_answer())),
    "audit": _example("One row, more follow", _audit_page()),
    "live": _example("It lives", {"status": "ok"}),
    "ready": _example("Ready", {"status": "ok", "problems": {}}),
    "not-ready": _example(
        "The audit log cannot be written",
        {"status": "unavailable", "problems": {"audit_log": "no answer within 2 s"}},
    ),
    "version": _example("A version", {"name": "kafka-quota-service", "version": "0.1.0"}),
    "metrics": _example(
        "A gauge",
        "# HELP http_server_active_requests Requests in flight.\n"
        "# TYPE http_server_active_requests gauge\nhttp_server_active_requests 1.0\n",
    ),
    "problem-page": _example("A page", '<!doctype html>\n<html lang="en">…</html>\n'),
}
