"""ACLs and SCRAM users of a running broker."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from app.localdev import kafka_admin
from app.localdev.kafka import LocalKafka
from tests.testkit.patience import DEADLINE_S, wait_until


def acls_of(kafka: LocalKafka) -> set[AclBinding]:
    client = kafka_admin.silent_admin(kafka.bootstrap_servers)
    return set(client.describe_acls(kafka_admin.EVERY_ACL).result(DEADLINE_S))


def allow(kafka: LocalKafka, *acls: AclBinding) -> None:
    """Add ACLs, and wait until the broker says so."""
    kafka_admin.allow(kafka.bootstrap_servers, acls)


def take_back(kafka: LocalKafka, *acls: AclBinding) -> None:
    """Remove ACLs, and wait until the broker says so."""
    _delete(kafka, *map(exactly, acls))
    wait_until(lambda: acls_of(kafka).isdisjoint(acls))


@contextmanager
def granted(kafka: LocalKafka, *acls: AclBinding) -> Iterator[None]:
    """Add ACLs for the block."""
    allow(kafka, *acls)
    try:
        yield
    finally:
        take_back(kafka, *acls)


def set_acls(kafka: LocalKafka, *acls: AclBinding) -> None:
    """Make these the only ACLs, and wait until the broker says so."""
    _delete(kafka, kafka_admin.EVERY_ACL)
    if acls:
        allow(kafka, *acls)
    wait_until(lambda: acls_of(kafka) == set(acls), "the ACLs did not take effect")


@contextmanager
def own_acls(kafka: LocalKafka) -> Iterator[None]:
    """Begin a block without any ACL; at its end they are again what they were."""
    others = acls_of(kafka)
    set_acls(kafka)
    yield
    set_acls(kafka, *others)


def _delete(kafka: LocalKafka, *filters: AclBindingFilter) -> None:
    client = kafka_admin.silent_admin(kafka.bootstrap_servers)
    for future in client.delete_acls(list(filters)).values():
        future.result(DEADLINE_S)


def exactly(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


def set_scram_users(bootstrap_servers: str, passwords: Mapping[str, str]) -> None:
    """Give each user a password for both mechanisms."""
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        upsertions = [
            UserScramCredentialUpsertion(user, info, password.encode())
            for user, password in passwords.items()
        ]
        _alter(bootstrap_servers, *upsertions)


@contextmanager
def scram_credentials(
    kafka: LocalKafka, *credentials: tuple[str, ScramMechanism, int]
) -> Iterator[None]:
    """Let users have credentials, by mechanism and iterations, for the length of a block."""
    for user, mechanism, iterations in credentials:
        info = ScramCredentialInfo(mechanism, iterations)
        upsertion = UserScramCredentialUpsertion(user, info, b"scram-secret-of-the-test")
        _alter(kafka.bootstrap_servers, upsertion)
    yield
    for user, mechanism, _ in credentials:
        _alter(kafka.bootstrap_servers, UserScramCredentialDeletion(user, mechanism))


def _alter(bootstrap_servers: str, *changes: UserScramCredentialAlteration) -> None:
    client = kafka_admin.silent_admin(bootstrap_servers)
    for future in client.alter_user_scram_credentials(list(changes)).values():
        future.result(DEADLINE_S)
