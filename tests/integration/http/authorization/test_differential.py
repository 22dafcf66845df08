"""Whole sets of ACLs: the service decides as the broker does, whatever the set."""

import random
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka.admin import AclBinding, ResourceType

from app.domain.authorization import AuthorizerSettings, parse_super_users
from app.localdev.kafka import LocalKafka
from app.service.auth.authorize import AuthorizationPolicy
from tests.testkit.accounts import set_acls
from tests.testkit.authorization import BOTH, ELSEWHERE, HERE, NEITHER, READER, Verdict
from tests.testkit.authorization_differential import Differential, differential, random_set
from tests.testkit.service import acl

USERS = ("alice", "bob", "ALICE", "super")
HOSTS = (HERE, ELSEWHERE)
SUPER_USERS = "User:super;User:*; "
SEED = 546


on_topic = partial(acl, kind=ResourceType.TOPIC)


ALLOWED = pytest.param(True, marks=pytest.mark.long)  # it needs a broker of its own


@pytest.fixture(scope="module", params=[False, ALLOWED], ids=["denied", "allowed"])
def without_acl(request: pytest.FixtureRequest) -> bool:
    """What ``allow.everyone.if.no.acl.found`` says."""
    return bool(request.param)


@pytest.fixture(scope="module")
def both(without_acl: bool, request: pytest.FixtureRequest) -> Iterator[Differential]:
    settings = AuthorizerSettings(parse_super_users(SUPER_USERS), without_acl)
    judge: LocalKafka = request.getfixturevalue("open_kafka" if without_acl else "broker")
    with differential(judge, AuthorizationPolicy(settings), USERS, HOSTS) as pair:
        yield pair


SETS: dict[str, tuple[list[AclBinding], Verdict, Verdict]] = {
    "no ACL at all": ([], NEITHER, BOTH),
    "one of another principal": ([acl("bob", "DESCRIBE")], NEITHER, NEITHER),
    "one of another resource type": ([on_topic("bob", "ALL")], NEITHER, BOTH),
    "the right on another resource type": ([on_topic("alice", "ALTER_CONFIGS")], NEITHER, BOTH),
    "one of another address": ([acl("alice", "ALTER_CONFIGS", host="10.0.0.6")], NEITHER, NEITHER),
    "everybody": ([acl("*", "ALTER_CONFIGS")], BOTH, BOTH),
    "everybody denied, one allowed": (
        [acl("*", "ALTER_CONFIGS", "DENY"), acl("alice", "ALTER_CONFIGS")],
        READER,
        READER,
    ),
    "everybody denied by prefix, one allowed": (
        [acl("*", "ALTER_CONFIGS", "DENY", prefixed=True), acl("alice", "ALL")],
        READER,
        READER,
    ),
    "one right and an address that is denied": (
        [acl("alice", "ALL"), acl("*", "ALL", "DENY", host=HERE)],
        NEITHER,
        NEITHER,
    ),
}
"""ACLs, and alice's verdict where a resource without any is denied, and where it is allowed."""


@pytest.mark.parametrize("name", SETS)
async def test_a_set_of_acls_means_the_same_to_both(
    both: Differential, without_acl: bool, name: str
) -> None:
    acls, denied, allowed = SETS[name]
    set_acls(both.kafka, *acls)
    served = await both.service_verdicts()
    assert served[("alice", HERE)] == (allowed if without_acl else denied)
    assert await both.disagreements() == {}


PRINCIPALS = ("alice", "alice", "bob", "*", "ALICE", "super")
ADDRESSES = ("*", "*", HERE, ELSEWHERE, "10.0.0.5", "127.0.0.0/8", "localhost")


@pytest.mark.parametrize("number", range(10))
async def test_a_random_set_of_acls_means_the_same_to_both(
    both: Differential, without_acl: bool, number: int
) -> None:
    chance = random.Random(f"{SEED} {without_acl} {number}")
    acls = random_set(chance, PRINCIPALS, ADDRESSES)
    set_acls(both.kafka, *acls)
    assert await both.disagreements() == {}, acls
