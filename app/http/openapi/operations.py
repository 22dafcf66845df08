"""Every operation by method and path; FastAPI contributes its tags and the docstring."""

from collections.abc import Mapping
from typing import Any, Final

from app.http.formats import Format
from app.http.idempotency import KEY_HEADER, REPLAYED_HEADER, SUPERSEDE_HEADER
from app.http.openapi.analytics_operations import ANALYTICS_OPERATIONS
from app.http.openapi.parameters import (
    ALTERATION_ID_PARAMETER,
    CODE_PARAMETER,
    query_parameters,
)
from app.http.openapi.plan_operations import PLAN_OPERATIONS
from app.http.openapi.request_examples import (
    ALTERATION_REQUESTS,
    RESOLVE_REQUESTS,
    REVERT_REQUESTS,
)
from app.http.openapi.responses import (
    ALTERING,
    ANY,
    ASKING,
    JSON,
    READING,
    REVERTING,
    WITH_BODY,
    answer,
    body,
    json_answer,
    problems,
)
from app.http.openapi.security import CALLER
from app.http.openapi.shapes import ref
from app.http.openapi.user_operations import USER_OPERATIONS
from app.http.route_parameters import (
    AUDIT_PARAMETERS,
    DESCRIBE_PARAMETERS,
    READYZ_PARAMETERS,
    RESOLVE_PARAMETERS,
)

Operation = Mapping[str, Any]

_NOBODY: Final[Operation] = {"security": []}
_REQUEST_ID: Final = ref("X-Request-Id", "parameters")

_LISTED: Final = ("Vary", "X-Cluster-Id", "X-As-Of", "X-Next-Page-Token", "ETag")

_QUOTAS: Final = answer(
    "The quotas, in the format that `Accept` asks for.",
    {
        Format.JSON.value: body("QuotaListing", "quotas"),
        Format.NDJSON.value: body("QuotaLines", "quotas-ndjson"),
        Format.CSV.value: body("QuotaTable", "quotas-csv"),
        Format.YAML.value: body("QuotaDocument", "quotas-yaml"),
    },
    *_LISTED,
)

_RECORD: Final = {
    "record": {
        "operationId": "showAlteration",
        "parameters": {"alteration_id": "$response.body#/alteration_id"},
        "description": "The record of this alteration.",
    }
}


def _altered(description: str, *examples: str) -> Mapping[str, Any]:
    report = {JSON: body("AlterationReport", *examples)}
    return {**answer(description, report, "Location", REPLAYED_HEADER), "links": _RECORD}


def _request(schema: str, examples: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"required": True, "content": {JSON: body(schema, *examples)}}


