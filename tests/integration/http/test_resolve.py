"""Resolutions and what-ifs: what a broker's own two steps do with what it describes."""

import random
from typing import Any

import pytest

from tests.integration.http.service_calls import (
    CLIENT_KEYS,
    C,
    I,
    M,
    P,
    R,
    World,
    change,
    enforced,
    limits_of,
)
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import RawQuotas, RequestLog, entity_of
from tests.testkit.resolution_cases import CASES, F2, Store
from tests.testkit.resolution_cases import entity_of as named
from tests.testkit.service import RunningService
from tests.testkit.sizes import size

LARGEST = 2**63 - 1
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


def world_of(store: Store) -> World:
    return {entity_of(named(slots).as_dict()): dict(values) for slots, values in store.items()}


def resolved(service: RunningService, **parameters: str | int) -> dict[str, Any]:
    answer = service.api("bob").get("/quotas/resolve", params={"max_age_ms": 0, **parameters})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    assert document["authoritative"] is True
    return document


def test_a_numbered_case_resolves_as_on_a_broker(
    service: RunningService, rules: RawQuotas, subtests: pytest.Subtests
) -> None:
    for title, case in CASES.items():
        with subtests.test(title):
            rules.become(world_of(case.store))
            name, client_id = case.caller
            document = resolved(service, user=name, **{"client-id": client_id})
            quota = document["quotas"][case.key]
            source = quota["source"]
            assert quota["value"] == (case.value and min(case.value, LARGEST))
            assert (source and source["level"]) == case.level
            assert (source and source["name"]) == (case.level and LEVELS[case.level - 1])
            if case.bucket:
                assert quota["shared_by"] == dict(
                    zip(("user", "client-id"), case.bucket, strict=True)
                )
            identity = {"user": name, **({"client-id": client_id} if client_id else {})}
            assert document["identity"] == identity
            limits = enforced(rules.everything(), identity)
            assert limits_of(document) == {
                key: (min(value, LARGEST) if value else None, tags)
                for key, (value, tags) in limits.items()
            }


def test_all_keys_of_an_identity_are_there_with_unit_and_scope(service: RunningService) -> None:
    quotas = resolved(service, user=unique())["quotas"]
    assert {key: quota["unit"] for key, quota in quotas.items()} == {
        P: "bytes/s", C: "bytes/s", R: "percent", M: "partitions/s"
    }  # fmt: skip
    assert {key: quota["scope"] for key, quota in quotas.items()} == {
        P: "per_broker", C: "per_broker", R: "per_broker", M: "cluster"
    }  # fmt: skip
    quotas = resolved(service, ip="10.1.2.3")["quotas"]
    assert list(quotas) == [I]
    assert (quotas[I]["unit"], quotas[I]["scope"]) == ("connections/s", "per_broker")


def test_max_age_ms_0_sees_a_change_at_once(service: RunningService, rules: RawQuotas) -> None:
    rules.become({})
    names = {"user": unique()}
    assert resolved(service, user=names["user"], max_age_ms=1)["quotas"][P]["value"] is None
    rules.store(names, {P: 5.0})
    assert resolved(service, user=names["user"])["quotas"][P]["value"] == 5
    assert service.alter(change(names, {P: 6})).json()["readable"] is True
    assert resolved(service, user=names["user"])["quotas"][P]["value"] == 6


def test_an_image_may_be_as_old_as_was_allowed(service: RunningService, rules: RawQuotas) -> None:
    rules.become({})
    names = {"user": unique()}
    before = resolved(service, user=names["user"])
    rules.store(names, {P: 5.0})
    old = resolved(service, user=names["user"], max_age_ms=3_600_000)
    assert old["as_of"] == before["as_of"]
    assert old["quotas"][P]["value"] is None


def test_ten_thousand_identities_are_resolved_in_order_from_one_image(
    service: RunningService, rules: RawQuotas
) -> None:
    rules.become(world_of(F2))
    identities: list[dict[str, str]] = [
        {"ip": f"10.0.{number // 256}.{number % 256}"}
        if number % 3 == 0
        else {"user": f"user{number}", "client-id": ("client1", "")[number % 2]}
        for number in range(9_998)
    ]
    identities += [{"user": "userA", "client-id": "client1"}, {"user": "userA"}]
    body = {"identities": identities, "max_age_ms": 0}
    answer = service.api("bob").post("/quotas/resolve", json=body)
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [result["identity"] for result in results] == [
        {kind: name for kind, name in identity.items() if name} for identity in identities
    ]
    assert [result["quotas"][P]["value"] for result in results[-2:]] == [5000, 4000]
    assert not [result for result in results if "proposed" in result]
    for number in (0, 1, 2, 5_000, 9_999):
        single = resolved(service, **identities[number])
        assert results[number] == {name: single[name] for name in results[number]}
        assert single.keys() - results[number].keys() == {"cluster_id", "as_of"}


