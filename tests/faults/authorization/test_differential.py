"""Thousands of random rights: the service decides as the broker does, by either authorizer.

A case is a set of ACLs, a principal, an address and an operation. Disagreements must be none.
"""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.authorization import AuthorizerSettings, parse_super_users
from app.service.auth.authorize import AuthorizationPolicy
from tests.testkit.accounts import set_acls
from tests.testkit.authorization import ANONYMOUS, HERE, judging_broker
from tests.testkit.authorization_differential import Differential, differential, random_set
from tests.testkit.sizes import SEED

pytestmark = pytest.mark.long

SETS = 45

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
USERS = (*NAMED, ANONYMOUS)
"""``ANONYMOUS`` is a super user here, as the brokers of this cluster call each other by it."""

HOSTS = (HERE, "127.0.0.6", "127.1.2.3")
SUPER_USERS = f"User:{ANONYMOUS};User:super;User:*;Group:alice"
PRINCIPALS = (*NAMED, *("alice", "*") * 4, "ali", "nobody")
ADDRESSES = (*("*",) * 4, *HOSTS, "10.0.0.5", "127.0.0.0/8", "localhost", "0.0.0.0", "::1")


@pytest.fixture(scope="module", params=[False, True], ids=["denied", "allowed"])
def both(request: pytest.FixtureRequest) -> Iterator[Differential]:
    """A broker, by what ``allow.everyone.if.no.acl.found`` says."""
    settings = AuthorizerSettings(parse_super_users(SUPER_USERS), request.param)
    setting = str(request.param).lower()
    with (
        tempfile.TemporaryDirectory() as folder,
        judging_broker(
            Path(folder) / "judge", NAMED, SUPER_USERS, allow_everyone_if_no_acl_found=setting
        ) as kafka,
        differential(kafka, AuthorizationPolicy(settings), USERS, HOSTS) as pair,
    ):
        yield pair


async def test_the_service_and_the_broker_agree(both: Differential) -> None:
    cases, disagreements = 0, {}
    for number in range(SETS):
        chance = random.Random(f"{SEED} {both.policy.authorizer} {number}")
        acls = random_set(chance, PRINCIPALS, ADDRESSES)
        set_acls(both.kafka, *acls)
        wrong = await both.disagreements()
        cases += 2 * len(both.judges)
        if wrong:
            disagreements[number] = (acls, wrong)
    print(f"{cases} cases over {SETS} sets of ACLs, {len(disagreements)} sets with disagreements")
    assert disagreements == {}
    assert cases >= min(SETS, 28) * 2 * len(USERS) * len(HOSTS)
