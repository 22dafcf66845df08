"""The curl line for each route, ready to be pasted into a shell."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.localdev.examples import ALICE, AUDITOR, BOB, MALLORY, PLAN

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
_RUN: Final = {"job": "utilization", "options": {}}


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


def banner(curl: Curl, alteration_id: str | None, plan_id: str | None) -> str:
    """Return the lines for every route; those of an alteration or a plan only if there is one."""
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
            *_alteration_lines(curl, alteration_id),
            curl.line("/quotas/alterations", ALICE, body=_ALTERATION),
        ],
        "Resolve, as bob: what applies, and what would": [
            curl.line("/quotas/resolve?user=alice&client-id=etl&explain=true", BOB),
            curl.line("/quotas/resolve?ip=192.0.2.10", BOB),
            curl.line("/quotas/resolve", BOB, body=_WHAT_IF),
        ],
        "Plan, as bob: what would have to change; then apply exactly that, as alice": [
            curl.line("/quotas/plans", BOB, body=PLAN),
            *_plan_lines(curl, plan_id),
        ],
        "Who has SCRAM credentials, as bob": [curl.line("/users/scram-credentials", BOB)],
        "Audit, as auditor": [
            curl.line("/audit?page_size=10", AUDITOR),
            curl.line("/audit?entity=user=alice&entity=client-id=etl&action=alter", AUDITOR),
        ],
        "Who is near a limit, as bob: no-run until quota-pipeline has published with --pg": [
            curl.line("/analytics/utilization?min_util_p99=0.8", BOB),
            curl.line("/analytics/incidents", BOB),
            curl.line("/analytics/buckets/$bucket", BOB),
        ],
        "Runs of the pipeline: queued as alice, for quota-pipeline worker": [
            curl.line("/analytics/runs", ALICE, body=_RUN),
            curl.line("/analytics/runs", BOB),
            curl.line("/analytics/runs/$run", BOB),
            curl.line("/analytics/runs/$run/cancel", ALICE, method="POST"),
        ],
        "Refused, as mallory, and what that means": [
            curl.line("/quotas", MALLORY),
            curl.line("/problems/cluster-authorization-failed"),
        ],
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
    path = f"/quotas/alterations/{alteration_id}"
    check = {"validate_only": True, "reason": "try it"}
    return [curl.line(path, ALICE), curl.line(f"{path}/revert", ALICE, body=check)]


def _plan_lines(curl: Curl, plan_id: str | None) -> list[str]:
    if plan_id is None:
        return []
    path = f"/quotas/plans/{plan_id}"
    return [curl.line(path, BOB), curl.line(f"{path}/apply", ALICE, body={"reason": "try it"})]
