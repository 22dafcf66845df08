"""What a broker would do with rules, and what the service resolves."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.integration.http.service_calls import C, M, P, R
from tests.testkit.raw_quotas import Entity, entity_of
from tests.testkit.resolution_cases import ABSENT, DEFAULT, DefaultQuotaCallback, Name, Store
from tests.testkit.resolution_cases import entity_of as named
from tests.testkit.service import RunningService

CLIENT_KEYS = (P, C, R, M)
LEVELS = (
    "user-client-id",
    "user-default-client-id",
    "user",
    "default-user-client-id",
    "default-user-default-client-id",
    "default-user",
    "client-id",
    "default-client-id",
)

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


def world_of(store: Store) -> World:
    return {entity_of(named(slots).as_dict()): dict(values) for slots, values in store.items()}


def resolved(service: RunningService, **parameters: str | int) -> dict[str, Any]:
    answer = service.api("bob").get("/quotas/resolve", params={"max_age_ms": 0, **parameters})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    assert document["authoritative"] is True
    return document
