"""Decisions: from which ACLs, how old, and what is kept of a refusal."""

from dataclasses import dataclass, field

import pytest

from app.domain.authorization import AclBinding, AuthorizerSettings, Operation
from app.domain.callers import Caller
from app.domain.errors import NotSentError
from app.service.permissions.acl_ports import AclSnapshot
from app.service.permissions.authorize import (
    Access,
    AuthorizationPolicy,
    ClusterAuthorizer,
)
from tests.testkit.fake_ports import EPOCH

ALICE = Caller("User:alice", "127.0.0.1", "bearer")
ADMIN = Caller("User:admin", "127.0.0.1", "bearer")
ALLOW = AclBinding("kafka-cluster", "LITERAL", "User:alice", "*", "ALTER_CONFIGS", "ALLOW")


@dataclass
class Acls:
    bindings: tuple[AclBinding, ...] = ()
    has_authorizer: bool = True
    reachable: bool = True
    asked: list[float] = field(default_factory=list)

    async def cluster_acls(self, *, max_age_s: float) -> AclSnapshot:
        self.asked.append(max_age_s)
        if not self.reachable:
            raise NotSentError("No ACLs.", code="acl-source-unreachable")
        return AclSnapshot(self.bindings, EPOCH, 1.5, self.has_authorizer)


@dataclass
class World:
    acls: Acls
    insecure: bool = False

    def __post_init__(self) -> None:
        policy = AuthorizationPolicy(
            AuthorizerSettings(frozenset({"User:admin"})),
            allow_without_authorizer=self.insecure,
            auditors=frozenset({"User:auditor"}),
        )
        self.authorizer = ClusterAuthorizer(self.acls, policy)

    async def decide(self, caller: Caller, operation: Operation) -> Access:
        return await self.authorizer.decide(caller, operation)


async def test_the_decision_is_kept_with_its_rule_and_the_age_of_the_acls() -> None:
    world = World(Acls((ALLOW,)))
    access = await world.decide(ALICE, Operation.ALTER_CONFIGS)
    assert access.refusal is None
    assert access.evidence["rule"] == "allow-acl"
    assert access.evidence["acl_age_s"] == 1.5
    assert "principal=User:alice" in access.evidence["acl"]


async def test_acls_are_at_most_ten_seconds_old_for_alter_and_sixty_for_reads() -> None:
    world = World(Acls((ALLOW,)))
    await world.decide(ALICE, Operation.ALTER_CONFIGS)
    await world.decide(ALICE, Operation.DESCRIBE_CONFIGS)
    assert world.acls.asked == [10.0, 60.0]


async def test_nobody_but_a_super_user_passes_while_the_acls_cannot_be_had() -> None:
    world = World(Acls((ALLOW,), reachable=False))
    with pytest.raises(NotSentError):
        await world.decide(ALICE, Operation.DESCRIBE_CONFIGS)
    access = await world.decide(ADMIN, Operation.ALTER_CONFIGS)
    assert (access.refusal, access.evidence["rule"]) == (None, "super-user")


async def test_a_cluster_without_an_authorizer_is_refused_even_to_super_users() -> None:
    world = World(Acls(has_authorizer=False))
    for caller in (ALICE, ADMIN):
        access = await world.decide(caller, Operation.DESCRIBE_CONFIGS)
        assert access.refusal is not None
        assert (access.refusal.code, access.refusal.kafka_error) == (
            "no-authorizer",
            "SECURITY_DISABLED",
        )


async def test_a_cluster_without_an_authorizer_serves_everybody_when_that_is_set() -> None:
    world = World(Acls(has_authorizer=False), insecure=True)
    assert (await world.decide(ALICE, Operation.ALTER_CONFIGS)).refusal is None


async def test_a_refusal_is_in_kafkas_words_and_says_which_rule_decided() -> None:
    world = World(Acls())
    access = await world.decide(ALICE, Operation.ALTER_CONFIGS)
    assert access.refusal is not None
    assert access.refusal.kafka_error == "CLUSTER_AUTHORIZATION_FAILED"
    assert access.evidence["rule"] == "no-acl-found"


def test_auditors_are_those_of_the_settings() -> None:
    authorizer = World(Acls()).authorizer
    assert authorizer.is_auditor(Caller("User:auditor", "127.0.0.1", "bearer"))
    assert not authorizer.is_auditor(ALICE)
