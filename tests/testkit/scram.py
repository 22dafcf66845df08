"""Users of a running broker, who prove themselves by SCRAM."""

from collections.abc import Iterable, Mapping

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

DEADLINE_S = 30.0

_MECHANISMS = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
_ITERATIONS = 4096


def set_scram_users(bootstrap_servers: str, passwords: Mapping[str, str]) -> None:
    """Give each user a password for both mechanisms."""
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    for mechanism in _MECHANISMS:
        info = ScramCredentialInfo(mechanism, _ITERATIONS)
        _alter(
            client,
            [
                UserScramCredentialUpsertion(user, info, password.encode())
                for user, password in passwords.items()
            ],
        )


def drop_scram_users(bootstrap_servers: str, users: Iterable[str]) -> None:
    """Take these users' passwords away."""
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    names = list(users)
    for mechanism in _MECHANISMS:
        _alter(client, [UserScramCredentialDeletion(user, mechanism) for user in names])


def _alter(client: AdminClient, alterations: list[UserScramCredentialAlteration]) -> None:
    for future in client.alter_user_scram_credentials(alterations).values():
        future.result(DEADLINE_S)
