"""The authorizer's rules, one by one.

Verified against ``StandardAuthorizer`` of Kafka 4.3.1.
"""

import pytest

from app.domain.authorization import (
    AclBinding,
    AuthorizerSettings,
    Decision,
    DecisionRule,
    Operation,
    acl_text,
    authorize,
    parse_super_users,
)

ALICE = "User:alice"
HOST = "10.0.0.5"
DENIES_UNKNOWN = AuthorizerSettings()
ALLOWS_UNKNOWN = AuthorizerSettings(allow_everyone_if_no_acl_found=True)


def acl(
    operation: str,
    permission: str = "ALLOW",
    *,
    principal: str = ALICE,
    host: str = "*",
    resource: tuple[str, str] = ("kafka-cluster", "LITERAL"),
) -> AclBinding:
    return AclBinding(*resource, principal, host, operation, permission)


def decide(
    *acls: AclBinding,
    operation: Operation = Operation.ALTER_CONFIGS,
    principal: str = ALICE,
    host: str = HOST,
    settings: AuthorizerSettings = DENIES_UNKNOWN,
) -> Decision:
    return authorize(principal, host, operation, acls, settings)


def test_a_matching_allow_is_named_in_the_decision() -> None:
    matching = acl("ALTER_CONFIGS")
    decision = decide(acl("DESCRIBE"), matching)
    assert decision == Decision(True, DecisionRule.ALLOW_ACL, Operation.ALTER_CONFIGS, matching)


def test_a_matching_deny_is_named_in_the_decision() -> None:
    deny = acl("ALL", "DENY", principal="User:*")
    decision = decide(acl("ALTER_CONFIGS"), deny)
    assert decision == Decision(False, DecisionRule.DENY_ACL, Operation.ALTER_CONFIGS, deny)


def test_a_decision_is_written_in_kafka_s_words() -> None:
    assert decide(acl("ALL")).as_dict() == {
        "allowed": True,
        "rule": "allow-acl",
        "operation": "ALTER_CONFIGS",
        "acl": "(pattern=ResourcePattern(resourceType=CLUSTER, name=kafka-cluster, "
        "patternType=LITERAL), entry=(principal=User:alice, host=*, operation=ALL, "
        "permissionType=ALLOW))",
    }


def test_a_decision_without_an_acl_names_none() -> None:
    assert decide().as_dict() == {
        "allowed": False,
        "rule": "no-acl-found",
        "operation": "ALTER_CONFIGS",
        "acl": None,
    }


def test_another_pattern_is_printed_as_it_is() -> None:
    text = acl_text(acl("READ", "DENY", host=HOST, resource=("kafka", "PREFIXED")))
    assert "name=kafka, patternType=PREFIXED" in text
    assert "host=10.0.0.5, operation=READ, permissionType=DENY" in text


@pytest.mark.parametrize(
    ("resource", "covers"),
    [
        (("kafka-cluster", "LITERAL"), True),
        (("*", "LITERAL"), True),
        (("kafka-cluster", "PREFIXED"), True),
        (("kafka", "PREFIXED"), True),
        (("k", "PREFIXED"), True),
        (("kafka", "LITERAL"), False),
        (("kafka-cluster-2", "LITERAL"), False),
        (("kafka-cluster-2", "PREFIXED"), False),
        (("*", "PREFIXED"), False),
        (("Kafka-cluster", "LITERAL"), False),
        (("other", "PREFIXED"), False),
    ],
    ids=repr,
)
def test_an_acl_covers_the_cluster_by_name_prefix_or_wildcard(
    resource: tuple[str, str], covers: bool
) -> None:
    assert decide(acl("ALL", resource=resource)).allowed is covers
    rule = decide(acl("READ", resource=resource), settings=ALLOWS_UNKNOWN).rule
    assert rule is (DecisionRule.NO_MATCHING_ACL if covers else DecisionRule.NO_ACL_FOUND)


def test_an_allow_implies_no_more_than_the_broker_says(subtests: pytest.Subtests) -> None:
    for granted, describes_configs, alters_configs, describes in [
        ("DESCRIBE_CONFIGS", True, False, False),
        ("ALTER_CONFIGS", True, True, False),
        ("ALL", True, True, True),
        ("DESCRIBE", False, False, True),
        ("ALTER", False, False, True),
        ("READ", False, False, True),
        ("WRITE", False, False, True),
        ("CREATE", False, False, False),
        ("DELETE", False, False, True),
        ("CLUSTER_ACTION", False, False, False),
        ("IDEMPOTENT_WRITE", False, False, False),
    ]:
        with subtests.test(granted=granted, describes_configs=describes_configs):
            acls = acl(granted)
            assert decide(acls, operation=Operation.DESCRIBE_CONFIGS).allowed is describes_configs
            assert decide(acls, operation=Operation.ALTER_CONFIGS).allowed is alters_configs
            assert decide(acls, operation=Operation.DESCRIBE).allowed is describes


def test_a_deny_implies_nothing(subtests: pytest.Subtests) -> None:
    for denied, describes, alters in [
        ("DESCRIBE_CONFIGS", False, True),
        ("ALTER_CONFIGS", True, False),
        ("ALL", False, False),
        ("DESCRIBE", True, True),
        ("ALTER", True, True),
    ]:
        with subtests.test(denied=denied, describes=describes):
            acls = (acl("ALL"), acl(denied, "DENY"))
            assert decide(*acls, operation=Operation.DESCRIBE_CONFIGS).allowed is describes
            assert decide(*acls, operation=Operation.ALTER_CONFIGS).allowed is alters


