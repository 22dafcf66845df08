"""Alterations, rows and pages over HTTP, and what a broker would do with rules."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import Entity, Names
from tests.testkit.resolution_cases import ABSENT, DEFAULT, DefaultQuotaCallback, Name
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


SOON_S, LATER_S = 1.5, 3600.0


def in_s(seconds: float) -> str:
    """Return the time in so many seconds, by this machine's clock."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def soon(service_call: Callable[[str], httpx.Response]) -> dict[str, Any]:
    """Call with a time that comes soon; return the answer.

    Where the machine was so busy that it had passed when the service read it, a later one is sent.
    """
    found: list[dict[str, Any]] = []

    def is_taken() -> bool:
        answer = service_call(in_s(SOON_S))
        if answer.status_code == httpx.codes.OK:
            found.append(answer.json())
        else:
            codes = [error["code"] for error in answer.json()["errors"]]
            assert codes == ["time-has-passed"], answer.text
        return bool(found)

    wait_until(is_taken, "no time comes soon")
    return found[0]


def end_soon(service: RunningService, document: Mapping[str, Any]) -> None:
    """Let what an alteration has set for a time end soon, by its answer.

    A test that looks at what is set, or changes it, sets it for long and ends it when it has.
    """
    path = f"/quotas/alterations/{document['alteration_id']}/expiry"
    soon(lambda end: service.api().put(path, json={"expires_at": end}))


def outcomes(document: Mapping[str, Any]) -> list[str]:
    """Return the word for each entity."""
    return [result["outcome"] for result in document["results"]]


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


CLIENT_KEYS = (P, C, R, M)

World = Mapping[Entity, Mapping[str, float]]
Limit = tuple[float | None, dict[str, str]]
"""A value, null for unlimited, and the bucket's tags."""


def enforced(world: World, identity: Mapping[str, str]) -> dict[str, Limit]:
    """Return what the broker's own two steps do with a caller, by key."""
    user, client_id = identity.get("user", ""), identity.get("client-id", "")
    return dict(_limits(world, user, client_id))


def _limits(world: World, user: str, client_id: str) -> Iterator[tuple[str, Limit]]:
    for key in CLIENT_KEYS:
        rules = {_slots(entity): values[key] for entity, values in world.items() if key in values}
        callback = DefaultQuotaCallback(rules)
        tags = callback.quota_metric_tags(user, client_id)
        yield (
            key,
            (callback.quota_limit(tags), dict(zip(("user", "client-id"), tags, strict=True))),
        )


def _slots(entity: Entity) -> tuple[Name, Name]:
    names: Mapping[str, str | None] = dict(entity)
    user, client_id = (_slot(names, kind) for kind in ("user", "client-id"))
    return user, client_id


def _slot(names: Mapping[str, str | None], kind: str) -> Name:
    if kind not in names:
        return ABSENT
    name = names[kind]
    return DEFAULT if name is None else name


def limits_of(resolution: Mapping[str, Any]) -> dict[str, Limit]:
    """Return what a resolution says, by key."""
    return {
        key: (quota["value"], quota["shared_by"]) for key, quota in resolution["quotas"].items()
    }
