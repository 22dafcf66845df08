"""What refuses to start, and why: all of it is reported at once, before anything is started."""

import ipaddress
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Literal

from app.authenticators import bearer_tokens, oidc_authorities, tls_context
from app.cluster_settings import (
    callback_faults,
    policy_faults,
    read_clusters,
    unsafe_connection,
    unsafe_logins,
)
from app.cluster_settings import find_unsafe as find_unsafe_clusters
from app.dependency_checks import (
    Grade,
    brokers_of,
    examine_cluster,
    examine_database,
    is_local_postgres,
)
from app.documents.callbacks import read_callback
from app.http.authentication.proxies import is_this_machine
from app.kafka.config import ssl_context
from app.policy_file import read_policy
from app.postgres.connect import read_url
from app.server import Listener
from app.service.recovery import FINAL_AFTER_S
from app.setting_types import Network, variable
from app.settings import Settings, SettingsError, UnreadSettingError, unusable_file

_STRICT_SSL: Final = "verify-full"
_SYSTEM_AUTHORITIES: Final = "system"

logger = logging.getLogger(__name__)

Rule = Callable[[Settings], Iterator[str]]
"""Yields a sentence for each fault, which names the variables and says what to do."""


def load_settings(environ: Mapping[str, str], *, listens: bool = False) -> Settings:
    """Read the settings, and everything that they refer to on this machine.

    Args:
        environ: The variables.
        listens: Refuse an address that is taken or not of this machine, too.

    Raises:
        SettingsError: With a line for each setting that cannot be used; in production also for
            each that is unsafe.
    """
    settings, faults = Settings.read(environ)
    faults += find_faults(settings)
    if listens:
        faults += _judge(_addresses, settings)
    if faults:
        raise SettingsError("\n".join(faults))
    return settings


def find_faults(settings: Settings) -> list[str]:
    """Return a sentence for each fault that only several settings, or a file, can show.

    A rule that needs a setting that could not be read is skipped.
    """
    faults = [sentence for rule in _RULES for sentence in _judge(rule, settings)]
    with suppress(UnreadSettingError):
        if settings.is_production:
            faults += find_unsafe(settings)
    return faults


def find_unsafe(settings: Settings) -> list[str]:
    """Return a sentence for each setting that is unsafe: in production it stops the start.

    What stays on this machine needs no encryption.
    """
    return [sentence for rule in _SAFETY_RULES for sentence in _judge(rule, settings)]


def warn(settings: Settings) -> None:
    """Log what is unsafe where that is allowed, and what works but is not recommended."""
    if not settings.is_production:
        for sentence in find_unsafe(settings):
            logger.warning("unsafe: %s", sentence)
    for sentence in find_risky(settings):
        logger.warning("risky: %s", sentence)


def _judge(rule: Rule, settings: Settings) -> list[str]:
    try:
        return list(rule(settings))
    except UnreadSettingError:
        return []


_NEEDED_WITH: Final = {
    "tls_key_file": "tls_cert_file",
    "tls_port": "tls_cert_file",
    "tls_client_ca_file": "tls_cert_file",
    "forwarded_header": "trusted_proxies",
    "oidc_issuer": "oidc_audience",
    "events_bootstrap_servers": "events_topic",
    **dict.fromkeys(
        (
            "events_security_protocol",
            "events_sasl_mechanism",
            "events_sasl_username",
            "events_sasl_password",
            "events_ssl_ca_file",
            "events_ssl_cert_file",
            "events_ssl_key_file",
            "events_ssl_key_password",
        ),
        "events_bootstrap_servers",
    ),
}
"""By a setting: another one without which it is of no use."""


def _companions(settings: Settings) -> Iterator[str]:
    for name, needed in _NEEDED_WITH.items():
        with suppress(UnreadSettingError):
            if _is_set(settings, name) and not getattr(settings, needed):
                yield f"{variable(needed)} is needed with {variable(name)} and not set."


def _is_set(settings: Settings, name: str) -> bool:
    """Tell whether a variable is set, even to what cannot be read."""
    return bool(vars(settings).get(name, "unread") != Settings.model_fields[name].default)


def _ports(settings: Settings) -> Iterator[str]:
    ports = settings.ports
    fixed = [port for port in ports.values() if port]
    if twice := [name for name, port in ports.items() if fixed.count(port) > 1]:
        yield f"{', '.join(twice)}: each needs a port of its own."


_ACCOUNTS: Final = ("kafka", "events")
"""What the settings of an account at some brokers begin with."""


def _accounts(settings: Settings) -> Iterator[str]:
    for prefix in _ACCOUNTS:
        field = f"{prefix}_security_protocol"
        protocol = getattr(settings, field)
        for name in ("sasl_mechanism", "sasl_username", "sasl_password"):
            needed = f"{prefix}_{name}"
            if protocol.uses_sasl and not getattr(settings, needed):
                yield f"{variable(needed)} is needed with {variable(field)}={protocol} and not set."


