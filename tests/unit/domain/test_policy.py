"""What a policy covers: principals, entities, keys, values, removal and default entities."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.alterations import ClientQuotaAlteration, Op
from app.domain.authorization import KeyLimits, Policy, PolicyRule
from app.domain.entities import ClientQuotaEntity, ClientQuotaFilter, MatchType
from app.domain.entities import ClientQuotaFilterComponent as Component

PRODUCE = "producer_byte_rate"
CONSUME = "consumer_byte_rate"
CI = "User:ci"

TEAM_A = ClientQuotaFilter((Component("user", MatchType.PREFIX, "team-a-"),), strict=True)
ANY_IP = ClientQuotaFilter((Component.of_entity_type("ip"),), strict=True)
ANY_USER = ClientQuotaFilter((Component.of_entity_type("user"),), strict=True)
LIMITS = KeyLimits(Decimal(10), Decimal(100))


def rule(**changes: Any) -> PolicyRule:
    members = {
        "name": "team-a",
        "principals": frozenset({CI}),
        "entities": (TEAM_A,),
        "keys": {PRODUCE: LIMITS},
    }
    return PolicyRule(**{**members, **changes})


def of(entity: dict[str, str | None], *ops: Op) -> ClientQuotaAlteration:
    return ClientQuotaAlteration(ClientQuotaEntity.of(entity), ops or (setting(50),))


def setting(value: float | str, key: str = PRODUCE) -> Op:
    return Op(key, Decimal(value))


def codes(policy: Policy, *alterations: ClientQuotaAlteration, principal: str = CI) -> list[str]:
    return [violation.code for violation in policy.violations(principal, alterations)]


def test_a_pattern_covers_entities_of_exactly_its_types(subtests: pytest.Subtests):
    for entity, expected in [
        ({"user": "team-a-etl"}, []),
        ({"user": "team-a-"}, []),
        ({"user": "team-b-etl"}, ["entity-not-covered"]),
        ({"user": "Team-a-etl"}, ["entity-not-covered"]),
        ({"user": None}, ["entity-not-covered"]),
        ({"user": "team-a-etl", "client-id": "x"}, ["entity-not-covered"]),
        ({"user": "team-a-etl", "client-id": None}, ["entity-not-covered"]),
        ({"client-id": "team-a-etl"}, ["entity-not-covered"]),
        ({"ip": "10.0.0.1"}, ["entity-not-covered"]),
        ({}, ["entity-not-covered"]),
    ]:
        with subtests.test(entity=entity, expected=expected):
            assert codes(Policy((rule(),)), of(entity)) == expected


@pytest.mark.parametrize("defaults", [True, False])
def test_a_default_entity_needs_a_rule_that_says_so(defaults: bool):
    policy = Policy((rule(entities=(ANY_USER,), defaults=defaults),))
    assert codes(policy, of({"user": "x"})) == []
    expected = [] if defaults else ["default-entity-not-covered"]
    assert codes(policy, of({"user": None})) == expected


def test_bounds_are_inclusive_and_exact(subtests: pytest.Subtests):
    for value, expected in [
        ("10", []),
        ("100", []),
        ("9.999999999999999999999", ["value-out-of-range"]),
        ("100.0000000000000000001", ["value-out-of-range"]),
        ("1e400", ["value-out-of-range"]),
        ("-5", ["value-out-of-range"]),
        ("NaN", ["value-out-of-range"]),
        ("Infinity", ["value-out-of-range"]),
    ]:
        with subtests.test(value=value):
            assert codes(Policy((rule(),)), of({"user": "team-a-x"}, setting(value))) == expected


@pytest.mark.parametrize("written", [2**63 - 1, 2**63])
def test_both_spellings_of_unlimited_are_one_value(written: int):
    over = Policy((rule(),))
    within = Policy((rule(keys={PRODUCE: KeyLimits(maximum=Decimal(2**63))}),))
    only = Policy((rule(keys={PRODUCE: KeyLimits(minimum=Decimal(2**63))}),))
    alteration = of({"user": "team-a-x"}, setting(written))
    assert codes(over, alteration) == ["value-out-of-range"]
    assert codes(within, alteration) == codes(only, alteration) == []


def test_removal_needs_permission_of_its_own():
    removal = of({"user": "team-a-x"}, Op(PRODUCE, remove=True))
    assert codes(Policy((rule(),)), removal) == ["removal-not-covered"]
    assert codes(Policy((rule(keys={PRODUCE: KeyLimits(remove=True)}),)), removal) == []


def test_a_key_that_is_named_has_its_own_limits_and_the_star_those_of_the_others():
    policy = Policy((rule(keys={PRODUCE: LIMITS, "*": KeyLimits(maximum=Decimal(5))}),))
    ops = (setting(50), setting(5, CONSUME), setting(6, "request_percentage"))
    assert codes(policy, of({"user": "team-a-x"}, *ops)) == ["value-out-of-range"]
    only = Policy((rule(),))
    assert codes(only, of({"user": "team-a-x"}, setting(5, CONSUME))) == ["key-not-covered"]


def test_rules_add_up_but_for_one_entity_and_key():
    other = rule(name="more", keys={CONSUME: KeyLimits(), PRODUCE: KeyLimits(Decimal(1000))})
    policy = Policy((rule(), other))
    ops = (setting(50), setting(5000), setting(1, CONSUME))
    assert codes(policy, of({"user": "team-a-x"}, *ops)) == []
    assert codes(policy, of({"user": "team-a-x"}, setting(500))) == ["value-out-of-range"]


@pytest.mark.parametrize("others_may", [True, False])
def test_a_caller_without_a_rule_is_refused_unless_others_may(others_may: bool):
    policy = Policy((rule(),), others_may)
    expected = [] if others_may else ["principal-not-covered"]
    for principal in ("User:carol", "User:CI", "Group:ci", "ci", "*"):
        assert codes(policy, of({"user": "team-a-x"}), principal=principal) == expected


def test_the_star_names_everybody():
    policy = Policy((rule(principals=frozenset({"*"})),), others_may=True)
    assert codes(policy, of({"user": "team-a-x"}), principal="User:carol") == []
    assert codes(policy, of({"user": "x"}), principal="User:carol") == ["entity-not-covered"]


def test_an_address_is_judged_in_the_spelling_that_is_sent():
    exact = ClientQuotaFilter((Component.of_entity("ip", "10.0.0.1"),), strict=True)
    key = "connection_creation_rate"
    limits = {key: KeyLimits(remove=True)}
    policy = Policy((rule(entities=(exact,), keys=limits),))
    assert codes(policy, of({"ip": "::ffff:10.0.0.1"}, setting(5, key))) == []
    removal = Op(key, remove=True)
    assert codes(policy, of({"ip": "10.0.0.1"}, removal)) == []
    assert codes(policy, of({"ip": "::ffff:10.0.0.1"}, removal)) == ["entity-not-covered"]


def test_every_violation_has_its_pointer():
    policy = Policy((rule(),))
    alterations = (
        of({"user": "team-a-x"}, setting(50), setting(500), Op(PRODUCE, remove=True)),
        of({"user": "team-b-x"}),
        of({"user": "team-a-x"}, setting(5, CONSUME)),
    )
    violations = policy.violations(CI, alterations)
    assert [(violation.pointer, violation.index) for violation in violations] == [
        ("/alterations/0/ops/1/value", 0),
        ("/alterations/0/ops/2/remove", 0),
        ("/alterations/1/entity", 1),
        ("/alterations/2/ops/0/key", 2),
    ]
    assert all(violation.kafka_error is None for violation in violations)
    assert "from 10 up to 100" in violations[0].detail


def test_what_is_wrong_otherwise_is_not_judged_here():
    policy = Policy((rule(),))
    assert codes(policy) == []
    assert codes(policy, of({"user": "team-a-x"}, Op(PRODUCE))) == []


NAMES = st.sampled_from(["team-a-x", "team-b-x", None])
ENTITIES = st.dictionaries(st.sampled_from(["user", "client-id", "ip"]), NAMES, min_size=1)
OPS = st.builds(
    Op,
    st.sampled_from([PRODUCE, CONSUME]),
    st.none() | st.decimals(min_value=1, max_value=200, places=2),
    st.booleans(),
)
ALTERATIONS = st.lists(
    st.builds(lambda entity, ops: of(entity, *ops), ENTITIES, st.lists(OPS, min_size=1)), max_size=4
)


@given(ALTERATIONS)
def test_a_further_rule_never_takes_away_and_a_rule_less_never_adds(alterations: list):
    first, second = rule(), rule(name="ips", entities=(ANY_IP, ANY_USER), defaults=True)
    narrow = {violation.pointer for violation in Policy((first,)).violations(CI, alterations)}
    wide = {violation.pointer for violation in Policy((first, second)).violations(CI, alterations)}
    refused = {pointer.split("/ops")[0].removesuffix("/entity") for pointer in narrow}
    assert {pointer.split("/ops")[0].removesuffix("/entity") for pointer in wide} <= refused
    assert Policy((), others_may=True).violations(CI, alterations) == []


def test_a_rule_bounds_for_how_long_and_what_holds_for_a_time_only():
    bounded = rule(max_duration=timedelta(hours=8), temporary_above={PRODUCE: Decimal(50)})
    free = rule(name="free", keys={PRODUCE: KeyLimits(maximum=Decimal(60))})

    def found(value: float, lasts: timedelta | None, *rules: PolicyRule) -> list[str]:
        change = of({"user": "team-a-etl"}, setting(value))
        violations = Policy(rules).violations(CI, [change], lasts)
        return [f"{violation.code} {violation.pointer}" for violation in violations]

    night, week = timedelta(hours=8), timedelta(days=7)
    assert found(50, None, bounded) == found(100, night, bounded) == []
    assert found(51, None, bounded) == ["only-for-a-time /alterations/0/ops/0/value"]
    assert found(100, week, bounded) == ["duration-too-long /expires_in"]
    assert found(55, None, bounded, free) == found(55, week, bounded, free) == []
    assert found(70, None, bounded, free) == ["only-for-a-time /alterations/0/ops/0/value"]
