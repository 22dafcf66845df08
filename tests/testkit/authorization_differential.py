"""Sets of ACLs by chance: principals, addresses, patterns and operations that brokers tell apart.

A broker takes no ACL on a cluster of another name than ``kafka-cluster``, nor a prefix of it.
"""

import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from confluent_kafka.admin import AclBinding, ResourceType

from app.domain.authorization import Operation
from app.domain.entities import Caller
from app.domain.errors import NotSentError
from app.kafka.acls import KafkaCallerRights, cluster_acls
from app.kafka.cluster_client import Brokers
from app.kafka.config import KafkaSettings, SaslMechanism, SecurityProtocol
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.localdev.kafka import LocalKafka
from app.service.auth.authorize import (
    AuthorizationPolicy,
    Authorizer,
    BrokerAuthorizer,
    ClusterAuthorizer,
)
from app.service.runtime.tasks import Cache
from tests.testkit.accounts import own_acls
from tests.testkit.authorization import ANONYMOUS, HERE, PASSWORD, Verdict, judgement, logged_in
from tests.testkit.patience import PATIENT
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import acl

OPERATIONS: Final = (
    *("ALTER_CONFIGS", "DESCRIBE_CONFIGS", "ALL") * 3,
    *("ALTER", "DESCRIBE", "DESCRIBE", "CLUSTER_ACTION", "CREATE", "IDEMPOTENT_WRITE"),
    *("READ", "WRITE", "DELETE"),
)
PERMISSIONS: Final = ("ALLOW", "ALLOW", "DENY")
PREFIXES: Final = ("k", "kafka-", "kafka-cluster", "kafka-cluster-2")
_LARGEST_SET: Final = 8


def random_set(
    chance: random.Random, principals: Sequence[str], hosts: Sequence[str]
) -> set[AclBinding]:
    """Return up to eight ACLs of these principals and addresses, most of them on the cluster."""
    number = chance.randrange(_LARGEST_SET + 1)
    return {_random_acl(chance, principals, hosts) for _ in range(number)}


def _random_acl(
    chance: random.Random, principals: Sequence[str], hosts: Sequence[str]
) -> AclBinding:
    operation, permission = chance.choice(OPERATIONS), chance.choice(PERMISSIONS)
    asked = (chance.choice(principals), operation, permission, chance.choice(hosts))
    match chance.randrange(10):
        case 0:
            return acl(*asked, kind=ResourceType.TOPIC)
        case 1:
            return acl(*asked, kind=ResourceType.TOPIC, name=chance.choice(PREFIXES), prefixed=True)
        case 2 | 3:
            return acl(*asked, prefixed=True)
        case _:
            return acl(*asked)


AGREE_WITHIN_S: Final = 30.0
"""A broker and its controller take over new ACLs a little later than they acknowledge them."""

Who = tuple[str, str]
"""User and source address."""


@dataclass
class Differential:
    """A broker with nothing but the ACLs under test, and connections of those who ask it."""

    kafka: LocalKafka
    policy: AuthorizationPolicy
    judges: dict[Who, RawQuotas] = field(default_factory=dict)

    async def service_verdicts(self) -> dict[Who, Verdict]:
        """Decide as the service does for everybody, on one snapshot taken now."""
        async with self._from_acls() as authorizer:
            return {who: await _verdict(authorizer, who) for who in self.judges}

    async def session_verdicts(self) -> dict[Who, Verdict]:
        """Decide as the service does for those who come with a password, which it passes on.

        The broker then sees the service's address; ``ANONYMOUS`` has no password to come with.
        """
        verdicts: dict[Who, Verdict] = {}
        async with self._from_acls() as others:
            for user, host in self.judges:
                if user == ANONYMOUS or host != HERE:
                    continue
                async with self._as_caller(user) as rights:
                    authorizer = BrokerAuthorizer(rights, others)
                    verdicts[(user, host)] = await _verdict(authorizer, (user, host))
        return verdicts

    @asynccontextmanager
    async def _from_acls(self) -> AsyncIterator[ClusterAuthorizer]:
        brokers = Brokers(KafkaSettings(self.kafka.bootstrap_servers), patience=PATIENT)
        acls = Cache(partial(cluster_acls, brokers))
        try:
            yield ClusterAuthorizer(acls, self.policy)
        finally:
            await acls.close()
            await brokers.close()

    @asynccontextmanager
    async def _as_caller(self, user: str) -> AsyncIterator[KafkaCallerRights]:
        settings = KafkaSettings(
            self.kafka.sasl_bootstrap_servers,
            SecurityProtocol.SASL_PLAINTEXT,
            SaslMechanism.PLAIN,
            user,
            PASSWORD,
        )
        brokers = Brokers(settings, one_login=True, patience=PATIENT)
        rights = KafkaCallerRights(brokers, KafkaClientQuotaAdmin(brokers))
        try:
            yield rights
        finally:
            await rights.close()
            await brokers.close()

    async def disagreements(self) -> dict[Who, tuple[Verdict, ...]]:
        """Return every caller about which the service, by either authorizer, and the broker differ.

        The verdicts are those of the service from ACLs, of the service as the caller where that
        can be, and of the broker.
        """
        from_acls = await self.service_verdicts()
        verdicts = self.broker_verdicts(from_acls)
        as_caller = await self.session_verdicts()
        return {
            who: (from_acls[who], as_caller.get(who, verdict), verdict)
            for who, verdict in verdicts.items()
            if not from_acls[who] == as_caller.get(who, verdict) == verdict
        }

    def broker_verdicts(self, expected: dict[Who, Verdict]) -> dict[Who, Verdict]:
        """Ask the broker as everybody; ask again while the answer is not the expected one."""
        deadline = time.monotonic() + AGREE_WITHIN_S
        while True:
            verdicts = {who: judgement(judge) for who, judge in self.judges.items()}
            if verdicts == expected or time.monotonic() > deadline:
                return verdicts


async def _verdict(authorizer: Authorizer, who: Who) -> Verdict:
    user, host = who
    caller = Caller(f"User:{user}", host, "of-these-tests")
    may_describe = await _may(authorizer, caller, Operation.DESCRIBE_CONFIGS)
    return Verdict(may_describe, await _may(authorizer, caller, Operation.ALTER_CONFIGS))


async def _may(authorizer: Authorizer, caller: Caller, operation: Operation) -> bool:
    """Tell whether the caller may; without an answer nobody may."""
    try:
        return (await authorizer.decide(caller, operation)).refusal is None
    except NotSentError:
        return False


@contextmanager
def differential(
    kafka: LocalKafka, policy: AuthorizationPolicy, users: Sequence[str], hosts: Sequence[str]
) -> Iterator[Differential]:
    """Log every user in from every address; at the end the ACLs are again what they were."""
    with ExitStack() as stack:
        judges = {
            (user, host): stack.enter_context(logged_in(kafka, user, host))
            for user in users
            for host in hosts
        }
        stack.enter_context(own_acls(kafka))
        yield Differential(kafka, policy, judges)