def _authenticators(settings: Settings) -> Iterator[str]:
    configured = settings.configured_authenticators
    if not configured:
        yield (
            "QUOTAS_TOKENS_FILE, QUOTAS_OIDC_ISSUER or another credential of QUOTAS_AUTHENTICATORS "
            "is needed and none is set: nobody can call."
        )
    elif not set(configured).issuperset(settings.authenticators):
        yield (
            "QUOTAS_AUTHENTICATORS: it takes each of these once at most, which are configured: "
            f"{', '.join(configured)}."
        )


def _test_settings(settings: Settings) -> Iterator[str]:
    tested = settings.test_failpoint.armed or settings.test_final_after_s != FINAL_AFTER_S
    if tested and settings.is_production:
        yield "QUOTAS_TEST_… is for tests: it needs QUOTAS_MODE=development."


def _broker_tls(settings: Settings) -> None:
    protocols = [settings.kafka_security_protocol]
    if settings.basic_sasl_mechanism is not None:
        protocols.append(settings.basic_security_protocol)
    if any(protocol.uses_tls for protocol in protocols):
        _read_tls(settings, "kafka")


def _events_tls(settings: Settings) -> None:
    if settings.events_topic is not None and settings.events_security_protocol.uses_tls:
        _read_tls(settings, "events")


def _read_tls(settings: Settings, prefix: Literal["kafka", "events"]) -> None:
    try:
        ssl_context(settings.tls_of(prefix))
    except (OSError, ValueError) as error:
        raise unusable_file(variable(f"{prefix}_ssl_…"), error) from None


def _policy(settings: Settings) -> Iterator[str]:
    if settings.policy_file is not None:
        read = partial(read_policy, settings.policy_file)
        yield from policy_faults(read, variable("policy_file"))


def _callback(settings: Settings) -> Iterator[str]:
    if settings.callback_file is not None:
        read = partial(read_callback, settings.callback_file)
        yield from callback_faults(read, variable("callback_file"))


_OF_ONE_CLUSTER: Final = (
    "kafka_bootstrap_servers",
    "kafka_security_protocol",
    "kafka_sasl_mechanism",
    "kafka_sasl_username",
    "kafka_sasl_password",
    "kafka_ssl_ca_file",
    "kafka_ssl_cert_file",
    "kafka_ssl_key_file",
    "kafka_ssl_key_password",
    "super_users",
    "auditors",
    "allow_everyone_if_no_acl_found",
    "policy_file",
    "callback_file",
    "cluster_id",
    "basic_bootstrap_servers",
)
"""Settings in whose place the file of clusters has something for each."""


def _one_cluster_or_a_file(settings: Settings) -> Iterator[str]:
    if settings.clusters_file is None:
        return
    if beside := [variable(name) for name in _OF_ONE_CLUSTER if _is_set(settings, name)]:
        yield (
            f"{', '.join(beside)}: set nothing of one cluster beside QUOTAS_CLUSTERS_FILE, which "
            "has it for each."
        )


def _clusters(settings: Settings) -> None:
    if settings.clusters_file is not None:
        read_clusters(settings)


def _reading(read: Callable[[Settings], object]) -> Rule:
    """Return a rule that reads files and reports why they cannot be used."""

    def rule(settings: Settings) -> Iterator[str]:
        try:
            read(settings)
        except SettingsError as error:
            yield from str(error).splitlines()

    return rule


_RULES: Final[Sequence[Rule]] = (
    _companions,
    _ports,
    _accounts,
    _authenticators,
    _test_settings,
    _one_cluster_or_a_file,
    *map(
        _reading,
        (
            _broker_tls,
            _events_tls,
            bearer_tokens,
            oidc_authorities,
            tls_context,
            _clusters,
        ),
    ),
    _policy,
    _callback,
)


def _addresses(settings: Settings) -> Iterator[str]:
    for name, port in settings.ports.items():
        try:
            Listener(name, settings.host, port).refuse_unless_free()
        except SettingsError as error:
            yield str(error)


def _unsafe_listener(settings: Settings) -> Iterator[str]:
    plain = settings.has_plain_listener and not is_this_machine(settings.host)
    if plain and not settings.tls_terminated_upstream:
        yield (
            f"QUOTAS_HOST: {settings.host} is not of this machine alone, and plain HTTP shows "
            "credentials to the network. Set QUOTAS_TLS_CERT_FILE without QUOTAS_TLS_PORT, or "
            "QUOTAS_TLS_TERMINATED_UPSTREAM=true where a proxy in front speaks TLS."
        )


