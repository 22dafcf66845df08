"""Schemas of alterations: the request, what became of it, its record."""

from collections.abc import Mapping
from typing import Final

from app.domain.alterations import Outcome, Overall
from app.http.openapi.shapes import (
    Schema,
    array,
    closed,
    flag,
    nullable,
    ref,
    text,
    text_or_null,
    words,
)
from app.http.request_rules import DEFAULT_WAIT_MS, MAX_REASON_CHARACTERS, MAX_WAIT_MS
from app.http.route_parameters import AUDIT_ACTIONS
from app.service.alterations.alteration_command import Wait

_VALIDATE_ONLY: Final = flag(
    "Check everything, with the broker's own validate-only too; change nothing.", default=False
)

REASON: Final = {
    "type": ["string", "null"],
    "maxLength": MAX_REASON_CHARACTERS,
    "pattern": r"^[^\u0000]*$",
    "description": "Why; kept in the audit log.",
}

WAIT: Final = {
    **words(
        list(Wait),
        "When to answer: once the change can be described through the broker in use, "
        "through every live broker, or at once.",
    ),
    "default": Wait.READABLE.value,
}

WAIT_MS: Final = {
    "type": "integer",
    "minimum": 0,
    "maximum": MAX_WAIT_MS,
    "default": DEFAULT_WAIT_MS,
    "description": "The longest wait, in milliseconds; then `readable` is false.",
}

_REQUEST: Final = closed(
    {
        "validate_only": _VALIDATE_ONLY,
        "all_or_nothing": flag(
            "The broker validates first, and if one entity is refused nothing is applied. With "
            "false a refusal concerns its entity only.",
            default=True,
        ),
        "wait": WAIT,
        "wait_ms": WAIT_MS,
        "reason": REASON,
        "alterations": array(
            ref("ClientQuotaAlteration"),
            "Each entity at most once; at most 10,000 changed keys in all.",
            minItems=1,
        ),
    },
    optional=("validate_only", "all_or_nothing", "wait", "wait_ms", "reason"),
)

_REVERT: Final = closed(
    {"validate_only": _VALIDATE_ONLY, "reason": REASON}, optional=("validate_only", "reason")
)

_VALUES_OR_NULL: Final = nullable(ref("QuotaValues"), "The whole entity's values; null: not known.")

_REFUSAL: Final = closed(
    {
        "kafka_error": text_or_null("Kafka's name; null where the rule is this service's own."),
        "message": text("The broker's or this service's words."),
    }
)

_RESULT: Final = closed(
    {
        "entity": ref("Entity"),
        "outcome": words(
            list(Outcome),
            "`not_applied`: valid, and held back because another entity was refused, or found not "
            "applied. `unknown`: sent, and no definite answer yet. Recovery may find "
            "`observed_other`: neither the values before nor those asked for. `superseded`: "
            "another alteration took over before that.",
        ),
        "changed": {
            "type": ["boolean", "null"],
            "description": "Whether a value differs; null where the outcome is unknown.",
        },
        "before": _VALUES_OR_NULL,
        "after": _VALUES_OR_NULL,
        "error": nullable(ref("Refusal")),
        "warnings": array({"type": "string"}, "Only where there are some.", minItems=1),
    },
    optional=("warnings",),
    description="What became of one entity.",
)

_ANSWER: Final[Mapping[str, Schema]] = {
    "alteration_id": ref("AlterationId"),
    "cluster_id": ref("ClusterId"),
    "validate_only": {"type": "boolean"},
    "outcome": words(list(Overall), "The one word for all results."),
    "readable": {
        "type": ["boolean", "null"],
        "description": "Whether the change could be described in time; null where nobody waited.",
    },
    "results": array(ref("AlterationResult"), "In request order."),
}

_EVENT: Final = closed(
    {
        "at": ref("Time"),
        "event": words(
            ("intent", "sent", "outcome", "recovery"),
            "`intent`: recorded before anything was sent. `sent`: handed to a broker. `outcome`: "
            "what is known of it. `recovery`: what was found afterwards where that was nothing.",
        ),
        "detail": text(),
    }
)

ALTERATION_SCHEMAS: Final[Mapping[str, Schema]] = {
    "AlterationRequest": _REQUEST,
    "RevertRequest": _REVERT,
    "Refusal": _REFUSAL,
    "AlterationResult": _RESULT,
    "AlterationReport": closed(_ANSWER, description="What became of an alteration."),
    "AlterationRecord": closed(
        {
            **_ANSWER,
            "principal": text("Who asked, as Kafka prints it."),
            "client_address": text("The address of the caller."),
            "action": words(AUDIT_ACTIONS),
            "reason": text_or_null("The caller's own words."),
            "request_id": ref("RequestId"),
            "history": array(_EVENT, "In order."),
        },
        description="What the log knows of an alteration.",
    ),
}
