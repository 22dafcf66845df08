"""What a resolution says beside the limit: levels, notes, addresses, ages, many at once."""

import pytest

from tests.integration.http.service_calls import C, I, P, R, change
from tests.integration.http.worlds import LEVELS, client, resolved, user, world, world_of
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.resolution_cases import F2
from tests.testkit.service import RunningService

LARGEST = 2**63 - 1


def test_explain_lists_every_level_and_why_one_cannot_apply(
    service: RunningService, rules: RawQuotas
) -> None:
    rules.become(world_of(F2))
    levels = resolved(service, user="userB", explain="true")["quotas"][P]["levels"]
    assert [level["level"] for level in levels] == list(range(1, 9))
    assert [level["name"] for level in levels] == list(LEVELS)
    assert [level["level"] for level in levels if level["applies"]] == [3, 6]
    assert all((level["reason"] is None) == level["applies"] for level in levels)
    assert [level["value"] for level in levels] == [None, 8000, 6000, None, 3000, 1000, None, 2000]
    assert "levels" not in resolved(service, user="userB")["quotas"][P]
    levels = resolved(service, ip="10.1.2.3", explain="true")["quotas"][I]["levels"]
    assert [(level["level"], level["name"]) for level in levels] == [(1, "ip"), (2, "default-ip")]


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


def test_c145_an_address_that_is_not_limited_says_so(
    service: RunningService, rules: RawQuotas
) -> None:
    rules.become(
        world(
            ({"ip": "10.0.0.1"}, I, 2147483647), ({"ip": None}, I, 10), ({"ip": "10.0.0.2"}, I, 7)
        )
    )
    document = resolved(service, ip="10.0.0.1")
    assert document["identity"] == {"ip": "10.0.0.1"}
    quota = document["quotas"][I]
    assert (quota["value"], quota["source"]["level"], quota["source"]["name"]) == (
        2147483647,
        1,
        "ip",
    )
    assert quota["shared_by"] == {"ip": "10.0.0.1"}
    assert quota["overridden"] == [
        {"entity": {"ip": None}, "level": 2, "name": "default-ip", "value": 10}
    ]
    assert [note for note in document["notes"] if "not limited" in note]
    other = resolved(service, ip="10.0.0.3")
    assert (other["quotas"][I]["value"], other["quotas"][I]["source"]["level"]) == (10, 2)
    assert other["notes"] == []


def test_c146_rules_for_users_never_limit_connections(
    service: RunningService, rules: RawQuotas
) -> None:
    rules.become(world((user(None), P, 1)))
    quota = resolved(service, ip="10.0.0.1")["quotas"][I]
    assert (quota["value"], quota["source"], quota["overridden"]) == (None, None, [])


@pytest.mark.parametrize("asked", ["2001:db8::a", "2001:DB8:0:0:0:0:0:A", "2001:db8:0::a"])
def test_an_address_is_found_by_any_spelling(
    service: RunningService, rules: RawQuotas, asked: str
) -> None:
    canonical = {"ip": "2001:db8::a"}
    rules.become(world((canonical, I, 5), ({"ip": None}, I, 1000)))
    document = resolved(service, ip=asked)
    assert document["identity"] == canonical
    assert document["quotas"][I]["source"]["entity"] == canonical


def test_several_spellings_of_one_address_are_named_and_the_canonical_one_is_used(
    service: RunningService, rules: RawQuotas
) -> None:
    rules.become(
        world(({"ip": "10.0.0.9"}, I, 5), ({"ip": "010.0.0.9"}, I, 6), ({"ip": "167772169"}, I, 7))
    )
    document = resolved(service, ip="::ffff:10.0.0.9")
    assert document["identity"] == {"ip": "10.0.0.9"}
    assert document["quotas"][I]["value"] == 5
    (note,) = document["notes"]
    assert "'010.0.0.9'" in note
    assert "'167772169'" in note


def test_a_rule_under_a_host_name_is_left_out_and_noted(
    service: RunningService, rules: RawQuotas
) -> None:
    rules.become(world(({"ip": "localhost"}, I, 1e6)))
    document = resolved(service, ip="127.0.0.1")
    assert document["quotas"][I]["value"] is None
    assert [note for note in document["notes"] if "'localhost'" in note]


@pytest.mark.parametrize(
    ("names", "key", "stored", "value", "words"),
    [
        (user("u"), P, 2.0**63, LARGEST, "does not limit"),
        (user("u"), P, float("nan"), "NaN", "does not limit"),
        (user("u"), C, float("nan"), "NaN", "one batch"),
        (user("u"), R, float("inf"), "Infinity", "does not limit"),
        ({"ip": "10.0.0.1"}, I, 1e-9, 1e-9, "rejected"),
        ({"ip": "10.0.0.1"}, I, float("nan"), "NaN", "rejected"),
    ],
)
def test_a_value_that_does_not_mean_what_it_says_has_a_note(
    service: RunningService,
    rules: RawQuotas,
    names: dict[str, str],
    key: str,
    stored: float,
    *,
    value: object,
    words: str,
) -> None:
    rules.become(world((names, key, stored)))
    document = resolved(service, **names)
    assert document["quotas"][key]["value"] == value
    assert [note for note in document["notes"] if note.startswith(key) and words in note]


def test_default_rules_that_miss_an_empty_client_id_have_a_note(
    service: RunningService, rules: RawQuotas
) -> None:
    rules.become(world((client(None), P, 500)))
    assert [note for note in resolved(service, user="alice")["notes"] if "client-id" in note]
    assert resolved(service, user="alice", **{"client-id": "x"})["notes"] == []


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