USERS = ("", "u1", "u2", "stranger")
CLIENT_IDS = ("", "c1", "c2", "stranger")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "2001:db8::1")
IDENTITIES: list[dict[str, str]] = [
    *({"user": user, "client-id": client_id} for user in USERS for client_id in CLIENT_IDS),
    *({"user": user} for user in USERS),
    *({"ip": address} for address in ADDRESSES),
]
ENTITIES: list[dict[str, str | None]] = [
    *({"user": user} for user in (None, "u1", "u2")),
    *({"client-id": client_id} for client_id in (None, "c1", "c2")),
    *(
        {"user": user, "client-id": client_id}
        for user in (None, "u1", "u2")
        for client_id in (None, "c1", "c2")
    ),
    *({"ip": address} for address in (None, *ADDRESSES[:2])),
]
WORLDS = size(6, 30)


def keys_of(names: dict[str, str | None]) -> tuple[str, ...]:
    return (I,) if "ip" in names else CLIENT_KEYS


def random_world(chance: random.Random) -> dict[Any, dict[str, float]]:
    world = {}
    for names in chance.sample(ENTITIES, chance.randint(0, len(ENTITIES))):
        keys = chance.sample(keys_of(names), chance.randint(1, len(keys_of(names))))
        world[entity_of(names)] = {key: 100_000.0 + chance.randint(1, 9) for key in keys}
    return world


def random_alterations(chance: random.Random) -> list[dict[str, Any]]:
    alterations = []
    for names in chance.sample(ENTITIES, chance.randint(1, len(ENTITIES))):
        keys = chance.sample(keys_of(names), chance.randint(1, len(keys_of(names))))
        values = {key: chance.choice([None, 200_000 + chance.randint(1, 9)]) for key in keys}
        alterations.append(change(names, values))
    return alterations


def resolve(service: RunningService, **body: Any) -> list[dict[str, Any]]:
    answer = service.api("bob").post("/quotas/resolve", json={"max_age_ms": 0, **body})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


@pytest.mark.parametrize("seed", range(WORLDS))
def test_what_is_proposed_is_what_resolves_once_it_is_applied(
    service: RunningService, empty_cluster: RawQuotas, broker_log: RequestLog, seed: int
) -> None:
    chance = random.Random(seed)
    empty_cluster.become(random_world(chance))
    alterations = random_alterations(chance)
    with broker_log.nothing_arrives():
        asked = resolve(service, identities=IDENTITIES, alterations=alterations)
    proposed = [item.pop("proposed") for item in asked]
    assert asked == resolve(service, identities=IDENTITIES)
    answer = service.alter(*alterations)
    assert (answer.status_code, answer.json()["readable"]) == (200, True)
    assert proposed == resolve(service, identities=IDENTITIES)
    world = {
        key: values for key, values in empty_cluster.everything().items() if "ip" not in dict(key)
    }
    for identity, item in zip(IDENTITIES, proposed, strict=True):
        if "user" in identity:
            assert limits_of(item) == enforced(world, identity)


def test_no_alterations_mean_no_change(service: RunningService, raw: RawQuotas) -> None:
    (result,) = resolve(service, identities=[{"user": "u1"}], alterations=[])
    proposed = result.pop("proposed")
    assert proposed == result
    (result,) = resolve(service, identities=[{"user": "u1"}])
    assert "proposed" not in result
    assert resolve(service, identities=[]) == []


def test_a_proposal_that_could_not_be_altered_is_refused_with_the_same_errors(
    service: RunningService, raw: RawQuotas
) -> None:
    alterations = [
        change({"user": "u1"}, {P: 0, "bad": 1}),
        change({"ip": "host.example"}, {I: 5}),
        change({"user": "u1"}, {R: 5}),
    ]
    body = {"identities": [{"user": "u1"}], "alterations": alterations}
    what_if = service.api("bob").post("/quotas/resolve", json=body)
    altered = service.alter(*alterations)
    assert (what_if.status_code, altered.status_code) == (422, 422)
    assert what_if.json()["errors"] == altered.json()["errors"]
    assert what_if.json()["sent_to_cluster"] == "no"


def test_a_proposal_may_remove_what_is_stored_under_an_odd_name(
    service: RunningService, empty_cluster: RawQuotas
) -> None:
    empty_cluster.become({entity_of({"ip": "010.0.0.1"}): {I: 5.0}})
    (result,) = resolve(
        service,
        identities=[{"ip": "10.0.0.1"}],
        alterations=[change({"ip": "010.0.0.1"}, {I: None})],
    )
    assert result["quotas"][I]["value"] == 5
    assert result["proposed"]["quotas"][I]["value"] is None


def test_a_proposal_that_expects_what_does_not_hold_is_412(service: RunningService) -> None:
    names = {"user": unique("user")}

    def proposed(expected: float | None) -> Any:
        alteration = {**change(names, {P: 5}), "expected": {P: expected}}
        body = {"identities": [names], "alterations": [alteration], "max_age_ms": 0}
        return service.api("bob").post("/quotas/resolve", json=body)

    assert proposed(None).status_code == 200
    refused = proposed(4)
    assert (refused.status_code, refused.json()["code"]) == (412, "expectation-failed")
