"""Budgets: who counts, what a sum is, what raises it, and what is asked of a broker for it."""

import math
from decimal import Decimal
from typing import Any

import pytest

from app.domain.alterations import ClientQuotaAlteration, Op, Quotas
from app.domain.budgets import Budget, budget_rows, budget_violations, budgets_of
from app.domain.entities import ALL_ENTITIES, ClientQuotaEntity

P, R = "producer_byte_rate", "request_percentage"


def entity(**names: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity.of({kind.replace("_", "-"): name for kind, name in names.items()})


def budget(limit: float = 100, *, key: str = P, users: Any = "a-", **others: Any) -> Budget:
    return Budget("team-a", {key: Decimal(str(limit))}, users, **others)


def setting(value: float, key: str = P, **names: str | None) -> ClientQuotaAlteration:
    return ClientQuotaAlteration(entity(**names), (Op(key, Decimal(str(value))),))


def removing(key: str = P, **names: str | None) -> ClientQuotaAlteration:
    return ClientQuotaAlteration(entity(**names), (Op(key, remove=True),))


COVERED = [
    ({"user": "a-1"}, True),
    ({"user": "a-"}, True),
    ({"user": "a-1", "client_id": "etl"}, True),
    ({"user": "a-1", "client_id": None}, True),
    ({"user": "A-1"}, False),
    ({"user": "b-1"}, False),
    ({"user": None}, False),
    ({"client_id": "a-1"}, False),
    ({"ip": "10.0.0.1"}, False),
]


@pytest.mark.parametrize(("names", "counts"), COVERED)
def test_a_prefix_of_users_covers_their_entities_and_pairs(names: dict[str, Any], counts: bool):
    assert budget().covers(entity(**names)) is counts


def test_a_list_names_users_and_an_empty_prefix_is_everybody_with_the_default():
    names, everybody = budget(users=frozenset({"x"})), budget(users="")
    assert [names.covers(entity(user=user)) for user in ("x", "xy", None)] == [True, False, False]
    assert [everybody.covers(entity(user=user)) for user in ("x", None)] == [True, True]
    assert not everybody.covers(entity(client_id="x"))


def test_where_users_and_client_ids_are_named_both_have_to_match():
    both = budget(client_ids="etl-")
    assert both.covers(entity(user="a-1", client_id="etl-2"))
    assert not both.covers(entity(user="a-1"))
    assert not both.covers(entity(user="a-1", client_id="other"))
    assert budget(users=None, client_ids="etl-").covers(entity(user=None, client_id="etl-1"))


def test_a_broker_is_asked_for_names_one_by_one_and_for_a_prefix_for_all():
    assert budget().filters == [ALL_ENTITIES]
    filters = budget(users=frozenset({"y", "x"})).filters
    for user, client in (("x", None), ("y", "etl")):
        pair = {"user": user} | ({} if client is None else {"client_id": client})
        assert any(each.matches(entity(**pair)) for each in filters)
    assert not any(each.matches(entity(user="z")) for each in filters)


def test_what_sets_a_value_of_a_budget_touches_it_and_a_removal_does_not():
    budgets = [budget()]
    assert budgets_of(budgets, [setting(1, user="a-1")]) == tuple(budgets)
    assert budgets_of(budgets, [setting(1, user="b-1"), setting(1, key=R, user="a-1")]) == ()
    assert budgets_of(budgets, [removing(user="a-1")]) == ()


STORED: Quotas = {
    entity(user="a-1"): {P: 40.0},
    entity(user="a-1", client_id="etl"): {P: 30.0},
    entity(user="a-2"): {R: 5.0},
    entity(user="b-1"): {P: 1000.0},
}

CASES: list[tuple[str, list[ClientQuotaAlteration], float | None]] = [
    ("what fits to the last byte", [setting(30, user="a-3")], None),
    ("one byte more", [setting(31, user="a-3")], 101),
    ("a raise of what counts already", [setting(71, user="a-1")], 101),
    ("several that fit one by one", [setting(20, user="a-3"), setting(20, user="a-4")], 110),
    ("what moves", [setting(10, user="a-1"), setting(60, user="a-3")], None),
    ("a removal beside", [removing(user="a-1"), setting(70, user="a-3")], None),
    ("a user of nobody's budget", [setting(5000, user="c")], None),
    ("a removal", [removing(user="a-1")], None),
]


@pytest.mark.parametrize(("name", "alterations", "total"), CASES)
def test_the_sum_is_what_would_hold_after_the_whole_request(
    name: str, alterations: list[ClientQuotaAlteration], total: float | None
):
    found = budget_violations([budget()], alterations, STORED)
    assert (
        [each.budget and each.budget["sum"] for each in found] == [] if total is None else [total]
    )


def test_a_sum_over_the_limit_may_be_lowered_or_left_and_not_raised():
    tight = [budget(50)]
    assert not budget_violations(tight, [setting(39, user="a-1")], STORED)
    assert not budget_violations(tight, [setting(40, user="a-1")], STORED)
    assert budget_violations(tight, [setting(41, user="a-1")], STORED)


def test_overbooking_lets_a_sum_be_so_much_larger():
    wide = [budget(100, overbooking=Decimal("1.1"))]
    assert not budget_violations(wide, [setting(40, user="a-3")], STORED)
    (found,) = budget_violations(wide, [setting(41, user="a-3")], STORED)
    assert found.budget is not None
    assert (found.budget["limit"], found.budget["overbooking"]) == (100, Decimal("1.1"))


def test_fractions_add_up_as_they_are_written():
    assert not budget_violations(
        [budget(0.3, key=R)],
        [setting(0.1, key=R, user="a-1"), setting(0.2, key=R, user="a-2")],
        {},
    )


def test_the_entry_names_the_first_raise_and_the_five_largest():
    stored = {entity(user=f"a-{n}"): {P: float(n)} for n in range(1, 8)}
    alterations = [
        setting(1, user="a-7"),
        ClientQuotaAlteration(entity(user="a-8"), (Op(R, Decimal(1)), Op(P, Decimal(90)))),
        setting(50, user="a-9"),
    ]
    (found,) = budget_violations([budget()], alterations, stored)
    assert (found.pointer, found.code) == ("/alterations/1/ops/1/value", "budget-exceeded")
    assert found.detail == (
        "Budget team-a: producer_byte_rate would add up to 162 B/s, and may to 100 B/s at most."
    )
    assert found.budget == {
        "name": "team-a",
        "key": P,
        "sum": 162.0,
        "limit": 100,
        "overbooking": 1,
        "largest": [
            {"entity": {"user": f"a-{n}"}, "value": value}
            for n, value in ((8, 90), (9, 50), (6, 6), (5, 5), (4, 4))
        ],
    }


def test_each_key_and_each_budget_has_an_entry_of_its_own():
    two = Budget("two", {P: Decimal(1), R: Decimal(1)}, "a-")
    other = Budget("other", {P: Decimal(1)}, None, "etl")
    alterations = [
        ClientQuotaAlteration(
            entity(user="a-1", client_id="etl"), (Op(P, Decimal(5)), Op(R, Decimal(5)))
        )
    ]
    found = budget_violations([two, other], alterations, {})
    named = [(each.budget["name"], each.budget["key"]) for each in found if each.budget]
    assert named == [("two", P), ("two", R), ("other", P)]


def test_what_is_no_number_is_no_limit_and_may_be_made_a_number():
    stored = {entity(user="a-1"): {P: math.nan}}
    assert not budget_violations([budget()], [setting(99, user="a-1")], stored)
    assert not budget_violations([budget()], [setting(500, user="a-2")], stored)
    unlimited = [setting(2**63, user="a-2")]
    assert budget_violations([budget()], unlimited, {})


def test_a_row_says_how_full_it_is_and_who_has_no_value():
    (row,) = budget_rows([budget()], STORED)
    assert (row.sum, row.entities, row.unlimited) == (70.0, 3, 1)
    assert row.without_value == [entity(user="a-2")]
    assert [value for _, value in row.largest] == [40.0, 30.0]
