"""Fixture F1, and filters as they are written in a query."""

from tests.testkit.raw_quotas import ANY, DEFAULT, EXACT, Component, Entity, entity_of
from tests.testkit.resolution_cases import describe_fixture
from tests.testkit.service import RunningService

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
