"""Examples of request bodies, as a caller would write them."""

from collections.abc import Mapping
from typing import Any, Final

Example = dict[str, Any]

_ALICE_ANY_CLIENT: Final = {"user": "alice", "client-id": None}


def _set(entity: Mapping[str, str | None], key: str, value: float) -> dict[str, Any]:
    return {"entity": dict(entity), "ops": [{"key": key, "value": value}]}


ALTERATION_REQUESTS: Final[Mapping[str, Example]] = {
    "set-and-remove": {
        "summary": "Raise one quota, remove another",
        "value": {
            "wait": "readable",
            "reason": "INC-4711 raise for backfill",
            "alterations": [
                {
                    "entity": _ALICE_ANY_CLIENT,
                    "ops": [
                        {"key": "producer_byte_rate", "value": 1048576},
                        {"key": "consumer_byte_rate", "remove": True},
                    ],
                }
            ],
        },
    },
    "check-only": {
        "summary": "Let the broker check, if the value is as expected; change nothing",
        "value": {
            "validate_only": True,
            "alterations": [
                {
                    **_set({"user": None}, "request_percentage", 12.5),
                    "expected": {"request_percentage": 10},
                }
            ],
        },
    },
    "several-kinds": {
        "summary": "A client-id, an address and the default user, each on its own",
        "value": {
            "all_or_nothing": False,
            "wait": "all_brokers",
            "wait_ms": 10000,
            "alterations": [
                _set({"client-id": "etl"}, "controller_mutation_rate", 5),
                _set({"ip": "10.0.0.1"}, "connection_creation_rate", 100),
                _set({"user": None}, "consumer_byte_rate", 9223372036854775807),
            ],
        },
    },
}

REVERT_REQUESTS: Final[Mapping[str, Example]] = {
    "take-back": {
        "summary": "Take the alteration back",
        "value": {"reason": "INC-4711 the backfill is done"},
    },
    "check-taking-back": {
        "summary": "Only check whether it could be taken back",
        "value": {"validate_only": True},
    },
}

RESOLVE_REQUESTS: Final[Mapping[str, Example]] = {
    "present": {
        "summary": "What applies to two clients and an address",
        "value": {
            "identities": [{"user": "alice", "client-id": "etl"}, {"user": "bob"}, {"ip": "::1"}]
        },
    },
    "what-if": {
        "summary": "What would apply after an alteration",
        "value": {
            "identities": [{"user": "alice", "client-id": "etl"}],
            "alterations": [_set(_ALICE_ANY_CLIENT, "producer_byte_rate", 1048576)],
            "max_age_ms": 0,
        },
    },
}
