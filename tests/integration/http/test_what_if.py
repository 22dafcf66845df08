"""What-if: what is proposed equals what resolves once it is done."""

import random
from typing import Any

import pytest

from tests.integration.http.service_calls import C, I, M, P, R, change
from tests.integration.http.worlds import CLIENT_KEYS, enforced, limits_of
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import RawQuotas, RequestLog, entity_of
from tests.testkit.service import RunningService
from tests.testkit.sizes import size

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


def test_an_empty_client_id_equals_a_missing_client_id(
    service: RunningService, empty_cluster: RawQuotas
) -> None:
    empty_cluster.become({entity_of({"user": None, "client-id": None}): {P: 5.0}})
    missing, empty = resolve(service, identities=[{"user": "u1"}, {"user": "u1", "client-id": ""}])
    assert missing == empty
    assert missing["identity"] == {"user": "u1"}


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


def test_who_may_only_describe_may_ask_what_if_and_who_may_not_may_not(
    service: RunningService,
) -> None:
    body = {"identities": [{"user": "u1"}], "alterations": [change({"user": "u1"}, {M: 5, C: 5})]}
    assert service.api("bob").post("/quotas/resolve", json=body).status_code == 200
    assert service.api("mallory").post("/quotas/resolve", json=body).status_code == 403


def test_a_proposal_that_expects_what_does_not_hold_is_412(service: RunningService) -> None:
    user = unique("user")
    body = {
        "identities": [{"user": user}],
        "alterations": [
            {
                "entity": {"user": user},
                "ops": [{"key": "producer_byte_rate", "value": 5}],
                "expected": {"producer_byte_rate": None},
            }
        ],
        "max_age_ms": 0,
    }
    answer = service.api("bob").post("/quotas/resolve", json=body)
    assert answer.status_code == 200, answer.text
    body["alterations"][0]["expected"] = {"producer_byte_rate": 4}  # type: ignore[index]
    refused = service.api("bob").post("/quotas/resolve", json=body)
    assert (refused.status_code, refused.json()["code"]) == (412, "expectation-failed")
