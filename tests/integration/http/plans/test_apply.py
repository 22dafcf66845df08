"""Plan and apply, on a real broker and a real Postgres."""

import httpx

from tests.integration.http.plans.planning import (
    apply,
    audit_rows,
    changes,
    document,
    plan,
    settle,
)
from tests.integration.http.service_calls import C, P, R
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import RunningService


def test_a_plan_says_what_applying_it_does(service: RunningService, raw: RawQuotas) -> None:
    user = {"user": unique("plan")}
    raw.store(user, {P: 1000.0, C: 5.0})
    planned = plan(service, document((user, {P: 2000, R: 12.5})), "team-a")
    assert changes(planned) == [(user, [{"key": P, "value": 2000}, {"key": R, "value": 12.5}])]
    (change,) = planned["changes"]
    assert change["before"] == {P: 1000, C: 5}
    assert change["after"] == {P: 2000, C: 5, R: 12.5}
    assert change["impact"]["keys"][P]["change"] == "raised"
    assert change["impact"]["keys"][P]["factor"] == 2
    assert (planned["conflicts"], planned["kept"]) == ([], [])
    assert raw.stored(user) == {P: 1000.0, C: 5.0}
    fetched = service.api("bob").get(f"/quotas/plans/{planned['plan_id']}")
    assert fetched.json() == planned
    answer = apply(service, planned, reason="INC-1")
    report = answer.json()
    assert answer.headers["Location"] == f"/quotas/alterations/{report['alteration_id']}"
    assert (report["outcome"], report["readable"]) == ("applied", True)
    assert report["results"][0]["after"] == change["after"]
    assert raw.stored(user) == {P: 2000.0, C: 5.0, R: 12.5}
    record = service.api().get(answer.headers["Location"]).json()
    assert (record["action"], record["reason"]) == ("apply_plan", "INC-1")
    (row,) = audit_rows(service, report["alteration_id"])
    expected = {"plan_id": planned["plan_id"], "owner": "team-a", "force": False, "taken_over": {}}
    assert row["plan"] == expected
    assert apply(service, planned).json()["code"] == "plan-outdated"
    assert plan(service, document((user, {P: 2000, R: 12.5})), "team-a")["changes"] == []


def test_an_empty_plan_is_applied_and_has_a_record(service: RunningService) -> None:
    user = {"user": unique("empty")}
    settle(service, document((user, {P: 1})))
    planned = plan(service, document((user, {P: 1})))
    assert planned["changes"] == []
    headers = {"Idempotency-Key": unique("key")}
    path = f"/quotas/plans/{planned['plan_id']}/apply"
    first = service.api().post(path, json={}, headers=headers)
    assert (first.status_code, first.json()["results"]) == (200, [])
    assert first.json()["outcome"] == "applied"
    record = service.api().get(first.headers["Location"]).json()
    assert (record["action"], record["outcome"], record["results"]) == ("apply_plan", "applied", [])
    again = service.api().post(path, json={}, headers=headers)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json() == {**first.json(), "readable": None}


def test_a_key_repeats_an_apply_and_changes_nothing(
    service: RunningService, raw: RawQuotas
) -> None:
    user = {"user": unique("repeat")}
    planned = plan(service, document((user, {P: 7})))
    path = f"/quotas/plans/{planned['plan_id']}/apply"
    headers = {"Idempotency-Key": unique("key")}
    first = service.api().post(path, json={}, headers=headers)
    raw.store(user, {P: 8.0})
    again = service.api().post(path, json={}, headers=headers)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json()["alteration_id"] == first.json()["alteration_id"]
    assert raw.stored(user) == {P: 8.0}


def test_a_moved_base_gives_412_and_changes_nothing(
    service: RunningService, raw: RawQuotas
) -> None:
    moving, still = {"user": unique("moving")}, {"user": unique("still")}
    settle(service, document((moving, {P: 1}), (still, {P: 1})))
    planned = plan(service, document((moving, {P: 2}), (still, {P: 2})))
    raw.store(moving, {P: 3.0})
    answer = apply(service, planned)
    assert (answer.status_code, answer.json()["code"]) == (412, "plan-outdated")
    errors = answer.json()["errors"]
    position = [item["entity"] for item in planned["changes"]].index(moving)
    assert [error["pointer"] for error in errors] == [f"/changes/{position}"]
    assert errors[0]["values"]["current"] == {P: 3}
    assert (raw.stored(moving), raw.stored(still)) == ({P: 3.0}, {P: 1.0})


def test_what_a_plan_found_in_order_must_stay_so(service: RunningService, raw: RawQuotas) -> None:
    changed, unchanged = {"user": unique("changed")}, {"user": unique("unchanged")}
    settle(service, document((unchanged, {P: 1})))
    planned = plan(service, document((changed, {P: 2}), (unchanged, {P: 1})))
    raw.store(unchanged, {P: 9.0})
    headers = {"Idempotency-Key": unique("key")}
    path = f"/quotas/plans/{planned['plan_id']}/apply"
    for replayed in (None, "true"):
        answer = service.api().post(path, json={}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (412, "plan-outdated")
        assert answer.headers.get("Idempotent-Replayed") == replayed
    assert raw.stored(changed) == {}
    empty = plan(service, document((unchanged, {P: 9})))
    raw.store(unchanged, {P: 1.0})
    assert apply(service, empty).status_code == httpx.codes.PRECONDITION_FAILED
