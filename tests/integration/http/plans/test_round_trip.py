"""What is exported plans to nothing, and brings the same back after everything was lost."""

import random
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final

import pytest

from tests.integration.http.plans.planning import applied, changes, exported, plan
from tests.integration.http.service_calls import C, I, M, P, R
from tests.integration.http.test_odd_values import TEXTS
from tests.testkit.raw_quotas import RawQuotas, entity_of
from tests.testkit.service import RunningService

ENTITIES: Final = 1_000
SEED: Final = 546

HARMLESS: Final = {
    P: (1, 1024, 2**53 + 2, 9223372036854775807),
    C: (1, 1048576, 2**62),
    R: (50, 0.1 + 100, 1e9, 12345.678901234567),
    M: (0.01, 5, 1 / 3),
    I: (1000, 2147483647),
}
"""By key; nothing here slows the service itself down, which is a client of the same broker."""

Quota = tuple[Mapping[str, str | None], Mapping[str, float]]


def worlds() -> Iterator[Quota]:
    """Yield entities of every shape, with names that look dangerous and defaults among them."""
    dice = random.Random(SEED)
    names = [None, *TEXTS.values(), "x" * 512, "é" * 256]
    for name in names:
        yield {"user": name}, some(dice)
        yield {"client-id": name}, some(dice)
    for user, client_id in dice.sample(list(product(names, names)), 700):
        yield {"user": user, "client-id": client_id}, some(dice)
    yield {"ip": None}, {I: 1000}
    for number in range(ENTITIES - 701 - 2 * len(names)):
        address = f"10.1.{number // 250}.{number % 250}" if number % 2 else f"fd00::{number + 1:x}"
        yield {"ip": address}, {I: dice.choice(HARMLESS[I])}


def some(dice: random.Random) -> Mapping[str, float]:
    """Return values of some of the keys of clients."""
    keys = dice.sample((P, C, R, M), dice.randint(1, 4))
    return {key: dice.choice(HARMLESS[key]) for key in keys}


@pytest.fixture
def full_cluster(empty_cluster: RawQuotas) -> RawQuotas:
    """A thousand entities, stored by another tool."""
    world = {
        entity_of(names): {
            key: float(2**63 if value == 2**63 - 1 else value) for key, value in values.items()
        }
        for names, values in worlds()
    }
    assert len(world) == ENTITIES
    empty_cluster.become(world)
    return empty_cluster


def in_json(service: RunningService) -> Any:
    quotas = service.api("bob").get("/quotas").json()["quotas"]
    return {"apiVersion": "quotas/v1", "quotas": quotas}


def test_an_export_plans_to_nothing_and_brings_everything_back(
    service: RunningService, full_cluster: RawQuotas
) -> None:
    everything = full_cluster.everything()
    before = exported(service)
    for document in (before, in_json(service)):
        assert len(document["quotas"]) == ENTITIES
        for more in ({}, {"prune": True}):
            planned = plan(service, document, "round-trip", **more)
            assert (planned["changes"], planned["conflicts"]) == ([], [])
    full_cluster.become({})
    lost = plan(service, before, "round-trip")
    assert len(lost["changes"]) == ENTITIES
    report = applied(service, lost)
    assert len(report["results"]) == ENTITIES
    assert full_cluster.everything() == everything
    assert exported(service) == before
    assert plan(service, before, "round-trip", prune=True)["changes"] == []


def test_the_plan_of_a_changed_file_is_no_more_than_the_change(
    service: RunningService, full_cluster: RawQuotas
) -> None:
    document = exported(service)
    changed, another, gone = (document["quotas"][position] for position in (950, 500, 700))
    document["quotas"].remove(gone)
    changed["values"][P] = 77
    del another["values"][next(iter(another["values"]))]
    planned = plan(service, document, "round-trip")
    assert changes(planned) == [(changed["entity"], [{"key": P, "value": 77}])]
    applied(service, planned)
    assert full_cluster.stored(changed["entity"])[P] == 77
    assert full_cluster.stored(gone["entity"])
    assert plan(service, document, "round-trip")["changes"] == []