def _unsafe_kafka(settings: Settings) -> Iterator[str]:
    if settings.insecure_allow_plaintext_kafka:
        return
    for prefix in _ACCOUNTS:
        field, servers = f"{prefix}_security_protocol", f"{prefix}_bootstrap_servers"
        protocol, listed = getattr(settings, field), getattr(settings, servers)
        if listed and not protocol.uses_tls:
            yield from unsafe_connection(listed, protocol, variable(field))


def _unsafe_clusters(settings: Settings) -> Iterator[str]:
    """Yield what is unsafe of the clusters of a file; one that cannot be used is a fault."""
    with suppress(SettingsError, ValueError):
        clusters = read_clusters(settings)
        if settings.clusters_file is not None:
            yield from find_unsafe_clusters(clusters, settings)


def _unsafe_logins(settings: Settings) -> Iterator[str]:
    servers = settings.basic_bootstrap_servers or settings.kafka_bootstrap_servers
    if servers and settings.basic_sasl_mechanism is not None:
        yield from unsafe_logins(servers, settings)


def _unsafe_postgres(settings: Settings) -> Iterator[str]:
    if settings.insecure_allow_plaintext_postgres or is_local_postgres(settings):
        return
    parameters = read_url(settings.database_url.get_secret_value())
    sslmode = parameters.get("sslmode") or os.environ.get("PGSSLMODE") or "prefer"
    system = parameters.get("sslrootcert") == _SYSTEM_AUTHORITIES
    if sslmode != _STRICT_SSL and not (system and "sslmode" not in parameters):
        yield (
            f"QUOTAS_DATABASE_URL: sslmode={sslmode} to a Postgres on another machine does not "
            "verify its name. Add sslmode=verify-full and sslrootcert, or accept the risk with "
            "QUOTAS_INSECURE_ALLOW_PLAINTEXT_POSTGRES=true."
        )


def _unsafe_proxies(settings: Settings) -> Iterator[str]:
    networks = settings.trusted_proxies
    version_4 = [network for network in networks if isinstance(network, ipaddress.IPv4Network)]
    version_6 = [network for network in networks if isinstance(network, ipaddress.IPv6Network)]
    collapsed: list[Network] = [
        *ipaddress.collapse_addresses(version_4),
        *ipaddress.collapse_addresses(version_6),
    ]
    if any(network.prefixlen == 0 for network in collapsed):
        yield "QUOTAS_TRUSTED_PROXIES: everybody is no proxy; name the proxies' addresses."


def _unsafe_limits(settings: Settings) -> Iterator[str]:
    limits = (
        "reads_per_s",
        "alterations_per_s",
        "requests_at_once",
        "authentication_failures_per_s",
        "public_requests_per_s",
        "streams_at_once",
    )
    off = ", ".join(variable(name) for name in limits if not getattr(settings, name))
    if off:
        yield f"{off}: 0 is no limit, so one caller may use up this process."


def _unsafe_authorization(settings: Settings) -> Iterator[str]:
    if settings.insecure_allow_without_authorizer:
        yield (
            "QUOTAS_INSECURE_ALLOW_WITHOUT_AUTHORIZER: on a cluster without an authorizer "
            "everybody with a credential may alter every quota."
        )


_SAFETY_RULES: Final[Sequence[Rule]] = (
    _unsafe_listener,
    _unsafe_kafka,
    _unsafe_clusters,
    _unsafe_logins,
    _unsafe_postgres,
    _unsafe_proxies,
    _unsafe_limits,
    _unsafe_authorization,
)


def find_risky(settings: Settings) -> Iterator[str]:
    """Yield what works and is not recommended."""
    if os.geteuid() == 0:
        yield "the service runs as root; give it a user of its own"
    if settings.tokens_file is not None and settings.is_production:
        yield (
            "QUOTAS_TOKENS_FILE: static tokens are good for whoever has them until they expire; "
            "tokens of an identity provider (QUOTAS_OIDC_ISSUER) expire sooner"
        )


async def check_dependencies(settings: Settings) -> None:
    """Ask Postgres, and the brokers where a cluster is named, before the service starts.

    What does not answer may come later: readiness and the requests themselves report it.

    Raises:
        SettingsError: The log is not append-only or not of this version, Postgres may lose it or
            has another time, and the mode is production; or the cluster is another one.
    """
    findings = await examine_database(settings)
    if settings.cluster_id is not None:
        (cluster,) = read_clusters(settings).clusters.values()
        async with brokers_of(cluster, settings) as brokers:
            findings += await examine_cluster(cluster, settings, brokers)
    refused = [each for each in findings if each.grade.refuses(settings)]
    if refused:
        raise SettingsError("\n".join(each.sentence for each in refused))
    for each in findings:
        if each.grade is not Grade.GOOD:
            logger.warning("%s: %s", each.grade.word, each.sentence)
