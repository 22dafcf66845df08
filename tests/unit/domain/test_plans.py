"""Plans, worked out without a cluster."""

from collections.abc import Mapping
from decimal import Decimal
from math import isfinite
from typing import Any

import pytest

from app.domain.alterations import quota_value_json
from app.domain.entities import ClientQuotaEntity, ClientQuotaFilterComponent
from app.domain.plans import (
    DesiredQuota,
    DesiredValue,
    Holding,
    Plan,
    PlanRequest,
    WhyKept,
    base_of,
    make_plan,
)

P, C, R, I = (  # noqa: E741
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "connection_creation_rate",
)
NAN, INFINITY = float("nan"), float("inf")
TEAM, OTHER = "team", "other"


def entity(**names: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity.of({kind.replace("_", "-"): name for kind, name in names.items()})


ALICE, BOB, DEFAULT = entity(user="alice"), entity(user="bob"), entity(user=None)

Desired = Mapping[ClientQuotaEntity, Mapping[str, DesiredValue | int]]


def wanted(desired: Desired, **more: Any) -> PlanRequest:
    quotas = tuple(
        DesiredQuota(
            item,
            {
                key: Decimal(value) if isinstance(value, int) else value
                for key, value in values.items()
            },
        )
        for item, values in desired.items()
    )
    return PlanRequest(quotas, TEAM, **more)


def ops(plan: Plan) -> dict[ClientQuotaEntity, list[tuple[str, float | None]]]:
    return {
        change.alteration.entity: [
            (op.key, None if op.value is None else float(op.value)) for op in change.alteration.ops
        ]
        for change in plan.changes
    }


def violations_of(plan: Plan) -> set[tuple[str, str]]:
    return {(violation.pointer, violation.code) for violation in plan.violations}


STORED = {
    ALICE: {P: 1000.0, C: 2.0**63, "future_key": 7.0},
    BOB: {P: NAN, C: INFINITY, R: 1e-9},
    entity(user="large"): {P: 2.0**53 + 2, C: 1e300, R: 12345678901234567890.0},
    DEFAULT: {P: 5.0},
    entity(ip="::ffff:10.0.0.1"): {I: 5.0},
    entity(ip="broker.example"): {I: 0.5},
}


def as_desired(stored: Mapping[ClientQuotaEntity, Mapping[str, float]]) -> Desired:
    """Return a document as an export of these values is read."""
    return {
        item: {
            key: Decimal(str(quota_value_json(value))) if isfinite(value) else value
            for key, value in values.items()
        }
        for item, values in stored.items()
    }


@pytest.mark.parametrize("prune", [False, True])
def test_an_export_plans_to_nothing_however_odd(prune: bool):
    plan = make_plan(wanted(as_desired(STORED), prune=prune), STORED, {})
    assert plan.changes == plan.violations == ()
    assert set(plan.rests_on) == set(STORED)


def test_the_customary_word_for_unlimited_is_2_to_the_63():
    plan = make_plan(wanted({ALICE: {C: 2**63 - 1}}), STORED, {})
    assert plan.changes == plan.violations == ()


def test_only_the_keys_that_the_document_names_are_compared():
    plan = make_plan(
        wanted({ALICE: {P: 2000}, entity(user="new"): {R: Decimal("0.5")}}), STORED, {}
    )
    assert ops(plan) == {ALICE: [(P, 2000.0)], entity(user="new"): [(R, 0.5)]}
    first = plan.changes[0]
    assert first.before == STORED[ALICE]
    assert first.after == {**STORED[ALICE], P: 2000.0}
    assert plan.rests_on == {ALICE: {P: 1000.0}, entity(user="new"): {R: None}}


def test_changes_come_in_the_order_of_listings():
    desired = {entity(user="z"): {P: 1}, entity(ip="10.0.0.9"): {I: 1}, DEFAULT: {P: 1}}
    plan = make_plan(wanted(desired), {}, {})
    assert list(ops(plan)) == [entity(ip="10.0.0.9"), DEFAULT, entity(user="z")]


def test_an_address_is_planned_in_its_canonical_text():
    plan = make_plan(wanted({entity(ip="::ffff:10.0.0.1"): {I: 6}}), STORED, {})
    assert ops(plan) == {entity(ip="10.0.0.1"): [(I, 6.0)]}


BROKEN = {
    "a fraction": ({ALICE: {P: Decimal("1.5")}}, {("values/producer_byte_rate", "fraction")}),
    "not a number": ({ALICE: {P: NAN}}, {("values/producer_byte_rate", "not-finite")}),
    "infinity": ({ALICE: {R: INFINITY}}, {("values/request_percentage", "not-finite")}),
    "an unknown key": ({ALICE: {"a/b": 1}}, {("values/a~1b", "unknown-key")}),
    "a host name": ({entity(ip="broker.example"): {I: 6}}, {("entity/ip", "not-an-ip-address")}),
    "two kinds": (
        {entity(ip="10.0.0.1", user="u"): {P: 1}},
        {("entity", "invalid-entity-combination")},
    ),
}


def test_what_would_change_is_held_against_the_rules(subtests: pytest.Subtests):
    for name, (desired, expected) in BROKEN.items():
        with subtests.test(name):
            plan = make_plan(wanted(desired), STORED, {})
            assert {
                (f"/document/quotas/0/{pointer}", code) for pointer, code in expected
            } <= violations_of(plan)
            assert plan.changes == ()


def test_too_many_changes_are_a_violation_of_the_document():
    desired = {entity(user=f"u{number}"): {P: 1} for number in range(10_001)}
    assert violations_of(make_plan(wanted(desired), {}, {})) == {
        ("/document/quotas", "too-many-changes")
    }


def test_an_entity_occurs_once():
    request = wanted({ALICE: {P: 1}})
    twice = PlanRequest(request.quotas * 2, TEAM)
    assert violations_of(make_plan(twice, STORED, {})) == {
        ("/document/quotas/1/entity", "duplicate-entity")
    }
    spellings = {entity(ip="10.0.0.7"): {I: 1}, entity(ip="::ffff:10.0.0.7"): {I: 1}}
    assert violations_of(make_plan(wanted(spellings), {}, {})) == {
        ("/document/quotas/1/entity", "duplicate-entity")
    }


USERS_A = (ClientQuotaFilterComponent.of_entity("user", "alice"),)


def test_an_entity_of_the_document_outside_the_scope_is_refused():
    plan = make_plan(wanted({ALICE: {P: 1}, BOB: {P: 1}}, scope=USERS_A), STORED, {})
    assert violations_of(plan) == {("/document/quotas/1/entity", "outside-scope")}


HELD = {
    ALICE: {P: Holding(TEAM, 1000.0), C: Holding(OTHER, 2.0**63), "future_key": Holding(TEAM, 8.0)},
    DEFAULT: {P: Holding(TEAM, 5.0), C: Holding(TEAM, 1.0)},
}


def test_without_prune_nothing_is_removed():
    plan = make_plan(wanted({}), STORED, HELD)
    assert (plan.changes, plan.unpruned, plan.rests_on) == ((), (), {})


def test_pruning_is_about_what_the_owner_applied_and_is_still_so():
    plan = make_plan(wanted({}, prune=True), STORED, HELD)
    assert ops(plan) == {DEFAULT: [(P, None)], ALICE: [(P, None)]}
    assert plan.changes[0].after == {}
    assert [(item.entity, item.key, item.value, item.reason) for item in plan.unpruned] == [
        (ALICE, "future_key", 7.0, WhyKept.CHANGED_SINCE)
    ]
    assert plan.rests_on == {ALICE: {P: 1000.0}, DEFAULT: {P: 5.0}}
    assert plan.conflicts == ()


def test_pruning_spares_what_the_document_names_and_what_is_outside_the_scope():
    plan = make_plan(wanted({DEFAULT: {P: 5}}, prune=True), STORED, HELD)
    assert ops(plan) == {ALICE: [(P, None)]}
    plan = make_plan(wanted({}, prune=True, scope=USERS_A), STORED, HELD)
    assert ops(plan) == {ALICE: [(P, None)]}


def test_a_key_of_another_owner_is_a_conflict_only_if_it_would_change():
    plan = make_plan(wanted({ALICE: {C: 2**63, P: 1}}), STORED, HELD)
    assert plan.conflicts == ()
    plan = make_plan(wanted({ALICE: {C: 9, P: 1}}), STORED, HELD)
    (conflict,) = plan.conflicts
    assert (conflict.key, conflict.owner, conflict.held, conflict.proposed) == (
        C,
        OTHER,
        2.0**63,
        9.0,
    )
    assert plan.changes[0].holders == {C: OTHER, P: TEAM}


def test_a_key_that_is_not_stored_any_more_conflicts_with_nobody():
    held = {ALICE: {R: Holding(OTHER, 1.0)}}
    plan = make_plan(wanted({ALICE: {R: 2}}), STORED, held)
    assert (ops(plan), plan.conflicts) == ({ALICE: [(R, 2.0)]}, ())


def test_adopting_is_an_operation_that_changes_no_value():
    desired = as_desired(STORED)
    plan = make_plan(wanted(desired, adopt=True), STORED, HELD)
    assert ops(plan)[ALICE] == [(C, 2.0**63), ("future_key", 7.0)]
    assert set(ops(plan)) == {ALICE, entity(user="large")}
    assert all(change.before == change.after for change in plan.changes)
    assert [(conflict.key, conflict.owner) for conflict in plan.conflicts] == [(C, OTHER)]


def test_the_base_is_that_of_values_and_owners():
    request = wanted({ALICE: {P: 1}, BOB: {P: NAN}})
    base = base_of("cluster", make_plan(request, STORED, {}))
    assert base == base_of("cluster", make_plan(request, dict(reversed(STORED.items())), {}))
    elsewhere = {**STORED, DEFAULT: {P: 6.0}, ALICE: {**STORED[ALICE], C: 1.0}}
    assert base == base_of("cluster", make_plan(request, elsewhere, {}))
    moved = {**STORED, BOB: {P: 1.0}}
    others = [
        base_of("another", make_plan(request, STORED, {})),
        base_of("cluster", make_plan(wanted({ALICE: {P: 1}, BOB: {P: 1}}), moved, {})),
        base_of("cluster", make_plan(request, STORED, HELD)),
        base_of("cluster", make_plan(request, {BOB: STORED[BOB]}, {})),
    ]
    assert len({base, *others}) == 5
