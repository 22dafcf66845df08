"""Unsafe settings: in production they stop the start-up, in development each is a warning."""

import ipaddress
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.kafka.configuration import KafkaSettings
from app.meanings.audit_log import database_url
from app.meanings.cluster import kafka_settings
from app.postgres.parameters import read_url
from app.settings import Mode, Settings, SettingsError

_STRICT_SSL: Final = "verify-full"
_SYSTEM_AUTHORITIES: Final = "system"

logger = logging.getLogger(__name__)


def refuse_unsafe(settings: Settings) -> None:
    """Look at the settings, and at who runs this.

    Raises:
        SettingsError: The mode is production; with a line for each setting that is unsafe.
    """
    faults = list(unsafe(settings))
    if faults and settings.mode is Mode.PRODUCTION:
        raise SettingsError("\n".join(faults))
    for fault in faults:
        logger.warning("unsafe: %s", fault)


def warn(settings: Settings) -> None:
    """Write a line for each setting that works in production and had better be another."""
    for sentence in _doubtful(settings):
        logger.warning("doubtful: %s", sentence)


def unsafe(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each unsafe setting, which names it and says what to do.

    What stays on this machine needs no encryption. The settings must be readable: see
    ``refuse_every_fault``.
    """
    yield from _unsafe_listener(settings)
    yield from _unsafe_kafka(settings)
    yield from _unsafe_postgres(settings)


def _unsafe_listener(settings: Settings) -> Iterator[str]:
    plain = settings.has_plain_listener and not is_this_machine(settings.host)
    if plain and not settings.tls_terminated_upstream:
        yield (
            f"QUOTAS_HOST: {settings.host} is not of this machine alone, and plain HTTP shows "
            "credentials to the network. Set QUOTAS_TLS_CERT_FILE without QUOTAS_TLS_PORT, or "
            "QUOTAS_TLS_TERMINATED_UPSTREAM=true where a proxy in front speaks TLS."
        )


def _unsafe_kafka(settings: Settings) -> Iterator[str]:
    kafka = kafka_settings(settings)
    hosts = _others(kafka)
    if hosts and not kafka.protocol.uses_tls and not settings.insecure_allow_plaintext_kafka:
        yield (
            f"QUOTAS_KAFKA_SECURITY_PROTOCOL: {kafka.protocol.value} to {', '.join(hosts)} is not "
            "encrypted. Use SSL or SASL_SSL, or accept the risk with "
            "QUOTAS_INSECURE_ALLOW_PLAINTEXT_KAFKA=true."
        )


def _others(kafka: KafkaSettings) -> list[str]:
    return [host for host, _ in kafka.addresses if not is_this_machine(host)]


def _unsafe_postgres(settings: Settings) -> Iterator[str]:
    if settings.insecure_allow_plaintext_postgres or is_local_postgres(settings):
        return
    parameters = read_url(database_url(settings))
    sslmode = parameters.get("sslmode") or os.environ.get("PGSSLMODE") or "prefer"
    system = parameters.get("sslrootcert") == _SYSTEM_AUTHORITIES
    if sslmode != _STRICT_SSL and not (system and "sslmode" not in parameters):
        yield (
            f"QUOTAS_DATABASE_URL: sslmode={sslmode} to a Postgres on another machine does not "
            "make sure of its name. Add sslmode=verify-full and sslrootcert, or accept the risk "
            "with QUOTAS_INSECURE_ALLOW_PLAINTEXT_POSTGRES=true."
        )


def _doubtful(settings: Settings) -> Iterator[str]:
    if os.geteuid() == 0:
        yield "the service runs as root; give it a user of its own"
    if settings.insecure_allow_without_authorizer:
        yield (
            "QUOTAS_INSECURE_ALLOW_WITHOUT_AUTHORIZER: on a cluster without an authorizer "
            "everybody with a credential may alter every quota"
        )
    if settings.tokens_file is not None and settings.mode is Mode.PRODUCTION:
        yield (
            "QUOTAS_TOKENS_FILE: static tokens are good for whoever has them until they expire; "
            "tokens of an identity provider (QUOTAS_OIDC_ISSUER) live shorter"
        )


def is_local_postgres(settings: Settings) -> bool:
    """Tell whether Postgres is on this machine: a socket, or a loopback address."""
    parameters = read_url(database_url(settings))
    return all(_is_local(host) for host in _postgres_hosts(parameters))


def _postgres_hosts(parameters: Mapping[str, Any]) -> list[str]:
    """Return the hosts as libpq sees them; an empty one is its socket."""
    named = parameters.get("hostaddr") or parameters.get("host") or os.environ.get("PGHOST") or ""
    return str(named).split(",")


def _is_local(host: str) -> bool:
    return not host or host.startswith(("/", "@")) or is_this_machine(host)


def is_this_machine(host: str) -> bool:
    """Tell whether a host is a loopback address or ``localhost``; no name is looked up."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
