"""Schemas of what every answer is made of: entities, stored values, times, identifiers."""

from collections.abc import Mapping
from typing import Final

from app.http.openapi.addresses import IPV4_PATTERN, IPV6_PATTERN
from app.http.openapi.shapes import Schema, nullable, ref, text

ALTERATION_ID: Final = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
"""A UUIDv7 in lower case. Source: RFC 9562."""

REQUEST_ID: Final = "^[A-Za-z0-9._-]{1,128}$"

_UTC_MILLISECONDS: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$"

_ENTITY: Final[Schema] = {
    "type": "object",
    "description": (
        "From entity type to name. Null is the default entity; a missing type is not part of the "
        "entity. Brokers know `user`, `client-id` and `ip`; `<default>` is an ordinary name."
    ),
    "properties": {
        "user": {"type": ["string", "null"]},
        "client-id": {"type": ["string", "null"]},
        "ip": {"type": ["string", "null"]},
    },
    "additionalProperties": {"type": ["string", "null"]},
}

_STORED_VALUE: Final[Schema] = {
    "description": (
        "A stored value: a float64. Integral values have no fraction; 2^63, the customary "
        '"unlimited", is 9223372036854775807. What other tools stored and JSON lacks is text.'
    ),
    "anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity"]}],
}

VALUE_SCHEMAS: Final[Mapping[str, Schema]] = {
    "Entity": _ENTITY,
    "EntityKey": text(
        "The unpadded URL-safe base64 of the entity's canonical JSON: types sorted, no blanks, "
        "UTF-8.",
        pattern="^[A-Za-z0-9_-]+$",
    ),
    "StoredValue": _STORED_VALUE,
    "QuotaValues": {
        "type": "object",
        "description": "From quota key to stored value; keys that no rule knows are passed on.",
        "additionalProperties": ref("StoredValue"),
    },
    "Time": text("RFC 3339, UTC, milliseconds.", format="date-time", pattern=_UTC_MILLISECONDS),
    "ClusterId": text("The id of the Kafka cluster."),
    "AlterationId": text("A UUIDv7; its time orders the log.", pattern=ALTERATION_ID),
    "RequestId": text("The id of the HTTP request.", pattern=REQUEST_ID),
    "NextPageToken": nullable(
        text(pattern="^[A-Za-z0-9_-]+$"), "Give it as `page_token`; null on the last page."
    ),
    "IpAddress": {
        "description": "A literal IPv4 or IPv6 address; no range, no zone, no host name.",
        "anyOf": [text(pattern=IPV4_PATTERN), text(pattern=IPV6_PATTERN)],
    },
}
