"""Schemas of what ``GET /quotas`` and ``GET /quotas/capabilities`` answer."""

from collections.abc import Mapping
from typing import Final

from app.domain.entities import ENTITY_TYPES
from app.domain.quota_keys import QuotaKey, Scope
from app.http.openapi.shapes import Schema, array, closed, flag, ref, text, whole, words
from app.http.yaml_format import API_VERSION

_ENTITY_TYPES: Final = words(list(ENTITY_TYPES))

_LIMITS: Final = {
    "body_bytes": "A request's body.",
    "changes_per_request": "Changed keys in one alteration.",
    "encoded_bytes_per_request": "Encoded records of one alteration.",
    "name_bytes": "A name, in bytes of UTF-8.",
    "identities_per_request": "Identities resolved at once.",
    "reason_characters": "The reason of an alteration.",
    "wait_ms": "The longest wait, in milliseconds.",
}

_KEY: Final = closed(
    {
        "unit": text("Of the value, such as `bytes/s`."),
        "scope": words(list(Scope), "Who counts: each broker on its own, or the cluster."),
        "entity_types": array(_ENTITY_TYPES, "The types that entities with this key are made of."),
        "integral": flag("Whether a fraction is refused."),
        "minimum": {"type": "number", "description": "The smallest value accepted."},
        "maximum": {"type": "number", "description": "The largest value accepted."},
    }
)

_VERSION_OR_NULL: Final = {"type": ["integer", "null"]}

_BROKERS: Final = closed(
    {
        "oldest": text("The oldest release that has the quota interface."),
        "certified": text("The newest release that the tests run against."),
        "describe_api_version": {
            **_VERSION_OR_NULL,
            "description": "The newest DescribeClientQuotas of the broker in use; null: none.",
        },
        "alter_api_version": {
            **_VERSION_OR_NULL,
            "description": "The newest AlterClientQuotas of the broker in use; null: none.",
        },
        "metadata_version": {
            **_VERSION_OR_NULL,
            "description": "The finalized level of `metadata.version`; null: not told.",
        },
    },
    description="Which brokers this service works with, and what the one in use told.",
)

QUOTA_SCHEMAS: Final[Mapping[str, Schema]] = {
    "Quota": closed(
        {
            "entity": ref("Entity"),
            "entity_key": ref("EntityKey"),
            "values": ref("QuotaValues"),
        },
        description="One entity with its values.",
    ),
    "QuotaListing": closed(
        {
            "cluster_id": ref("ClusterId"),
            "as_of": ref("Time"),
            "quotas": array(
                ref("Quota"),
                "Sorted by user, client-id and ip: absent before default before names, names by "
                "code point.",
            ),
            "next_page_token": ref("NextPageToken"),
            "total": whole(0, None, "How many entities match; with pages only."),
        },
        optional=("total",),
    ),
    "QuotaDocument": closed(
        {
            "apiVersion": {"const": API_VERSION},
            "quotas": array(closed({"entity": ref("Entity"), "values": ref("QuotaValues")})),
        },
        description="The document of export, plan and apply.",
    ),
    "QuotaLines": text("One `Quota` in JSON on each line, in the order of `QuotaListing`."),
    "QuotaTable": text(
        "Columns `user_kind`, `client_id_kind`, `ip_kind` (`name`, `default` or `absent`), "
        "`user`, `client-id`, `ip`, `key`, `value`; one row for each value. A cell that begins "
        "with one of `= + - @ '` or a tab has one leading `'`, which a reader takes off again. "
        "RFC 4180."
    ),
    "Capabilities": closed(
        {
            "entity_types": array(_ENTITY_TYPES),
            "keys": closed({key.value: _KEY for key in QuotaKey}),
            "brokers": _BROKERS,
            "limits": closed({name: whole(1, None, why) for name, why in _LIMITS.items()}),
        }
    ),
}
