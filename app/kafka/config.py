"""How to reach the brokers, and as which user."""

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final

CLIENT_ID: Final = "kafka-quota-service"
"""What brokers see in ``client.id``, in their request log and metrics."""

Address = tuple[str, int]
"""Host and port."""

_HOST_AND_PORT: Final = re.compile(
    r"(\[(?P<bracketed>[0-9A-Fa-f:.]+)\]|(?P<host>[\w.-]+)):(?P<port>\d{1,5})", re.ASCII
)


class SecurityProtocol(StrEnum):
    """Kafka's names. Source: ``org.apache.kafka.common.security.auth.SecurityProtocol``."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def uses_sasl(self) -> bool:
        """Whether the client authenticates by SASL."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


class SaslMechanism(StrEnum):
    """The mechanisms that this service speaks."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


@dataclass(frozen=True)
class KafkaSettings:
    """Where the brokers are and who this service is to them.

    Attributes:
        bootstrap_servers: ``host:port,…``; an IPv6 address stands in brackets.
        sasl_mechanism: Needed with a SASL protocol, as are user and password.
        sasl_username: The service's own account.
        sasl_password: Never printed.
        ssl_ca_file: PEM; null means the authorities that the machine trusts.
        ssl_cert_file: PEM, the client's certificate chain; null means none.
        ssl_key_file: PEM; null where the certificate's file holds the key.
        ssl_key_password: Of that key; null where it is not encrypted.
        cluster_id: Of the only cluster that is spoken to; null takes the one that answers.

    Raises:
        ValueError: The values do not fit together; the text says what to do.
    """

    bootstrap_servers: str
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    sasl_mechanism: SaslMechanism | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_ca_file: str | None = None
    ssl_cert_file: str | None = None
    ssl_key_file: str | None = None
    cluster_id: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse what could never connect."""
        login = (self.sasl_mechanism, self.sasl_username, self.sasl_password)
        if self.security_protocol.uses_sasl and not all(login):
            message = "SASL needs a mechanism, a user name and a password."
            raise ValueError(message)
        if not self.addresses:
            message = "There is no bootstrap server; write host:port."
            raise ValueError(message)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Host and port of each bootstrap server."""
        servers = self.bootstrap_servers.split(",")
        return tuple(
            _address(server.strip(), at) for at, server in enumerate(servers, 1) if server.strip()
        )


KafkaLogin = Callable[[str, str], KafkaSettings]
"""How callers reach the brokers with a user and a password of their own."""


def ssl_context(settings: KafkaSettings) -> ssl.SSLContext | None:
    """Build the TLS context, or null where the protocol is not encrypted.

    Raises:
        OSError: A file cannot be read or holds no certificate.
        ValueError: The key has a password, and none is set.
    """
    if not settings.security_protocol.uses_tls:
        return None
    context = ssl.create_default_context(cafile=settings.ssl_ca_file)
    if settings.ssl_cert_file:
        context.load_cert_chain(
            settings.ssl_cert_file,
            settings.ssl_key_file,
            partial(key_password, settings.ssl_key_password),
        )
    return context


def key_password(password: str | None) -> str:
    """Return the password of a key, which OpenSSL would ask a terminal for.

    Raises:
        ValueError: There is none.
    """
    if password is None:
        message = "the key has a password"
        raise ValueError(message)
    return password


def _address(text: str, position: int) -> Address:
    """Read one address; what cannot be read is not repeated, it may hold a password."""
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None:
        message = f"The bootstrap server at position {position} is not host:port."
        raise ValueError(message)
    return match["bracketed"] or match["host"], int(match["port"])
