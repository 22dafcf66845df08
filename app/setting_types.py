"""Types of settings: how the text of a variable is read, and what is refused of it."""

import re
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo

from app.domain.authorization import parse_super_users
from app.http.authentication.authenticator import principal_of
from app.http.authentication.discovery import is_confidential
from app.http.authentication.oidc import ALGORITHMS
from app.http.authentication.principal_mapping import PrincipalMapping
from app.http.errors import InvalidTokenError
from app.kafka.config import KafkaSettings, SecurityProtocol
from app.postgres.connect import read_url
from app.service.ports.alterations import Failpoints

PREFIX: Final = "QUOTAS_"


def variable(field: str) -> str:
    """Return the name of the environment variable of a field."""
    return f"{PREFIX}{field.upper()}"


class LogFormat(StrEnum):
    """How log lines look."""

    JSON = "json"
    TEXT = "text"


class AuthenticatorKind(StrEnum):
    """Kinds of credentials, in the order in which they are offered by default."""

    BEARER = "bearer"
    CERTIFICATE = "certificate"
    BASIC = "basic"


def _read(read: Callable[[str], object]) -> BeforeValidator:
    """Read the text of a variable; a default has its type already."""
    return BeforeValidator(lambda value: read(value) if isinstance(value, str) else value)


def _split(text: str, separator: str = ",") -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(separator))))


def _readable(read: Callable[[Any], object]) -> AfterValidator:
    """Refuse what a reader refuses with ``ValueError``, and leave the value as it is."""

    def check(value: Any) -> Any:
        read(value.get_secret_value() if isinstance(value, SecretStr) else value)
        return value

    return AfterValidator(check)


def _require(is_allowed: Callable[[Any], bool], message: str) -> AfterValidator:
    """Refuse a value with a message."""

    def check(value: Any) -> Any:
        if not is_allowed(value):
            raise ValueError(message)
        return value

    return AfterValidator(check)


def _secret(value: object, info: ValidationInfo) -> object:
    """Return a secret; that of a file comes as its path, and a pair is both."""
    name = f"{variable(str(info.field_name))}_FILE"
    match value:
        case (_, _):
            message = f"{name} is set, too; set one of them"
            raise ValueError(message)
        case Path():
            try:
                text = value.read_text(encoding="utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", "it is not UTF-8")
                message = f"the file of {name} cannot be read: {reason}"
                raise ValueError(message) from None
            if not text:
                message = f"the file of {name} is empty"
                raise ValueError(message)
            return text
    return value


def _principal_prefix(prefix: str) -> None:
    try:
        principal_of(f"{prefix}user")
    except InvalidTokenError as error:
        raise ValueError(error.detail) from None


def _network(text: object) -> IPv4Network | IPv6Network:
    network = ip_network(str(text))
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped:
        message = f"write {text} as an IPv4 address or network"
        raise ValueError(message)
    return network


_ORIGIN: Final = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")


_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
"""Source: ``org.apache.kafka.common.internals.Topic``."""

Port = Annotated[int, Field(ge=0, le=65535)]
Rate = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
"""So many a second; 0 for no limit, in development only."""
TimeoutMs = Annotated[int, Field(ge=10, le=60_000)]
Principals = Annotated[frozenset[str], _read(parse_super_users)]
BootstrapServers = Annotated[str, _readable(KafkaSettings)]
Secret = Annotated[SecretStr, BeforeValidator(_secret)]
DatabaseUrl = Annotated[Secret, _readable(read_url)]
ConfidentialUrl = Annotated[
    str, _require(is_confidential, "it must begin with https:// (http:// on this machine only)")
]
Network = Annotated[IPv4Network | IPv6Network, BeforeValidator(_network)]
Networks = Annotated[tuple[Network, ...], _read(_split)]
Origins = Annotated[
    tuple[str, ...],
    _read(partial(_split, separator=";")),
    _require(
        lambda origins: all(map(_ORIGIN.fullmatch, origins)),
        "it takes origins such as https://portal.example, in lower case, without a path or *",
    ),
]
Algorithms = Annotated[
    tuple[str, ...],
    _read(_split),
    _require(ALGORITHMS.issuperset, f"it takes some of {', '.join(sorted(ALGORITHMS))}"),
]
PrincipalPrefix = Annotated[str, _readable(_principal_prefix)]
MappingRules = Annotated[str, _readable(PrincipalMapping)]
AuthenticatorKinds = Annotated[
    tuple[AuthenticatorKind, ...],
    _read(_split),
    _require(lambda kinds: len(set(kinds)) == len(kinds), "it takes each kind once at most"),
]
SaslProtocol = Annotated[
    SecurityProtocol,
    _require(lambda protocol: protocol.uses_sasl, "it takes SASL_SSL or SASL_PLAINTEXT"),
]
TopicName = Annotated[
    str, _require(_TOPIC.fullmatch, "it takes 1 to 249 of letters, digits, dots, _ and -")
]
TestFailpoint = Annotated[Failpoints, _read(Failpoints.read)]
