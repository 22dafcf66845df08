"""Alterations as JSON."""

from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from tests.testkit.raw_quotas import ANY, DEFAULT, EXACT, Component, Entity, Names, entity_of
from tests.testkit.resolution_cases import describe_fixture
from tests.testkit.service import RunningService

P, C = "producer_byte_rate", "consumer_byte_rate"
R, M, I = "request_percentage", "controller_mutation_rate", "connection_creation_rate"  # noqa: E741


def change(names: Names, values: Mapping[str, Any]) -> dict[str, Any]:
    """Set each key to its value; null removes it."""
    ops = [
        {"key": key, "remove": True} if value is None else {"key": key, "value": value}
        for key, value in values.items()
    ]
    return {"entity": names, "ops": ops}


def applied(service: RunningService, names: Names, values: Mapping[str, Any]) -> dict[str, Any]:
    """Alter one entity and return its result."""
    answer = service.alter(change(names, values))
    assert answer.status_code == httpx.codes.OK, answer.text
    document = answer.json()
    assert (document["outcome"], document["readable"]) == ("applied", True)
    result: dict[str, Any]
    (result,) = document["results"]
    return result


def outcomes(document: Mapping[str, Any]) -> list[str]:
    """Return the word for each entity."""
    return [result["outcome"] for result in document["results"]]


F1: dict[Entity, dict[str, float]] = {
    entity_of(entity.as_dict()): dict(values) for entity, values in describe_fixture().items()
}

USER_1 = ("user", EXACT, "user-1")
USER_2 = ("user", EXACT, "user-2")
CLIENT_1 = ("client-id", EXACT, "client-id-1")
CLIENT_2 = ("client-id", EXACT, "client-id-2")
ANY_USER, ANY_CLIENT, ANY_IP = ("user", ANY, None), ("client-id", ANY, None), ("ip", ANY, None)
DEFAULT_USER, DEFAULT_CLIENT = ("user", DEFAULT, None), ("client-id", DEFAULT, None)
DEFAULT_IP = ("ip", DEFAULT, None)


def text_of(component: Component) -> str:
    kind, match_type, match = component
    return {EXACT: f"{kind}={match}", DEFAULT: f"{kind}:default", ANY: f"{kind}:any"}[match_type]


def described(
    service: RunningService, filters: list[str], **parameters: str | int | list[str]
) -> dict[Entity, dict[str, float]]:
    answer = service.api("bob").get("/quotas", params={"filter": filters, **parameters})
    assert answer.status_code == 200, answer.text
    quotas = answer.json()["quotas"]
    found = {entity_of(quota["entity"]): quota["values"] for quota in quotas}
    assert len(found) == len(quotas)
    return found


def audit(service: RunningService, principal: str = "auditor", **parameters: Any) -> httpx.Response:
    """Ask for rows, as an auditor by default."""
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


def pages(api: httpx.Client, path: str, **parameters: Any) -> Iterator[dict[str, Any]]:
    """Yield one page after the other, to the last."""
    token: str | None = ""
    while token is not None:
        more = {"page_token": token} if token else {}
        answer = api.get(path, params={**parameters, **more})
        assert answer.status_code == 200, answer.text
        yield answer.json()
        token = answer.json()["next_page_token"]
