"""The numbered authorization cases and the table of ACLs, as the broker decides them."""

from dataclasses import dataclass, field

import pytest

from app.domain.authorization import (
    AclBinding,
    AuthorizerSettings,
    DecisionRule,
    Operation,
    authorize,
    parse_super_users,
)

ALICE, BOB, EVERYBODY = "User:alice", "User:bob", "User:*"


def allow(operation: str, principal: str = ALICE, host: str = "*") -> AclBinding:
    return AclBinding("kafka-cluster", "LITERAL", principal, host, operation, "ALLOW")


def deny(operation: str, principal: str = ALICE) -> AclBinding:
    return AclBinding("kafka-cluster", "LITERAL", principal, "*", operation, "DENY")


@dataclass(frozen=True)
class Case:
    """ACLs on the cluster, and what alice may: null where the case does not ask."""

    acls: list[AclBinding]
    describes: bool | None
    alters: bool | None
    super_users: str = ""
    everyone: bool = False
    host: str = "10.0.0.5"
    rules: set[DecisionRule] = field(default_factory=set)


def verdict(case: Case, operation: Operation) -> tuple[bool, DecisionRule]:
    settings = AuthorizerSettings(parse_super_users(case.super_users), case.everyone)
    decision = authorize(ALICE, case.host, operation, case.acls, settings)
    return decision.allowed, decision.rule


SUPER, DENY, ALLOW = DecisionRule.SUPER_USER, DecisionRule.DENY_ACL, DecisionRule.ALLOW_ACL
NONE, UNMATCHED = DecisionRule.NO_ACL_FOUND, DecisionRule.NO_MATCHING_ACL
ANY_NAME = AclBinding("*", "LITERAL", ALICE, "*", "ALTER_CONFIGS", "ALLOW")
FROM_5 = [allow("ALTER_CONFIGS", host="10.0.0.5")]
FROM_6 = [allow("ALTER_CONFIGS", host="10.0.0.6")]

NUMBERED = {
    "C149": Case([], False, False, rules={NONE}),
    "C151": Case([allow("DESCRIBE", BOB)], False, False, everyone=True, rules={UNMATCHED}),
    "C152": Case([], True, None, everyone=True, rules={NONE}),
    "C154": Case([allow("ALTER_CONFIGS")], True, True, rules={ALLOW}),
    "C155": Case([allow("DESCRIBE")], False, None, rules={UNMATCHED}),
    "C157": Case([allow("CLUSTER_ACTION")], False, False, rules={UNMATCHED}),
    "C158": Case([allow("ALL")], True, True, rules={ALLOW}),
    "C160": Case(
        [allow("ALTER_CONFIGS"), deny("DESCRIBE_CONFIGS")], False, True, rules={DENY, ALLOW}
    ),
    "C161": Case([allow("ALL"), deny("ALL")], False, False, rules={DENY}),
    "C163": Case(
        [deny("ALTER_CONFIGS", EVERYBODY), allow("ALTER_CONFIGS")], True, False, rules={DENY, ALLOW}
    ),
    "C164 from 10.0.0.5": Case(FROM_5, None, True, rules={ALLOW}),
    "C164 from 10.0.0.6": Case(FROM_5, None, False, host="10.0.0.6", rules={UNMATCHED}),
    "C166": Case(FROM_6, None, False, everyone=True, rules={UNMATCHED}),
    "C167": Case([deny("ALL")], True, True, super_users="User:alice", rules={SUPER}),
    "C169": Case([], False, None, super_users="User:*", rules={NONE}),
    "C170": Case([ANY_NAME], None, True, rules={ALLOW}),
}

TABLE = {
    "none, allow.everyone=false": Case([], False, False),
    "none at all, allow.everyone=true": Case([], True, True, everyone=True),
    "none for alice but bob has one, allow.everyone=true": Case(
        [allow("ALL", BOB)], False, False, everyone=True
    ),
    "ALLOW DESCRIBE_CONFIGS": Case([allow("DESCRIBE_CONFIGS")], True, False),
    "ALLOW ALTER_CONFIGS": Case([allow("ALTER_CONFIGS")], True, True),
    "ALLOW DESCRIBE": Case([allow("DESCRIBE")], False, False),
    "ALLOW ALTER": Case([allow("ALTER")], False, False),
    "ALLOW CLUSTER_ACTION": Case([allow("CLUSTER_ACTION")], False, False),
    "ALLOW ALL": Case([allow("ALL")], True, True),
    "ALLOW ALL + DENY ALTER_CONFIGS": Case([allow("ALL"), deny("ALTER_CONFIGS")], True, False),
    "ALLOW ALL + DENY DESCRIBE_CONFIGS": Case(
        [allow("ALL"), deny("DESCRIBE_CONFIGS")], False, True
    ),
    "ALLOW ALTER_CONFIGS + DENY DESCRIBE_CONFIGS": Case(
        [allow("ALTER_CONFIGS"), deny("DESCRIBE_CONFIGS")], False, True
    ),
    "ALLOW ALL + DENY ALL": Case([allow("ALL"), deny("ALL")], False, False),
    "everybody DENY ALTER_CONFIGS + alice ALLOW ALTER_CONFIGS": Case(
        [deny("ALTER_CONFIGS", EVERYBODY), allow("ALTER_CONFIGS")], True, False
    ),
    "super user + DENY ALL": Case([deny("ALL")], True, True, super_users="User:alice"),
}


def asked(case: Case) -> list[tuple[Operation, bool]]:
    expected = {
        Operation.DESCRIBE_CONFIGS: case.describes,
        Operation.ALTER_CONFIGS: case.alters,
    }
    return [(operation, allowed) for operation, allowed in expected.items() if allowed is not None]


@pytest.mark.parametrize("case", NUMBERED.values(), ids=NUMBERED)
def test_a_numbered_case_is_decided_as_the_broker_decides_it(case: Case) -> None:
    questions = asked(case)
    verdicts = [verdict(case, operation) for operation, _ in questions]
    assert [allowed for allowed, _ in verdicts] == [allowed for _, allowed in questions]
    assert {rule for _, rule in verdicts} == case.rules


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE)
def test_the_table_of_acls_holds(case: Case) -> None:
    for operation, allowed in asked(case):
        assert verdict(case, operation)[0] is allowed
