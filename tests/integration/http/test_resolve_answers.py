"""What a resolution says beside the limit: levels, notes, addresses, ages, many at once."""

from tests.integration.http.service_calls import P, change
from tests.integration.http.worlds import resolved, world_of
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.resolution_cases import F2
from tests.testkit.service import RunningService


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
