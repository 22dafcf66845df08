"""The audit log, as a test asks for it."""

from typing import Any

import httpx

from tests.testkit.service import RunningService


def audit(service: RunningService, principal: str = "auditor", **parameters: Any) -> httpx.Response:
    """Ask for rows, as an auditor unless told otherwise."""
    return service.api(principal).get("/audit", params=parameters)


def rows(service: RunningService, principal: str = "auditor", **parameters: Any) -> list[Any]:
    """Return the rows of one page."""
    answer = audit(service, principal, **parameters)
    assert answer.status_code == 200, answer.text
    found: list[Any] = answer.json()["rows"]
    return found


def post(service: RunningService, principal: str, body: Any, **headers: str) -> httpx.Response:
    """Post an alteration as a principal."""
    return service.api(principal).post("/quotas/alterations", json=body, headers=headers)
