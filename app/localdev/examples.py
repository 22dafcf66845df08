"""What the first start puts into a cluster, and curl lines that show it."""

import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import AclOperation, ResourceType

from app.domain.entities import ClientQuotaEntity
from app.localdev.kafka_admin import allow, allowed
from app.localdev.local_directory import LocalDevError
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
    """Give the example principals their ACLs on the cluster."""
    # confluent-kafka calls the resource type Cluster BROKER. Source: rd_kafka_ResourceType_t.
    cluster = (ResourceType.BROKER, "kafka-cluster")
    allow(bootstrap_servers, [allowed(*cluster, *grant) for grant in GRANTS])


def set_example_quotas(service: LocalService, token: str, cluster: str | None = None) -> None:
    """Set the quotas through the service, so that the audit log has them.

    A cluster that is not the default has half of each, so that there is something to compare.
    """
    share, below = (1, "") if cluster is None else (2, f"/clusters/{cluster}")
    body = {
        "reason": _REASON,
        "alterations": [
            {
                "entity": entity,
                "ops": [{"key": key, "value": _share_of(v, share)} for key, v in values.items()],
            }
            for entity, values in QUOTAS
        ],
    }
    path = f"{below}/quotas/alterations"
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        status, answer = service.request("POST", path, token=token, body=body)
        if status == OK:
            return
        if time.monotonic() > deadline:
            raise LocalDevError(f"The example quotas were not set: {answer}")
        time.sleep(_POLL_S)


def _share_of(value: float, share: int) -> float:
    return value // share if isinstance(value, int) else value / share


def an_alteration_id(service: LocalService, token: str) -> str | None:
    """Return the newest alteration of the token's principal, or nothing where there is none."""
    status, answer = service.request("GET", "/audit?action=alter&page_size=1", token=token)
    rows = answer.get("rows", []) if status == OK else []
    return str(rows[0]["alteration_id"]) if rows else None


def a_plan_id(service: LocalService, token: str) -> str | None:
    """Make the example's plan, which changes nothing, or return nothing where it cannot be made."""
    status, answer = service.request("POST", "/quotas/plans", token=token, body=PLAN)
    return str(answer["plan_id"]) if status == OK else None


_ALTERATION: Final = {
    "reason": "try it",
    "alterations": [
        {
            "entity": {"user": "alice", "client-id": "etl"},
            "ops": [{"key": "producer_byte_rate", "value": 5242880}],
        }
    ],
}
_WHAT_IF: Final = {
    "identities": [{"user": "alice", "client-id": "etl"}, {"ip": "192.0.2.10"}],
    "alterations": _ALTERATION["alterations"],
}
_ENTITY: Final = f"/quotas/{ClientQuotaEntity.of({'user': 'carol'}).key}"


@dataclass(frozen=True)
class Curl:
    """Writes curl lines against one address, with the tokens of the principals."""

    url: str
    tokens: Mapping[str, str]

    def line(
        self,
        path: str,
        principal: str | None = None,
        *,
        accept: str | None = None,
        body: object = None,
        method: str | None = None,
    ) -> str:
        """Return one line: a GET, or a POST where there is a body, unless a method is named.

        A `$name` in the path is left to the shell.
        """
        words = ["curl -sS"] if method is None else [f"curl -sS -X {method}"]
        if principal is not None:
            words.append(f"-H 'Authorization: Bearer {self.tokens[principal]}'")
        if accept is not None:
            words.append(f"-H {shlex.quote('Accept: ' + accept)}")
        if body is not None:
            words.append("-H 'Content-Type: application/json'")
            words.append(f"-d {shlex.quote(json.dumps(body))}")
        url = self.url + path
        return " ".join([*words, f'"{url}"' if "$" in path else shlex.quote(url)])

    def endless(self, path: str, principal: str) -> str:
        """Return a line that listens for two seconds to an answer that does not end."""
        listen = "curl -sS -N --max-time 2"
        return self.line(path, principal).replace("curl -sS", listen, 1)


def first_lines(curl: Curl) -> list[str]:
    """Return the three lines to begin with: describe, resolve, and an alteration's check."""
    return [
        curl.line("/quotas", BOB),
        curl.line("/quotas/resolve?user=alice&client-id=etl", BOB),
        curl.line("/quotas/alterations", ALICE, body={"validate_only": True, **_ALTERATION}),
    ]


