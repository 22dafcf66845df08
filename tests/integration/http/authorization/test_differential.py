"""Whole sets of ACLs: the service decides as the broker does, whatever the set."""

import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AclBinding, ResourceType

from app.domain.authorization import AuthorizerSettings, parse_super_users
from app.localdev.kafka import LocalKafka
from app.service.auth.authorize import AuthorizationPolicy
from tests.testkit import sizes
from tests.testkit.accounts import set_acls
from tests.testkit.authorization import (
    ANONYMOUS,
    BOTH,
    ELSEWHERE,
    HERE,
    NEITHER,
    READER,
    Verdict,
    judging_broker,
)
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


RANDOM_SETS = 45

NAMED = (
    "alice",
    "ALICE",
    "alice ",
    "User:alice",
    "CN=alice,OU=team a,C=DE",
    "älice",
    "\U0001f511",
    'quote" and \\ backslash',
    "*a",
    "super",
    "a" * 200,
)
ODD_USERS = (*NAMED, ANONYMOUS)
"""``ANONYMOUS`` is a super user here, as the brokers of this cluster call each other by it."""

ODD_HOSTS = (HERE, "127.0.0.6", "127.1.2.3")
ODD_SUPER_USERS = f"User:{ANONYMOUS};User:super;User:*;Group:alice"
ODD_PRINCIPALS = (*NAMED, *("alice", "*") * 4, "ali", "nobody")
ODD_ADDRESSES = (*("*",) * 4, *ODD_HOSTS, "10.0.0.5", "127.0.0.0/8", "localhost", "0.0.0.0", "::1")


@pytest.fixture(scope="module", params=[False, True], ids=["denied", "allowed"])
def odd(request: pytest.FixtureRequest) -> Iterator[Differential]:
    """A broker, by what ``allow.everyone.if.no.acl.found`` says."""
    settings = AuthorizerSettings(parse_super_users(ODD_SUPER_USERS), request.param)
    setting = str(request.param).lower()
    with (
        tempfile.TemporaryDirectory() as folder,
        judging_broker(
            Path(folder) / "judge", NAMED, ODD_SUPER_USERS, allow_everyone_if_no_acl_found=setting
        ) as kafka,
        differential(kafka, AuthorizationPolicy(settings), ODD_USERS, ODD_HOSTS) as pair,
    ):
        yield pair


@pytest.mark.long
async def test_thousands_of_random_rights_mean_the_same_to_both(odd: Differential) -> None:
    cases, disagreements = 0, {}
    for number in range(RANDOM_SETS):
        chance = random.Random(f"{sizes.SEED} {odd.policy.authorizer} {number}")
        acls = random_set(chance, ODD_PRINCIPALS, ODD_ADDRESSES)
        set_acls(odd.kafka, *acls)
        wrong = await odd.disagreements()
        cases += 2 * len(odd.judges)
        if wrong:
            disagreements[number] = (acls, wrong)
    print(f"{cases} cases over {RANDOM_SETS} sets of ACLs, {len(disagreements)} with disagreements")
    assert disagreements == {}
    assert cases >= min(RANDOM_SETS, 28) * 2 * len(ODD_USERS) * len(ODD_HOSTS)