OPERATIONS: Final[Mapping[str, Operation]] = {
    "GET /quotas": {
        "operationId": "describeQuotas",
        "summary": "Describe quotas",
        **CALLER,
        "parameters": [
            *query_parameters(DESCRIBE_PARAMETERS),
            ref("If-None-Match", "parameters"),
            _REQUEST_ID,
        ],
        "responses": {
            "200": _QUOTAS,
            "304": answer("The caller's copy still says the same.", {}, *_LISTED),
            **problems(*READING, "UnreadableOrStale", "NotAcceptable", "BadFilter"),
        },
    },
    "GET /quotas/capabilities": {
        "operationId": "showCapabilities",
        "summary": "Show what can be limited",
        **CALLER,
        "parameters": [_REQUEST_ID],
        "responses": {
            "200": json_answer("Types, keys, bounds and limits.", "Capabilities", "capabilities"),
            **problems(*READING),
        },
    },
    "POST /quotas/alterations": {
        "operationId": "alterQuotas",
        "summary": "Alter quotas",
        **CALLER,
        "parameters": [
            ref(KEY_HEADER, "parameters"),
            ref(SUPERSEDE_HEADER, "parameters"),
            _REQUEST_ID,
        ],
        "requestBody": _request("AlterationRequest", ALTERATION_REQUESTS),
        "responses": {
            "200": _altered(
                "All applied, or all validated.", "alteration-applied", "alteration-validated"
            ),
            "207": _altered("Some refused, the others done.", "alteration-partial"),
            **problems(*ALTERING),
        },
    },
    "GET /quotas/alterations/{alteration_id}": {
        "operationId": "showAlteration",
        "summary": "Show one alteration",
        **CALLER,
        "parameters": [ALTERATION_ID_PARAMETER, _REQUEST_ID],
        "responses": {
            "200": json_answer(
                "Its record.", "AlterationRecord", "alteration-record", "alteration-recovered"
            ),
            **problems(*ASKING, "TooManyRequests", "NotFound"),
        },
    },
    "POST /quotas/alterations/{alteration_id}/revert": {
        "operationId": "revertAlteration",
        "summary": "Take one alteration back",
        **CALLER,
        "parameters": [
            ALTERATION_ID_PARAMETER,
            ref(KEY_HEADER, "parameters"),
            ref(SUPERSEDE_HEADER, "parameters"),
            _REQUEST_ID,
        ],
        "requestBody": _request("RevertRequest", REVERT_REQUESTS),
        "responses": {
            "200": _altered("Taken back, or only checked.", "alteration-reverted"),
            "207": _altered("Some refused, the others taken back.", "alteration-partial"),
            **problems(*REVERTING),
        },
    },
    "GET /quotas/resolve": {
        "operationId": "resolveQuotas",
        "summary": "Resolve one identity",
        **CALLER,
        "parameters": [*query_parameters(RESOLVE_PARAMETERS), _REQUEST_ID],
        "responses": {
            "200": json_answer(
                "What applies for each key, and why.",
                "Resolution",
                "resolution-client",
                "resolution-address",
            ),
            **problems(*READING, "BadIdentity"),
        },
    },
    "POST /quotas/resolve": {
        "operationId": "resolveMany",
        "summary": "Resolve many identities, and what-if",
        **CALLER,
        "parameters": [_REQUEST_ID],
        "requestBody": _request("ResolveRequest", RESOLVE_REQUESTS),
        "responses": {
            "200": json_answer("In the order of the identities.", "ResolveAnswer", "resolutions"),
            **problems(*READING, *WITH_BODY, "ExpectationFailed", "BadWhatIf"),
        },
    },
    "GET /audit": {
        "operationId": "showAudit",
        "summary": "Show the audit log",
        **CALLER,
        "parameters": [*query_parameters(AUDIT_PARAMETERS), _REQUEST_ID],
        "responses": {
            "200": json_answer("One page, newest first.", "AuditPage", "audit"),
            **problems(
                *ASKING, "TooManyRequests", "UnreadableOrStale", "NotAuthorized", "BadFilter"
            ),
        },
    },
    **PLAN_OPERATIONS,
    **USER_OPERATIONS,
    **ANALYTICS_OPERATIONS,
    "GET /livez": {
        "operationId": "live",
        "summary": "Does it live?",
        **_NOBODY,
        "parameters": [_REQUEST_ID],
        "responses": {"200": json_answer("It does.", "Liveness", "live"), **problems(*ANY)},
    },
    "GET /readyz": {
        "operationId": "ready",
        "summary": "Is it ready?",
        **_NOBODY,
        "parameters": [*query_parameters(READYZ_PARAMETERS), _REQUEST_ID],
        "responses": {
            "200": json_answer("It is.", "Readiness", "ready"),
            **problems(*ANY, "BadParameter"),
            "503": json_answer("It is not; `problems` say why.", "Readiness", "not-ready"),
        },
    },
    "GET /metrics": {
        "operationId": "showMetrics",
        "summary": "Show the metrics",
        **_NOBODY,
        "parameters": [_REQUEST_ID],
        "responses": {
            "200": answer("Prometheus' text format.", {"text/plain": body("PlainText", "metrics")}),
            **problems(*ANY),
        },
    },
    "GET /version": {
        "operationId": "showVersion",
        "summary": "Show the version",
        **_NOBODY,
        "parameters": [_REQUEST_ID],
        "responses": {
            "200": json_answer("Name and version.", "Version", "version"),
            **problems(*ANY),
        },
    },
    "GET /problems/{code}": {
        "operationId": "showProblem",
        "summary": "Explain a problem",
        **_NOBODY,
        "parameters": [CODE_PARAMETER, _REQUEST_ID],
        "responses": {
            "200": answer("A page for people.", {"text/html": body("PlainText", "problem-page")}),
            **problems(*ANY, "NotFound"),
        },
    },
}
