"""Schemas of what ``GET /audit`` answers."""

from collections.abc import Mapping
from typing import Final

from app.domain.alterations import Outcome
from app.http.openapi.shapes import Schema, array, closed, nullable, ref, text, text_or_null, words
from app.http.route_parameters import AUDIT_ACTIONS

_OP: Final = closed(
    {"key": text(), "value": ref("StoredValue"), "remove": {"const": True}},
    optional=("value", "remove"),
    description="A key that was to be set or removed.",
)

_PLAN: Final = closed(
    {
        "plan_id": ref("AlterationId"),
        "owner": text("In whose name it was applied."),
        "force": {"type": "boolean"},
        "taken_over": {
            "type": "object",
            "description": "From whom keys were taken over by force, by key.",
            "additionalProperties": {"type": "string"},
        },
    },
    description="The plan that was applied; only where one was.",
)

_DENIED: Final = closed(
    {
        "entities": nullable(
            {"type": "integer", "minimum": 0},
            "How many were asked for; null where the body could not be read, or was over 16 KiB.",
        ),
        "first": nullable(array(ref("Entity")), "The first of them, at most 20."),
        "attempts": {
            "type": "integer",
            "minimum": 1,
            "description": "How many the row stands for.",
        },
    },
    description="What was refused; only in rows of denied attempts.",
)

_VALUES_OR_NULL: Final = nullable(ref("QuotaValues"), "The whole entity's values; null: not known.")

AUDIT_SCHEMAS: Final[Mapping[str, Schema]] = {
    "AuditRow": closed(
        {
            "cluster_id": ref("ClusterId"),
            "alteration_id": ref("AlterationId"),
            "at": ref("Time"),
            "principal": text("Who asked, as Kafka prints it."),
            "authentication": text("The method; no secret."),
            "client_address": text("The address of the caller."),
            "action": words(AUDIT_ACTIONS),
            "entity": nullable(ref("Entity"), "Null for denied attempts."),
            "ops": nullable(array(_OP), "Null for denied attempts."),
            "before": _VALUES_OR_NULL,
            "after": _VALUES_OR_NULL,
            "outcome": words(list(Outcome)),
            "reason": text_or_null("The caller's own words."),
            "request_id": ref("RequestId"),
            "error": nullable(ref("Refusal")),
            "plan": _PLAN,
            "denied": _DENIED,
        },
        optional=("plan", "denied"),
        description="One entity of one recorded request.",
    ),
    "AuditPage": closed(
        {
            "rows": array(ref("AuditRow"), "Newest first."),
            "next_page_token": ref("NextPageToken"),
        }
    ),
}