def all_lines(curl: Curl, alteration_id: str | None, plan_id: str | None) -> str:
    """Return lines for every route; an id that there is not yet is left to the shell."""
    alteration = f"/quotas/alterations/{alteration_id or '$alteration'}"
    plan = f"/quotas/plans/{plan_id or '$plan'}"
    sections = {
        "Describe, as bob": [
            curl.line("/quotas", BOB),
            curl.line("/quotas?filter=user=alice&filter=client-id:any", BOB),
            curl.line("/quotas", BOB, accept="application/x-ndjson"),
            curl.line("/quotas", BOB, accept="text/csv"),
            curl.line("/quotas", BOB, accept="application/yaml"),
        ],
        "Alter, as alice: check only; see the newest one, and whether it can go back; do it": [
            curl.line("/quotas/alterations", ALICE, body={"validate_only": True, **_ALTERATION}),
            curl.line(alteration, ALICE),
            curl.line(f"{alteration}/revert", ALICE, body={"validate_only": True}),
            curl.line("/quotas/alterations", ALICE, body=_ALTERATION),
        ],
        "For a time, as alice: raise, list what ends by itself, keep what was set for good": [
            curl.line("/quotas/alterations", ALICE, body={"expires_in": "4h", **_ALTERATION}),
            curl.line("/quotas/temporary", BOB),
            curl.line(f"{alteration}/expiry", ALICE, body={"expires_at": None}, method="PUT"),
        ],
        "How full the budgets of the policy are, as bob": [curl.line("/quotas/budgets", BOB)],
        "One entity by its key, as alice: set all its values, read them, remove them": [
            curl.line(_ENTITY, ALICE, body={"values": {"producer_byte_rate": 1}}, method="PUT"),
            curl.line(_ENTITY, ALICE),
            curl.line(_ENTITY, ALICE, method="DELETE"),
        ],
        "Resolve, as bob: what applies, and what would": [
            curl.line("/quotas/resolve?user=alice&client-id=etl&explain=true", BOB),
            curl.line("/quotas/resolve?ip=192.0.2.10", BOB),
            curl.line("/quotas/resolve", BOB, body=_WHAT_IF),
        ],
        "Plan, as bob: what would have to change; then apply exactly that, as alice": [
            curl.line("/quotas/plans", BOB, body=PLAN),
            curl.line(plan, BOB),
            curl.line(f"{plan}/apply", ALICE, body={"reason": "try it"}),
        ],
        "Who am I, and who has SCRAM credentials, as bob": [
            curl.line("/me", BOB),
            curl.line("/users/scram-credentials", BOB),
        ],
        "Audit, as auditor": [
            curl.line("/audit?page_size=10", AUDITOR),
            curl.line("/audit?entity=user=alice&entity=client-id=etl&action=alter", AUDITOR),
            curl.endless("/audit/stream", AUDITOR),
        ],
        "Who is near a limit, as bob: no-run until quota-pipeline has published with --pg": [
            curl.line("/analytics/utilization?min_util_p99=0.8", BOB),
            curl.line("/analytics/incidents", BOB),
            curl.line("/analytics/buckets/$bucket", BOB),
            curl.line("/analytics/recommendations?action=raise", BOB),
            curl.line("/analytics/stale", BOB),
            curl.line("/analytics/uncovered", BOB),
            curl.line("/analytics/overcommit", BOB),
            curl.line("/analytics/drift", BOB),
            curl.line("/analytics/whatif/$run", BOB),
            curl.line("/analytics/whatif/$run/timeline", BOB),
            curl.line("/analytics/runs", BOB),
            curl.line("/analytics/runs/$run", BOB),
        ],
        "Refused, as mallory, and what that means": [
            curl.line("/quotas", MALLORY),
            curl.line("/problems/cluster-authorization-failed"),
        ],
        "Operate": [
            curl.line("/quotas/capabilities", BOB),
            curl.line("/metrics/quotas", BOB),
            curl.line("/clusters", BOB),
            *(curl.line(path) for path in _OPEN_PATHS),
        ],
    }
    return "\n".join(f"# {title}\n" + "\n".join(lines) + "\n" for title, lines in sections.items())


_OPEN_PATHS: Final = (
    "/",
    "/problems/",
    "/livez",
    "/readyz",
    "/readyz?for=write",
    "/metrics",
    "/version",
    "/docs",
    "/openapi.json",
)
