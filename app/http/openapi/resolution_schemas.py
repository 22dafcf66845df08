"""Schemas of what ``/quotas/resolve`` is asked and answers."""

from collections.abc import Mapping
from typing import Final

from app.domain.quota_keys import QuotaKey, Scope
from app.domain.resolution_levels import QuotaSource
from app.http.openapi.shapes import (
    Schema,
    array,
    closed,
    flag,
    nullable,
    ref,
    text,
    text_or_null,
    whole,
    words,
)
from app.http.request_rules import MAX_AGE_MS, MAX_IDENTITIES
from app.service.reading.resolve import DEFAULT_RESOLVE_AGE_MS

_NAME: Final = text()

_PLACE: Final[Mapping[str, Schema]] = {
    "entity": ref("Entity"),
    "level": whole(1, 8, "1 is the most specific."),
    "name": words(list(QuotaSource), "The level's name."),
}

_QUOTA: Final = closed(
    {
        "value": nullable(ref("StoredValue"), "As stored; null: unlimited."),
        "unit": text("Of the value, such as `bytes/s`."),
        "scope": words(list(Scope), "Where the limit is enforced."),
        "source": nullable(ref("QuotaPlace"), "Where the value comes from; null: nowhere."),
        "shared_by": {
            "description": "The bucket: who spends from the same allowance, as metric tags.",
            "oneOf": [closed({"user": _NAME, "client-id": _NAME}), closed({"ip": _NAME})],
        },
        "overridden": array(
            ref("OverriddenQuota"), "The less specific entities that have the key and lose."
        ),
        "levels": array(ref("LevelTried"), "With `explain` only: every level, in order."),
        "usage": nullable(ref("Usage"), "With `usage` only; null: nothing is known."),
    },
    optional=("levels", "usage"),
    description="What applies for one key.",
)

_KEYS: Final = {
    **closed(
        {key.value: ref("ResolvedQuota") for key in QuotaKey},
        optional=list(QuotaKey),
        description=(
            "Every key that applies to the identity: `connection_creation_rate` for an address, "
            "the other four for a user and client-id."
        ),
    ),
    "minProperties": 1,
}

_RESOLUTION: Final[Mapping[str, Schema]] = {
    "identity": ref("Identity"),
    "authoritative": flag("False where a broker has `client.quota.callback.class` set."),
    "quotas": _KEYS,
    "notes": array({"type": "string"}, "Sentences about what does not do what it says."),
}

_WHEN: Final[Mapping[str, Schema]] = {"cluster_id": ref("ClusterId"), "as_of": ref("Time")}

RESOLUTION_SCHEMAS: Final[Mapping[str, Schema]] = {
    "Identity": {
        "description": (
            "A user with or without a client-id, or an address. An empty client-id equals a "
            "missing one; answers leave it out and have addresses in canonical text."
        ),
        "oneOf": [
            closed({"user": _NAME, "client-id": _NAME}, optional=("client-id",)),
            closed({"ip": ref("IpAddress")}),
        ],
    },
    "QuotaPlace": closed(_PLACE),
    "OverriddenQuota": closed({**_PLACE, "value": ref("StoredValue")}),
    "LevelTried": closed(
        {
            **_PLACE,
            "value": nullable(ref("StoredValue"), "What is stored there; null: nothing."),
            "applies": flag("Whether the level can apply to this identity at all."),
            "reason": text_or_null("Why it cannot."),
        }
    ),
    "ResolvedQuota": _QUOTA,
    "Resolution": closed({**_WHEN, **_RESOLUTION}, description="What applies, and why."),
    "ProposedResolution": closed(
        _RESOLUTION, description="What would apply if the alterations had been applied."
    ),
    "ResolveResult": closed(
        {**_RESOLUTION, "proposed": ref("ProposedResolution")},
        optional=("proposed",),
        description="What applies to one identity; `proposed` only where alterations were given.",
    ),
    "ResolveRequest": closed(
        {
            "identities": array(ref("Identity"), maxItems=MAX_IDENTITIES),
            "alterations": array(
                ref("ClientQuotaAlteration"), "What-if: each entity at most once; nothing is sent."
            ),
            "max_age_ms": {
                **whole(0, MAX_AGE_MS, "How old the image may be, in milliseconds; 0 asks now."),
                "default": DEFAULT_RESOLVE_AGE_MS,
            },
        },
        optional=("alterations", "max_age_ms"),
    ),
    "ResolveAnswer": closed(
        {**_WHEN, "results": array(ref("ResolveResult"), "In the order of the identities.")}
    ),
}
