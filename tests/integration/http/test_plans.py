"""Plan and apply, on a real broker and a real Postgres: owners, pruning, force, and exports."""

import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.integration.http.service_calls import C, I, M, P, R, change
from tests.integration.http.test_odd_values import TEXTS
from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.plan_teams import let_two_teams_work
from tests.testkit.raw_quotas import Names, RawQuotas, entity_of
from tests.testkit.service import RunningService
from tests.testkit.sizes import size

Values = Mapping[str, Any]


def document(*quotas: tuple[Names, Values]) -> dict[str, Any]:
    """Return a document of these quotas."""
    listed = [{"entity": dict(names), "values": dict(values)} for names, values in quotas]
    return {"apiVersion": "quotas/v1", "quotas": listed}


def plan(service: RunningService, desired: Any, owner: str = "team", **more: Any) -> dict[str, Any]:
    """Plan as bob, who may describe."""
    body = {"document": desired, "owner": owner, **more}
    answer = service.api("bob").post("/quotas/plans", json=body)
    assert answer.status_code == httpx.codes.OK, answer.text
    document: dict[str, Any] = answer.json()
    return document


def apply(
    service: RunningService, planned: Mapping[str, Any], key: str | None = None, **more: Any
) -> httpx.Response:
    """Apply a plan as alice, who may alter."""
    path = f"/quotas/plans/{planned['plan_id']}/apply"
    headers = {} if key is None else {"Idempotency-Key": key}
    return service.api().post(path, json=more, headers=headers)


