"""Plans as their users ask for them."""

from collections.abc import Iterable, Mapping
from typing import Any

import httpx
import yaml

from tests.testkit.raw_quotas import Names
from tests.testkit.service import RunningService

Values = Mapping[str, Any]


def document(*quotas: tuple[Names, Values]) -> dict[str, Any]:
    """Return a document of these quotas."""
    listed = [{"entity": dict(names), "values": dict(values)} for names, values in quotas]
    return {"apiVersion": "quotas/v1", "quotas": listed}


def ask(service: RunningService, desired: Any, owner: str = "team", **more: Any) -> httpx.Response:
    """Ask for a plan as bob, who may describe."""
    body = {"document": desired, "owner": owner, **more}
    return service.api("bob").post("/quotas/plans", json=body)


def plan(service: RunningService, desired: Any, owner: str = "team", **more: Any) -> dict[str, Any]:
    """Return a plan."""
    answer = ask(service, desired, owner, **more)
    assert answer.status_code == httpx.codes.OK, answer.text
    document: dict[str, Any] = answer.json()
    return document


def apply(service: RunningService, planned: Mapping[str, Any], **more: Any) -> httpx.Response:
    """Apply a plan as alice, who may alter."""
    return service.api().post(f"/quotas/plans/{planned['plan_id']}/apply", json=more)


def applied(service: RunningService, planned: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Apply a plan that can be applied, and return the alteration."""
    answer = apply(service, planned, **more)
    assert answer.status_code == httpx.codes.OK, answer.text
    report: dict[str, Any] = answer.json()
    assert report["outcome"] == "applied"
    return report


def settle(service: RunningService, desired: Any, owner: str = "team", **more: Any) -> None:
    """Plan and apply."""
    applied(service, plan(service, desired, owner, **more))


def changes(planned: Mapping[str, Any]) -> list[tuple[Names, list[dict[str, Any]]]]:
    """Return what a plan would do."""
    return [(change["entity"], change["ops"]) for change in planned["changes"]]


def exported(service: RunningService) -> Any:
    """Return every quota of the cluster, as YAML is read by everybody."""
    answer = service.api("bob").get("/quotas", headers={"Accept": "application/yaml"})
    return yaml.safe_load(answer.text)


def audit_rows(service: RunningService, alteration_id: str) -> Iterable[Mapping[str, Any]]:
    """Return the audit rows of an alteration."""
    rows = service.api("auditor").get("/audit?action=apply_plan&page_size=1000").json()["rows"]
    return [row for row in rows if row["alteration_id"] == alteration_id]
