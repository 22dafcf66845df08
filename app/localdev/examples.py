"""What `dev` puts into a new cluster: principals, their ACLs, and a quota for each entity shape."""

import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka.admin import AclOperation

from app.localdev.errors import LocalDevError
from app.localdev.kafka_acls import allow_on_cluster
from app.localdev.service import OK, LocalService

ALICE: Final = "User:alice"
BOB: Final = "User:bob"
MALLORY: Final = "User:mallory"
AUDITOR: Final = "User:auditor"
PRINCIPALS: Final = (ALICE, BOB, MALLORY, AUDITOR)
"""May alter; may describe; may do nothing; may read every audit row. The first two may also list
SCRAM credentials."""

GRANTS: Final = (
    (ALICE, AclOperation.ALTER_CONFIGS),
    (ALICE, AclOperation.DESCRIBE),
    (BOB, AclOperation.DESCRIBE_CONFIGS),
    (BOB, AclOperation.DESCRIBE),
)

Entity = Mapping[str, str | None]

QUOTAS: Final[tuple[tuple[Entity, Mapping[str, float]], ...]] = (
    ({"user": "alice", "client-id": "etl"}, {"producer_byte_rate": 4194304}),
    ({"user": "alice", "client-id": None}, {"producer_byte_rate": 2097152}),
    (
        {"user": "alice"},
        {"producer_byte_rate": 8388608, "consumer_byte_rate": 16777216, "request_percentage": 150},
    ),
    ({"user": None, "client-id": "etl"}, {"consumer_byte_rate": 8388608}),
    ({"user": None, "client-id": None}, {"consumer_byte_rate": 6291456}),
    ({"user": None}, {"producer_byte_rate": 10485760, "controller_mutation_rate": 50}),
    ({"client-id": "etl"}, {"request_percentage": 80.5}),
    ({"client-id": None}, {"producer_byte_rate": 20971520}),
    ({"ip": "192.0.2.10"}, {"connection_creation_rate": 20}),
    ({"ip": None}, {"connection_creation_rate": 100000}),
)
"""The eight levels of users and client-ids, most specific first, an address, and every address."""

PLAN: Final = {
    "owner": "try-it",
    "document": {
        "apiVersion": "quotas/v1",
        "quotas": [{"entity": {"user": "alice"}, "values": {"consumer_byte_rate": 6291456}}],
    },
}
"""A request for a plan with one change."""

_REASON: Final = "examples of the first start"
_DEADLINE_S: Final = 30.0
_POLL_S: Final = 0.2


def set_example_acls(bootstrap_servers: str) -> None:
    """Give the example principals their ACLs."""
    allow_on_cluster(bootstrap_servers, GRANTS)


def set_example_quotas(service: LocalService, token: str) -> None:
    """Set the quotas through the service, so that the audit log has them.

    Raises:
        LocalDevError: the service did not apply them in time.
    """
    body = {
        "reason": _REASON,
        "alterations": [
            {"entity": entity, "ops": [{"key": key, "value": v} for key, v in values.items()]}
            for entity, values in QUOTAS
        ],
    }
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        status, answer = service.request("POST", "/quotas/alterations", token=token, body=body)
        if status == OK:
            return
        if time.monotonic() > deadline:
            raise LocalDevError(f"The example quotas were not set: {answer}")
        time.sleep(_POLL_S)


def an_alteration_id(service: LocalService, token: str) -> str | None:
    """Return the newest alteration of the token's principal, or nothing where there is none."""
    status, answer = service.request("GET", "/audit?action=alter&page_size=1", token=token)
    rows = answer.get("rows", []) if status == OK else []
    return str(rows[0]["alteration_id"]) if rows else None


def a_plan_id(service: LocalService, token: str) -> str | None:
    """Make the example's plan, which changes nothing, or return nothing where it cannot be made."""
    status, answer = service.request("POST", "/quotas/plans", token=token, body=PLAN)
    return str(answer["plan_id"]) if status == OK else None
