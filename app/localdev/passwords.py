"""Users of the local broker who prove themselves by SCRAM, and the service that logs them in."""

import shlex
from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from app.localdev.errors import LocalDevError
from app.localdev.kafka_admin import silent_admin

_ITERATIONS = 4096
_TIMEOUT_S = 10.0


def store_passwords(bootstrap_servers: str, passwords: Mapping[str, str]) -> None:
    """Give each user this password for SCRAM-SHA-256, whatever it had before.

    Raises:
        LocalDevError: the broker did not take them.
    """
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, _ITERATIONS)
    wanted = [
        UserScramCredentialUpsertion(user, info, password.encode())
        for user, password in passwords.items()
    ]
    client = silent_admin(bootstrap_servers)
    try:
        answers = client.alter_user_scram_credentials(wanted, request_timeout=_TIMEOUT_S)
        for future in answers.values():
            future.result()
    except KafkaException as error:
        raise LocalDevError(f"The users' passwords were not set: {error}.") from error


def pass_through(sasl_bootstrap_servers: str) -> dict[str, str]:
    """Return the variables that let the service log callers in at the local broker."""
    return {
        "QUOTAS_BASIC_SASL_MECHANISM": "SCRAM-SHA-256",
        "QUOTAS_BASIC_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "QUOTAS_BASIC_BOOTSTRAP_SERVERS": sasl_bootstrap_servers,
    }


def curl_with_password(url: str, user: str, password: str) -> str:
    """Return a line that calls as a user of the broker."""
    return f"curl -sS -u {shlex.quote(f'{user}:{password}')} {shlex.quote(url + '/quotas')}"