def applied(service: RunningService, planned: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Apply a plan that can be applied, and return the alteration."""
    answer = apply(service, planned, **more)
    assert answer.status_code == httpx.codes.OK, answer.text
    report: dict[str, Any] = answer.json()
    assert report["outcome"] == "applied"
    return report


def settle(service: RunningService, desired: Any, owner: str = "team", **more: Any) -> None:
    """Plan and apply."""
    applied(service, plan(service, desired, owner, **more))


def changes(planned: Mapping[str, Any]) -> list[tuple[Names, list[dict[str, Any]]]]:
    """Return what a plan would do."""
    return [(change["entity"], change["ops"]) for change in planned["changes"]]


def exported(service: RunningService) -> Any:
    """Return every quota of the cluster, as YAML is read by everybody."""
    answer = service.api("bob").get("/quotas", headers={"Accept": "application/yaml"})
    return yaml.safe_load(answer.text)


def audit_rows(service: RunningService, alteration_id: str) -> Iterable[Mapping[str, Any]]:
    """Return the audit rows of an alteration."""
    rows = service.api("auditor").get("/audit?action=apply_plan&page_size=1000").json()["rows"]
    return [row for row in rows if row["alteration_id"] == alteration_id]


def test_a_plan_says_what_applying_it_does(service: RunningService, raw: RawQuotas) -> None:
    user = {"user": unique("plan")}
    raw.store(user, {P: 1000.0, C: 5.0})
    planned = plan(service, document((user, {P: 2000, R: 12.5})), "team-a")
    assert changes(planned) == [(user, [{"key": P, "value": 2000}, {"key": R, "value": 12.5}])]
    (only,) = planned["changes"]
    assert only["before"] == {P: 1000, C: 5}
    assert only["after"] == {P: 2000, C: 5, R: 12.5}
    assert only["impact"]["keys"][P]["change"] == "raised"
    assert only["impact"]["keys"][P]["factor"] == 2
    assert (planned["conflicts"], planned["kept"]) == ([], [])
    assert raw.stored(user) == {P: 1000.0, C: 5.0}
    fetched = service.api("bob").get(f"/quotas/plans/{planned['plan_id']}")
    assert fetched.json() == planned
    answer = apply(service, planned, reason="INC-1")
    report = answer.json()
    assert answer.headers["Location"] == f"/quotas/alterations/{report['alteration_id']}"
    assert (report["outcome"], report["readable"]) == ("applied", True)
    assert report["results"][0]["after"] == only["after"]
    assert raw.stored(user) == {P: 2000.0, C: 5.0, R: 12.5}
    record = service.api().get(answer.headers["Location"]).json()
    assert (record["action"], record["reason"]) == ("apply_plan", "INC-1")
    (row,) = audit_rows(service, report["alteration_id"])
    expected = {"plan_id": planned["plan_id"], "owner": "team-a", "force": False, "taken_over": {}}
    assert row["plan"] == expected
    again = problem_of(apply(service, planned), 412)
    assert again["code"] == "plan-outdated"
    assert {(each["pointer"], each["values"]["owner"]) for each in again["errors"]} == {
        ("/changes/0", "team-a")
    }
    assert plan(service, document((user, {P: 2000, R: 12.5})), "team-a")["changes"] == []


def test_an_empty_plan_is_applied_and_has_a_record(service: RunningService) -> None:
    user = {"user": unique("empty")}
    settle(service, document((user, {P: 1})))
    planned = plan(service, document((user, {P: 1})))
    assert planned["changes"] == []
    key = unique("key")
    first = apply(service, planned, key)
    assert (first.status_code, first.json()["results"]) == (200, [])
    assert first.json()["outcome"] == "applied"
    record = service.api().get(first.headers["Location"]).json()
    assert (record["action"], record["outcome"], record["results"]) == ("apply_plan", "applied", [])
    again = apply(service, planned, key)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json() == {**first.json(), "readable": None}


def test_a_key_repeats_an_apply_and_changes_nothing(
    service: RunningService, raw: RawQuotas
) -> None:
    user = {"user": unique("repeat")}
    planned = plan(service, document((user, {P: 7})))
    key = unique("key")
    first = apply(service, planned, key)
    raw.store(user, {P: 8.0})
    again = apply(service, planned, key)
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
    key = unique("key")
    for replayed in (None, "true"):
        answer = apply(service, planned, key)
        assert (answer.status_code, answer.json()["code"]) == (412, "plan-outdated")
        assert answer.headers.get("Idempotent-Replayed") == replayed
    assert raw.stored(changed) == {}
    empty = plan(service, document((unchanged, {P: 9})))
    raw.store(unchanged, {P: 1.0})
    assert apply(service, empty).status_code == httpx.codes.PRECONDITION_FAILED


def test_pruning_removes_only_what_the_owner_applied(
    service: RunningService, raw: RawQuotas
) -> None:
    prefix, owner = unique("prune"), unique("owner")
    mine, partly, theirs = ({"user": f"{prefix}-{item}"} for item in ("a", "b", "c"))
    raw.store(partly, {C: 7.0})
    settle(service, document((theirs, {P: 3})), unique("other"))
    settle(service, document((mine, {P: 1, C: 1}), (partly, {P: 2})), owner)
    scope = [f"user^={prefix}"]
    desired = document((mine, {P: 1}))
    assert plan(service, desired, owner, scope=scope)["changes"] == []
    planned = plan(service, desired, owner, scope=scope, prune=True)
    assert changes(planned) == [
        (mine, [{"key": C, "remove": True}]),
        (partly, [{"key": P, "remove": True}]),
    ]
    applied(service, planned)
    assert [raw.stored(item) for item in (mine, partly, theirs)] == [{P: 1.0}, {C: 7.0}, {P: 3.0}]
    again = plan(service, desired, owner, scope=scope, prune=True)
    assert (again["changes"], again["kept"]) == ([], [])


def test_what_another_owner_holds_is_left_to_it_without_force(
    service: RunningService, raw: RawQuotas
) -> None:
    user, first, second = {"user": unique("held")}, unique("first"), unique("second")
    settle(service, document((user, {P: 1})), first)
    assert plan(service, document((user, {P: 1})), second)["conflicts"] == []
    planned = plan(service, document((user, {P: 2, C: 2})), second)
    conflict = {"entity": user, "key": P, "owner": first, "held": 1, "current": 1, "proposed": 2}
    assert planned["conflicts"] == [conflict]
    refused = apply(service, planned)
    assert (refused.status_code, refused.json()["code"]) == (409, "owner-conflict")
    assert "Retry-After" not in refused.headers
    assert raw.stored(user) == {P: 1.0}
    report = applied(service, planned, force=True)
    assert raw.stored(user) == {P: 2.0, C: 2.0}
    (row,) = audit_rows(service, report["alteration_id"])
    assert row["plan"]["taken_over"] == {P: first}
    assert row["plan"]["force"]
    back = plan(service, document((user, {P: 1})), first)
    assert [item["owner"] for item in back["conflicts"]] == [second]
    assert plan(service, document(), first, prune=True)["changes"] == []


def test_an_owner_that_came_meanwhile_is_respected(service: RunningService) -> None:
    """Its value is the one that the plan saw, so only the owner tells."""
    user, first, second = {"user": unique("race")}, unique("first"), unique("second")
    assert service.alter(change(user, {P: 1})).status_code == httpx.codes.OK
    planned = plan(service, document((user, {P: 2})), first)
    settle(service, document((user, {P: 1})), second, adopt=True)
    for force, status, code in ((False, 409, "owner-conflict"), (True, 412, "plan-outdated")):
        problem = problem_of(apply(service, planned, force=force), status)
        (error,) = problem["errors"]
        assert (problem["code"], error["code"], error["pointer"]) == (code, code, "/changes/0")
        assert error["values"] == {"owner": second}
        assert second in error["detail"]


def test_what_is_adopted_can_be_pruned(service: RunningService, raw: RawQuotas) -> None:
    user, odd, owner = {"user": unique("adopt")}, {"user": unique("odd")}, unique("owner")
    raw.store(user, {P: 1.0})
    raw.store(odd, {P: float("nan"), C: 1e-9})
    desired = document((user, {P: 1}), (odd, {P: "NaN", C: 1e-9}))
    assert plan(service, desired, owner)["changes"] == []
    planned = plan(service, desired, owner, adopt=True)
    assert changes(planned) == [(user, [{"key": P, "value": 1}])]
    assert planned["changes"][0]["impact"]["keys"][P]["change"] == "unchanged"
    report = applied(service, planned)
    assert [result["changed"] for result in report["results"]] == [False]
    assert plan(service, desired, owner, adopt=True)["changes"] == []
    settle(service, document(), owner, prune=True)
    assert raw.stored(user) == {}


def test_nobody_s_values_are_lost_and_nothing_outside_is_touched(
    service: RunningService, raw: RawQuotas
) -> None:
    steps = size(25, 100)
    for statuses in let_two_teams_work(service, raw, steps):
        assert statuses.count(200) > steps / 5


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
