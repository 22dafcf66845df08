"""The curl line for each route, ready to be pasted into a shell."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.localdev.examples import ALICE, AUDITOR, BOB, MALLORY

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
_PLAN: Final = {
    "owner": "try-it",
    "document": {
        "apiVersion": "quotas/v1",
        "quotas": [{"entity": {"user": "alice"}, "values": {"consumer_byte_rate": 6291456}}],
    },
}


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
    ) -> str:
        """Return one line: a GET, or a POST where there is a body."""
        words = ["curl -sS"]
        if principal is not None:
            words.append(f"-H 'Authorization: Bearer {self.tokens[principal]}'")
        if accept is not None:
            words.append(f"-H {shlex.quote('Accept: ' + accept)}")
        if body is not None:
            words.append("-H 'Content-Type: application/json'")
            words.append(f"-d {shlex.quote(json.dumps(body))}")
        return " ".join([*words, shlex.quote(self.url + path)])


def banner(curl: Curl, alteration_id: str | None) -> str:
    """Return the lines for every route; those of a new alteration only where one is known."""
    sections = {
        "Describe, as bob": [
            curl.line("/quotas", BOB),
            curl.line("/quotas?filter=user=alice&filter=client-id:any", BOB),
            curl.line("/quotas", BOB, accept="application/x-ndjson"),
            curl.line("/quotas", BOB, accept="text/csv"),
            curl.line("/quotas", BOB, accept="application/yaml"),
        ],
        "Alter, as alice: check only, then do it": [
            curl.line("/quotas/alterations", ALICE, body={"validate_only": True, **_ALTERATION}),
            curl.line("/quotas/alterations", ALICE, body=_ALTERATION),
            *_alteration_lines(curl, alteration_id),
        ],
        "Resolve, as bob: what applies, and what would": [
            curl.line("/quotas/resolve?user=alice&client-id=etl&explain=true", BOB),
            curl.line("/quotas/resolve?ip=192.0.2.10", BOB),
            curl.line("/quotas/resolve", BOB, body=_WHAT_IF),
        ],
        "Plan, as bob: what would have to change": [curl.line("/quotas/plans", BOB, body=_PLAN)],
        "Who has SCRAM credentials, as bob": [curl.line("/users/scram-credentials", BOB)],
        "Audit, as auditor": [
            curl.line("/audit?page_size=10", AUDITOR),
            curl.line("/audit?entity=user=alice&entity=client-id=etl&action=alter", AUDITOR),
        ],
        "Refused, as mallory": [curl.line("/quotas", MALLORY)],
        "Operate": [
            curl.line("/quotas/capabilities", BOB),
            *(curl.line(path) for path in _OPEN_PATHS),
        ],
    }
    return "\n".join(f"\n# {title}\n" + "\n".join(lines) for title, lines in sections.items())


_OPEN_PATHS: Final = (
    "/livez",
    "/readyz",
    "/readyz?for=write",
    "/metrics",
    "/version",
    "/docs",
    "/openapi.json",
)


def _alteration_lines(curl: Curl, alteration_id: str | None) -> list[str]:
    if alteration_id is None:
        return []
    return [curl.line(f"/quotas/alterations/{alteration_id}", ALICE)]
