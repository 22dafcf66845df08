"""``GET /quotas/capabilities`` as a JSON document."""

from collections.abc import Mapping
from typing import Any

from app.domain.entities import ENTITY_TYPES
from app.domain.quota_keys import QUOTA_KEY_RULES, QuotaKeyRule
from app.domain.validation import MAX_CHANGES, MAX_ENCODED_BYTES, MAX_NAME_BYTES
from app.http.answers import quota_value_json
from app.http.limits import MAX_BODY_BYTES
from app.http.models import MAX_IDENTITIES, MAX_REASON_CHARACTERS, MAX_WAIT_MS

_OLDEST_BROKER = "2.6"
_CERTIFIED_BROKER = "4.3.1"


def capabilities_json(brokers: Mapping[str, Any]) -> dict[str, Any]:
    """Return what can be asked for; ``brokers`` is what the cluster reports of itself."""
    return {
        "entity_types": [kind.value for kind in ENTITY_TYPES],
        "keys": {key: _key_json(rule) for key, rule in QUOTA_KEY_RULES.items()},
        "brokers": {"oldest": _OLDEST_BROKER, "certified": _CERTIFIED_BROKER, **brokers},
        "limits": {
            "body_bytes": MAX_BODY_BYTES,
            "changes_per_request": MAX_CHANGES,
            "encoded_bytes_per_request": MAX_ENCODED_BYTES,
            "name_bytes": MAX_NAME_BYTES,
            "identities_per_request": MAX_IDENTITIES,
            "reason_characters": MAX_REASON_CHARACTERS,
            "wait_ms": MAX_WAIT_MS,
        },
    }


def _key_json(rule: QuotaKeyRule) -> dict[str, Any]:
    return {
        "unit": rule.unit,
        "scope": rule.scope.value,
        "entity_types": [kind.value for kind in ENTITY_TYPES if kind in rule.entity_types],
        "integral": rule.integral,
        "minimum": quota_value_json(float(rule.minimum)),
        "maximum": quota_value_json(float(rule.maximum)),
    }
