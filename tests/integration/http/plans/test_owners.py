"""Owners: what is theirs, what pruning may remove, what force takes over."""

import httpx

from tests.integration.http.plans.planning import (
    applied,
    apply,
    audit_rows,
    changes,
    document,
    plan,
    settle,
)
from tests.integration.http.service_calls import C, P, change
from tests.testkit.kafka import unique
from tests.testkit.plan_teams import let_two_teams_work
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import RunningService
from tests.testkit.sizes import size


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
    refused = apply(service, planned)
    assert (refused.status_code, refused.json()["code"]) == (409, "owner-conflict")
    forced = apply(service, planned, force=True)
    assert (forced.status_code, forced.json()["code"]) == (412, "plan-outdated")


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


STEPS = size(25, 100)
"""Of each."""


def test_nobody_s_values_are_lost_and_nothing_outside_is_touched(
    service: RunningService, raw: RawQuotas
) -> None:
    for statuses in let_two_teams_work(service, raw, STEPS):
        assert statuses.count(200) > STEPS / 5
