"""The service's decision from a fresh snapshot of ACLs, beside the broker's own."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from app.domain.authorization import Operation
from app.domain.callers import Caller
from app.kafka.brokers import Brokers
from app.kafka.cluster_acls import KafkaClusterAclSource
from app.kafka.configuration import KafkaSettings
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.localdev.kafka import LocalKafka
from app.postgres.database import Database
from app.postgres.journal import PostgresJournal
from app.service.authorize import AuthorizationPolicy, ClusterAuthorizer
from tests.support.authorization import Verdict, judgement, logged_in
from tests.support.raw_principal import RawPrincipal

DEADLINE_S: Final = 30.0
AGREE_WITHIN_S: Final = 10.0
"""A broker and its controller take over new ACLs a little later than they acknowledge them."""

EVERY_ACL: Final = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)

Who = tuple[str, str]
"""User and source address."""


@dataclass
class Differential:
    """A broker with nothing but the ACLs under test, and connections of those who ask it."""

    kafka: LocalKafka
    policy: AuthorizationPolicy
    judges: dict[Who, RawPrincipal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._client = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})

    def set_acls(self, *acls: AclBinding) -> None:
        """Make these the only ACLs, and wait until the broker says so."""
        self._client.delete_acls([EVERY_ACL])[EVERY_ACL].result(DEADLINE_S)
        if acls:
            for future in self._client.create_acls(list(acls)).values():
                future.result(DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while set(self._client.describe_acls(EVERY_ACL).result(DEADLINE_S)) != set(acls):
            assert time.monotonic() < deadline, "the ACLs did not take effect"
            time.sleep(0.01)

    async def service_verdicts(self) -> dict[Who, Verdict]:
        """Decide as the service does for everybody, on one snapshot taken now."""
        brokers = Brokers(KafkaSettings(self.kafka.bootstrap_servers))
        source = KafkaClusterAclSource(brokers)
        database = Database("postgresql://nobody@127.0.0.1/deciding-needs-no-database")
        authorizer = ClusterAuthorizer(
            source, KafkaClientQuotaAdmin(brokers), PostgresJournal(database), self.policy
        )
        try:
            return {who: await _verdict(authorizer, who) for who in self.judges}
        finally:
            await source.close()
            await database.close()
            await brokers.close()

    def broker_verdicts(self, expected: dict[Who, Verdict]) -> dict[Who, Verdict]:
        """Ask the broker as everybody; ask again while the answer is not the expected one."""
        deadline = time.monotonic() + AGREE_WITHIN_S
        while True:
            verdicts = {who: judgement(judge) for who, judge in self.judges.items()}
            if verdicts == expected or time.monotonic() > deadline:
                return verdicts


async def _verdict(authorizer: ClusterAuthorizer, who: Who) -> Verdict:
    user, host = who
    caller = Caller(f"User:{user}", host, "bearer-token")
    described = await authorizer.decide(caller, Operation.DESCRIBE_CONFIGS)
    altered = await authorizer.decide(caller, Operation.ALTER_CONFIGS)
    return Verdict(described.refusal is None, altered.refusal is None)


@contextmanager
def differential(
    kafka: LocalKafka, policy: AuthorizationPolicy, users: Sequence[str], hosts: Sequence[str]
) -> Iterator[Differential]:
    """Log every user in from every address."""
    with ExitStack() as stack:
        judges = {
            (user, host): stack.enter_context(logged_in(kafka, user, host))
            for user in users
            for host in hosts
        }
        yield Differential(kafka, policy, judges)
