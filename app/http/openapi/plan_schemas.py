"""Schemas of plans: what is desired, what would be done for it, and applying it."""

from collections.abc import Mapping
from typing import Final

from app.domain.plans import WhyKept
from app.http.openapi.alteration_schemas import REASON, WAIT, WAIT_MS
from app.http.openapi.shapes import (
    Schema,
    array,
    closed,
    flag,
    nullable,
    ref,
    text,
    whole,
    words,
)
from app.http.openapi.value_schemas import ALTERATION_ID
from app.http.plan_reading import MAX_OWNER_CHARACTERS
from app.http.yaml_format import API_VERSION

PLAN_ID: Final = ALTERATION_ID

_PRUNE: Final = flag(
    "Remove what the owner applied before, inside the scope, and the document does not name any "
    "more; without it nothing is removed.",
    default=False,
)
_ADOPT: Final = flag(
    "Let the owner hold the keys of the document that have their values already, too.",
    default=False,
)
_SCOPE: Final = array(
    ref("QuotaFilterComponent"),
    "What may be touched: entities that any of these matches; none means every entity. Components "
    "as in the parameter `filter` of `GET /quotas`.",
)
_WHOSE: Final = "In whose name the document is applied; every key has at most one owner."

_REQUEST: Final = closed(
    {
        "document": ref("DesiredQuotas"),
        "owner": {
            "type": ["string", "null"],
            "minLength": 1,
            "maxLength": MAX_OWNER_CHARACTERS,
            "description": f"{_WHOSE} By default the caller's principal.",
        },
        "prune": _PRUNE,
        "adopt": _ADOPT,
        "scope": _SCOPE,
    },
    optional=("owner", "prune", "adopt", "scope"),
)

_DESIRED: Final = closed(
    {
        "apiVersion": {"const": API_VERSION},
        "quotas": array(
            closed(
                {
                    "entity": ref("Entity"),
                    "entity_key": ref("EntityKey"),
                    "values": ref("QuotaValues"),
                },
                optional=("entity_key",),
            ),
            "Each entity at most once.",
        ),
    },
    description=(
        "The document that `GET /quotas` writes as YAML. Only what would change is held against "
        "the rules, so that an export with odd stored values plans to nothing."
    ),
)

_OP: Final = closed(
    {"key": text(), "value": ref("StoredValue"), "remove": {"const": True}},
    optional=("value", "remove"),
    description="A key that is to be set or removed.",
)

_SOURCE: Final = nullable(
    closed({"entity": ref("Entity"), "level": whole(1, 8), "name": text("Of the level.")}),
    "Where the effective value comes from; null where nothing applies.",
)

_KEY_IMPACT: Final = closed(
    {
        "change": words(("set", "raised", "lowered", "removed", "unchanged")),
        "factor": {
            "type": ["number", "null"],
            "description": "New value by old value, to six digits; null where there are not two.",
        },
        "effective_before": nullable(
            ref("StoredValue"),
            "What applies now to the callers of this entity that no more specific entity covers; "
            "null: unlimited.",
        ),
        "effective_after": nullable(ref("StoredValue"), "What would apply to them."),
        "source": _SOURCE,
        "more_specific": whole(
            0, None, "Stored entities with this key that go before this one for some callers."
        ),
    }
)

_CHANGE: Final = closed(
    {
        "entity": ref("Entity"),
        "ops": array(_OP, minItems=1),
        "before": ref("QuotaValues"),
        "after": ref("QuotaValues"),
        "impact": closed(
            {
                "summary": text("A sentence for people."),
                "keys": {"type": "object", "additionalProperties": _KEY_IMPACT},
            }
        ),
    },
    description="What would be done to one entity; `before` and `after` are all of its values.",
)

_CONFLICT: Final = closed(
    {
        "entity": ref("Entity"),
        "key": text(),
        "owner": text("Who holds the key."),
        "held": ref("StoredValue"),
        "current": ref("StoredValue"),
        "proposed": ref("StoredValue"),
    },
    description=(
        "A key of another owner that the plan would change: the value that it applied, the stored "
        "one, and the one that the plan would set."
    ),
)

_KEPT: Final = closed(
    {
        "entity": ref("Entity"),
        "key": text(),
        "value": ref("StoredValue"),
        "reason": words(list(WhyKept), "`changed-since`: the value is not the owner's any more."),
    },
    description="A key of the owner's that is not removed although the document lacks it.",
)

PLAN_SCHEMAS: Final[Mapping[str, Schema]] = {
    "PlanRequest": _REQUEST,
    "DesiredQuotas": _DESIRED,
    "Plan": closed(
        {
            "plan_id": text("A UUIDv7.", pattern=PLAN_ID),
            "cluster_id": ref("ClusterId"),
            "author": text("Who asked for the plan, as Kafka prints it."),
            "owner": text(_WHOSE),
            "prune": {"type": "boolean"},
            "adopt": {"type": "boolean"},
            "scope": array(text()),
            "created_at": ref("Time"),
            "expires_at": ref("Time"),
            "base": text(
                "A fingerprint of the values and owners that the plan rests on.",
                pattern="^[0-9a-f]{64}$",
            ),
            "changes": array(_CHANGE, "One for each entity, in the order of `GET /quotas`."),
            "conflicts": array(_CONFLICT, "What only force would do."),
            "kept": array(_KEPT, "What pruning leaves."),
        },
        description="What would have to change for a document to hold.",
    ),
    "ApplyRequest": closed(
        {
            "force": flag("Take keys over that other owners hold.", default=False),
            "reason": REASON,
            "wait": WAIT,
            "wait_ms": WAIT_MS,
        },
        optional=("force", "reason", "wait", "wait_ms"),
    ),
}
