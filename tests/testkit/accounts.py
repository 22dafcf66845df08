"""ACLs and SCRAM users of a running broker."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from app.localdev.kafka import LocalKafka
from tests.testkit.patience import DEADLINE_S, wait_until


def allow(kafka: LocalKafka, *acls: AclBinding) -> None:
    """Add ACLs, and wait until the broker says so."""
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in client.create_acls(list(acls)).values():
        future.result(DEADLINE_S)
    wait_until(lambda: all(_found(client, acl) for acl in acls))


def take_back(kafka: LocalKafka, *acls: AclBinding) -> None:
    """Remove ACLs, and wait until the broker says so."""
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in client.delete_acls([exactly(acl) for acl in acls]).values():
        future.result(DEADLINE_S)
    wait_until(lambda: not any(_found(client, acl) for acl in acls))


@contextmanager
def granted(kafka: LocalKafka, *acls: AclBinding) -> Iterator[None]:
    """Add ACLs for the block."""
    allow(kafka, *acls)
    try:
        yield
    finally:
        take_back(kafka, *acls)


def _found(client: AdminClient, binding: AclBinding) -> bool:
    return bool(client.describe_acls(exactly(binding)).result(DEADLINE_S))


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
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        upsertions = [
            UserScramCredentialUpsertion(user, info, password.encode())
            for user, password in passwords.items()
        ]
        for future in client.alter_user_scram_credentials(upsertions).values():
            future.result(DEADLINE_S)