def test_a_deny_wins_in_any_order_and_from_any_pattern() -> None:
    allow = acl("ALTER_CONFIGS")
    for deny in (
        acl("ALTER_CONFIGS", "DENY"),
        acl("ALL", "DENY", principal="User:*"),
        acl("ALTER_CONFIGS", "DENY", resource=("*", "LITERAL")),
        acl("ALTER_CONFIGS", "DENY", resource=("kafka", "PREFIXED")),
        acl("ALTER_CONFIGS", "DENY", host=HOST),
    ):
        assert decide(allow, deny).rule is DecisionRule.DENY_ACL
        assert decide(deny, allow).rule is DecisionRule.DENY_ACL


def test_the_wildcard_principal_matches_every_type_of_principal() -> None:
    for principal in (ALICE, "Group:alice", "User:", "User:CN=a,O=b"):
        assert decide(acl("ALL", principal="User:*"), principal=principal).allowed


def test_a_principal_matches_exactly() -> None:
    for principal in ("User:Alice", "Group:alice", "User:alice ", "alice", "User:alice2"):
        assert not decide(acl("ALL"), principal=principal).allowed
    assert not decide(acl("ALL", principal="Group:*"), principal="Group:x").allowed


def test_an_acl_host_is_compared_as_text(subtests: pytest.Subtests) -> None:
    for acl_host, caller_host, matches in [
        ("*", "10.0.0.5", True),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "10.0.0.6", False),
        ("10.0.0.0/24", "10.0.0.5", False),
        ("10.0.0.*", "10.0.0.5", False),
        ("localhost", "127.0.0.1", False),
        ("0:0:0:0:0:0:0:1", "0:0:0:0:0:0:0:1", True),
        ("::1", "0:0:0:0:0:0:0:1", False),
        ("2001:DB8:0:0:0:0:0:1", "2001:db8:0:0:0:0:0:1", False),
    ]:
        with subtests.test(acl_host=acl_host, caller_host=caller_host):
            assert decide(acl("ALL", host=acl_host), host=caller_host).allowed is matches
            denied = decide(acl("ALL"), acl("ALL", "DENY", host=acl_host), host=caller_host)
            assert denied.allowed is not matches


def test_everyone_is_allowed_only_where_the_cluster_has_no_acl_of_anybody() -> None:
    assert decide(settings=ALLOWS_UNKNOWN).allowed
    assert decide(settings=ALLOWS_UNKNOWN).rule is DecisionRule.NO_ACL_FOUND
    for other in (
        acl("READ", principal="User:bob"),
        acl("READ", "DENY", principal="User:bob", host="10.9.9.9"),
        acl("ALL", resource=("*", "LITERAL"), principal="User:bob"),
    ):
        decision = decide(other, settings=ALLOWS_UNKNOWN)
        assert (decision.allowed, decision.rule) == (False, DecisionRule.NO_MATCHING_ACL)


def test_a_caller_named_like_the_wildcard_is_denied_because_the_authorizer_throws() -> None:
    for acls in ((), (acl("ALL", principal="User:*"),)):
        decision = decide(*acls, principal="User:*", settings=ALLOWS_UNKNOWN)
        assert (decision.allowed, decision.rule) == (False, DecisionRule.AUTHORIZER_ERROR)


def test_a_super_user_named_like_the_wildcard_is_allowed() -> None:
    settings = AuthorizerSettings(super_users=frozenset({"User:*"}))
    decision = decide(acl("ALL", "DENY"), principal="User:*", settings=settings)
    assert (decision.allowed, decision.rule) == (True, DecisionRule.SUPER_USER)


def test_an_acl_whose_principal_has_no_type_denies_because_the_authorizer_throws() -> None:
    broken = acl("READ", principal="bob")
    decision = decide(acl("ALL"), broken)
    assert (decision.allowed, decision.rule) == (False, DecisionRule.AUTHORIZER_ERROR)
    assert decision.acl == broken
    elsewhere = acl("READ", principal="bob", resource=("other", "LITERAL"))
    assert decide(acl("ALL"), elsewhere).allowed


def test_super_users_are_read_as_the_broker_reads_them(subtests: pytest.Subtests) -> None:
    for text, principals in [
        ("", set()),
        (" ; ;", set()),
        ("User:admin;User:ops", {"User:admin", "User:ops"}),
        (" User:admin ;\tUser:ops\n;", {"User:admin", "User:ops"}),
        ("User:CN=a,OU=b,O=c;User:d", {"User:CN=a,OU=b,O=c", "User:d"}),
        ("User:a b", {"User:a b"}),
        ("User:", {"User:"}),
        ("Group:x:y", {"Group:x:y"}),
        ("User:a\u00a0", {"User:a\u00a0"}),
        ("\x00User:a", {"User:a"}),
    ]:
        with subtests.test(text=text):
            assert parse_super_users(text) == principals


@pytest.mark.parametrize("text", ["alice", "User:a;bob", "User:a,b;c"])
def test_a_super_user_without_a_type_stops_the_start_up(text: str) -> None:
    with pytest.raises(ValueError, match="expected a principal"):
        parse_super_users(text)


def test_a_super_user_matches_exactly() -> None:
    settings = AuthorizerSettings(super_users=parse_super_users("User:alice"))
    assert decide(settings=settings).rule is DecisionRule.SUPER_USER
    for principal in ("user:alice", "User:Alice", "Group:alice", "User:alice "):
        assert not decide(principal=principal, settings=settings).allowed
    everybody = AuthorizerSettings(parse_super_users("User:*"))
    assert decide(settings=everybody).rule is DecisionRule.NO_ACL_FOUND
