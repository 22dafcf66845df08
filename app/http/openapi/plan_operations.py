"""The operations of ``/quotas/plans``, with their examples."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from app.domain.planner import base_of, make_plan
from app.domain.plans import DesiredQuota, Holding, PlanRequest
from app.http.idempotency import KEY_HEADER, REPLAYED_HEADER, SUPERSEDE_HEADER
from app.http.openapi import example_values as given
from app.http.openapi.plan_schemas import PLAN_ID
from app.http.openapi.responses import (
    APPLYING,
    JSON,
    READING,
    WITH_BODY,
    answer,
    body,
    json_answer,
    problems,
)
from app.http.openapi.security import CALLER
from app.http.openapi.shapes import ref, text
from app.http.plan_documents import plan_json
from app.http.yaml_format import API_VERSION
from app.service.plans.plan import PLAN_LIFE, planned
from app.service.plans.plan_records import KeptPlan

_OWNER: Final = "team-a"
_PLAN_ID: Final = given.ALTERATION_ID


def _example(summary: str, value: Any) -> dict[str, Any]:
    return {"summary": summary, "value": value}


def _plan() -> dict[str, Any]:
    wanted = PlanRequest(
        (
            DesiredQuota(given.USER, {given.PRODUCER: Decimal(2097152)}),
            DesiredQuota(given.DEFAULT_USER, {given.PRODUCER: Decimal(2000)}),
        ),
        _OWNER,
        prune=True,
    )
    holdings = {
        given.USER: {given.CONSUMER: Holding(_OWNER, 2.0**63)},
        given.DEFAULT_USER: {given.PRODUCER: Holding("platform", 1000.0)},
        given.ADDRESS: {given.CONNECTIONS: Holding(_OWNER, 50.0)},
    }
    plan, changes = planned(wanted, given.QUOTAS, holdings)
    return plan_json(
        KeptPlan(
            plan_id=_PLAN_ID,
            cluster_id=given.CLUSTER_ID,
            author=given.CALLER.principal,
            owner=_OWNER,
            prune=True,
            adopt=False,
            scope=(),
            created_at=given.AT,
            expires_at=given.AT + PLAN_LIFE,
            base=base_of(given.CLUSTER_ID, plan),
            changes=changes,
            conflicts=plan.conflicts,
            kept=plan.kept,
            rests_on=plan.rests_on,
        )
    )


def _nothing() -> dict[str, Any]:
    plan = make_plan(PlanRequest((), _OWNER), {}, {})
    empty = {**_plan(), "prune": False, "base": base_of(given.CLUSTER_ID, plan)}
    return {**empty, "changes": [], "conflicts": [], "kept": []}


PLAN_REQUESTS: Final[Mapping[str, dict[str, Any]]] = {
    "desired": _example(
        "What should hold, without removing anything",
        {
            "owner": _OWNER,
            "document": {
                "apiVersion": API_VERSION,
                "quotas": [{"entity": {"user": "alice"}, "values": {given.PRODUCER: 2097152}}],
            },
        },
    ),
    "desired-within-a-scope": _example(
        "All that should hold for some users, and nothing else of ours",
        {
            "owner": _OWNER,
            "prune": True,
            "scope": ["user^=team-a-"],
            "document": {
                "apiVersion": API_VERSION,
                "quotas": [
                    {"entity": {"user": "team-a-etl"}, "values": {given.PRODUCER: 1048576}},
                ],
            },
        },
    ),
}

APPLY_REQUESTS: Final[Mapping[str, dict[str, Any]]] = {
    "apply": _example("Apply it", {"reason": given.REASON}),
    "take-over": _example("Take over what others hold", {"force": True, "reason": given.REASON}),
}

PLAN_EXAMPLES: Final[Mapping[str, dict[str, Any]]] = {
    "plan": _example("One change of one's own, one of another's, one key kept", _plan()),
    "plan-of-nothing": _example("Everything is as desired", _nothing()),
}

_REQUEST_ID: Final = ref("X-Request-Id", "parameters")

_PLAN_PARAMETER: Final = {
    "name": "plan_id",
    "in": "path",
    "required": True,
    "description": "The `plan_id` of an answer.",
    "schema": text(pattern=PLAN_ID),
}

_OF_THE_PLAN: Final = {"plan_id": "$response.body#/plan_id"}

_LINKS: Final = {
    "plan": {
        "operationId": "showPlan",
        "parameters": _OF_THE_PLAN,
        "description": "This plan again.",
    },
    "apply": {
        "operationId": "applyPlan",
        "parameters": _OF_THE_PLAN,
        "description": "Apply this plan.",
    },
}

_RECORD: Final = {
    "record": {
        "operationId": "showAlteration",
        "parameters": {"alteration_id": "$response.body#/alteration_id"},
        "description": "The record of this alteration.",
    }
}


def _applied(description: str, *examples: str) -> Mapping[str, Any]:
    report = {JSON: body("AlterationReport", *examples)}
    return {**answer(description, report, "Location", REPLAYED_HEADER), "links": _RECORD}


PLAN_OPERATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "POST /quotas/plans": {
        "operationId": "planQuotas",
        "summary": "Plan what a document would change",
        **CALLER,
        "parameters": [_REQUEST_ID],
        "requestBody": {"required": True, "content": {JSON: body("PlanRequest", *PLAN_REQUESTS)}},
        "responses": {
            "200": {
                **json_answer(
                    "What would have to change; nothing has.", "Plan", "plan", "plan-of-nothing"
                ),
                "links": _LINKS,
            },
            **problems(*READING, *WITH_BODY, "BadPlan"),
        },
    },
    "GET /quotas/plans/{plan_id}": {
        "operationId": "showPlan",
        "summary": "Show one plan",
        **CALLER,
        "parameters": [_PLAN_PARAMETER, _REQUEST_ID],
        "responses": {
            "200": json_answer("The plan as it was made.", "Plan", "plan"),
            **problems(*READING, "NoSuchPlan"),
        },
    },
    "POST /quotas/plans/{plan_id}/apply": {
        "operationId": "applyPlan",
        "summary": "Apply one plan",
        **CALLER,
        "parameters": [
            _PLAN_PARAMETER,
            ref(KEY_HEADER, "parameters"),
            ref(SUPERSEDE_HEADER, "parameters"),
            _REQUEST_ID,
        ],
        "requestBody": {"required": True, "content": {JSON: body("ApplyRequest", *APPLY_REQUESTS)}},
        "responses": {
            "200": _applied("All applied, or nothing was to be done.", "alteration-applied"),
            **problems(*APPLYING),
        },
    },
}
