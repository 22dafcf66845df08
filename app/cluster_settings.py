"""The clusters that are served: one of the variables, or those of a file; both are one type."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from app.documents.callbacks import CallbackFileError, make_callback, read_callback
from app.documents.clusters import ClusterEntry, ClustersFileError, read_clusters_file
from app.domain.authorization import AuthorizerSettings, Policy
from app.domain.callbacks.callback import ConfiguredCallback
from app.domain.errors import CallbackFailedError
from app.http.authentication.proxies import is_this_machine
from app.kafka.config import (
    KafkaLogin,
    KafkaSettings,
    SaslMechanism,
    SecurityProtocol,
    ssl_context,
)
from app.policy_file import PolicyFileError, read_policy
from app.setting_types import variable
from app.settings import Settings, SettingsError, unusable_file

DEFAULT_NAME: Final = "default"
"""The name of the one cluster of a service without a file."""

_FILE: Final = "clusters_file"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """How one cluster is served; two that are equal are served alike.

    Attributes:
        callback: A mapping, or the path of a file; null: none is configured.
        folder: What a mapping's files are relative to.
        is_of_file: Whether it stands in the file of clusters.
    """

    name: str
    kafka: KafkaSettings
    authorizer: AuthorizerSettings
    auditors: frozenset[str]
    policy_file: Path | None
    callback: Mapping[str, Any] | Path | None
    folder: Path
    is_of_file: bool

    def setting(self, member: str, field: str | None = None) -> str:
        """Return how faults name a member of the file, or else the variable of a field."""
        if self.is_of_file:
            return f"{variable(_FILE)}: clusters.{self.name}.{member}"
        return variable(field or member)

    @property
    def account(self) -> str:
        """How sentences name where its account is configured."""
        return f"clusters.{self.name}" if self.is_of_file else "QUOTAS_KAFKA_…"

    def read_policy(self) -> Policy | None:
        """Read the policy; null where there is none.

        Raises:
            PolicyFileError: It cannot be used.
        """
        return None if self.policy_file is None else read_policy(self.policy_file)

    def read_callback(self) -> ConfiguredCallback | None:
        """Read what the callback does; null where none is configured.

        Raises:
            CallbackFileError: It cannot be used.
            CallbackFailedError: The class that it names cannot be made.
        """
        match self.callback:
            case None:
                return None
            case Path():
                return read_callback(self.callback)
        try:
            return make_callback(self.callback, self.folder)
        except ValueError as error:
            raise CallbackFileError(f"{str(error).rstrip('.')}.") from error

    def login(self, settings: Settings) -> KafkaLogin | None:
        """Return how callers log in at its brokers; null where they do not."""
        mechanism = settings.basic_sasl_mechanism
        if mechanism is None:
            return None

        def log_in(user: str, password: str) -> KafkaSettings:
            return replace(
                self.kafka,
                bootstrap_servers=settings.basic_bootstrap_servers or self.kafka.bootstrap_servers,
                security_protocol=settings.basic_security_protocol,
                sasl_mechanism=mechanism,
                sasl_username=user,
                sasl_password=password,
                cluster_id=None,
            )

        return log_in


@dataclass(frozen=True, slots=True)
class ClustersSettings:
    """All clusters by name, in the order of the file, and which one is the default."""

    default: str
    clusters: Mapping[str, ClusterSettings]

    @property
    def privileged(self) -> frozenset[str]:
        """The super users and auditors of any of them."""
        found = (each.authorizer.super_users | each.auditors for each in self.clusters.values())
        return frozenset().union(*found)


def read_clusters(
    settings: Settings, in_force: Mapping[str, ClusterSettings] | None = None
) -> ClustersSettings:
    """Return the clusters; a file is read anew each time.

    Args:
        settings: Of the service.
        in_force: Those that are served; what these name is not read again.

    Raises:
        SettingsError: The file cannot be used, or something that it names; with a line for each
            fault. In production also where a connection is unsafe.
    """
    if settings.clusters_file is None:
        return ClustersSettings(DEFAULT_NAME, {DEFAULT_NAME: _of_variables(settings)})
    clusters = _of_file(settings)
    before = in_force or {}
    new = [each for name, each in clusters.clusters.items() if before.get(name) != each]
    faults = [fault for each in new for fault in find_faults(each, settings)]
    if settings.is_production:
        faults += find_unsafe(clusters, settings)
    if faults:
        raise SettingsError("\n".join(faults))
    return clusters


def _of_variables(settings: Settings) -> ClusterSettings:
    return ClusterSettings(
        DEFAULT_NAME,
        settings.kafka,
        AuthorizerSettings(settings.super_users, settings.allow_everyone_if_no_acl_found),
        settings.auditors,
        settings.policy_file,
        settings.callback_file,
        Path(),
        is_of_file=False,
    )


def _of_file(settings: Settings) -> ClustersSettings:
    path = settings.clusters_file or Path()
    try:
        document = read_clusters_file(path)
    except ClustersFileError as error:
        faults = [f"{variable(_FILE)}: {fault}" for fault in str(error).splitlines()]
        raise SettingsError("\n".join(faults)) from None
    entries = document.clusters.items()
    clusters = {name: _of_entry(name, entry, path.parent) for name, entry in entries}
    return ClustersSettings(document.default, clusters)


def _of_entry(name: str, entry: ClusterEntry, folder: Path) -> ClusterSettings:
    mechanism = entry.sasl_mechanism
    kafka = KafkaSettings(
        entry.bootstrap_servers,
        SecurityProtocol(entry.security_protocol),
        None if mechanism is None else SaslMechanism(mechanism),
        entry.sasl_username,
        entry.sasl_password,
        ssl_ca_file=_text(entry.ssl_ca_file),
        ssl_cert_file=_text(entry.ssl_cert_file),
        ssl_key_file=_text(entry.ssl_key_file),
        cluster_id=entry.cluster_id,
        ssl_key_password=entry.ssl_key_password,
    )
    return ClusterSettings(
        name,
        kafka,
        AuthorizerSettings(entry.super_users, entry.allow_everyone_if_no_acl_found),
        entry.auditors,
        entry.policy_file,
        entry.callback,
        folder,
        is_of_file=True,
    )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def find_faults(cluster: ClusterSettings, settings: Settings) -> Iterator[str]:
    """Yield a sentence for each fault of the files that a cluster's settings name."""
    login = cluster.login(settings)
    protocols = [cluster.kafka.security_protocol]
    protocols += [] if login is None else [settings.basic_security_protocol]
    if any(protocol.uses_tls for protocol in protocols):
        try:
            ssl_context(replace(cluster.kafka, security_protocol=SecurityProtocol.SSL))
        except (OSError, ValueError) as error:
            yield str(unusable_file(cluster.setting("ssl_…"), error))
    yield from policy_faults(cluster.read_policy, cluster.setting("policy_file"))
    yield from callback_faults(cluster.read_callback, cluster.setting("callback"))


def policy_faults(read: Callable[[], object], setting: str) -> Iterator[str]:
    """Yield a sentence for each fault of a policy; ``setting`` names what has it."""
    try:
        read()
    except PolicyFileError as error:
        yield from (f"{setting}: {fault}" for fault in str(error).splitlines())


def callback_faults(read: Callable[[], ConfiguredCallback | None], setting: str) -> Iterator[str]:
    """Yield the fault of what configures a callback; ``setting`` names what has it."""
    try:
        configured = read()
    except (CallbackFileError, CallbackFailedError) as error:
        yield f"{setting}: {error}"
    else:
        if configured is not None:
            configured.model.close()


def find_unsafe(clusters: ClustersSettings, settings: Settings) -> list[str]:
    """Return a sentence for each connection that is not encrypted and leaves this machine."""
    faults: list[str] = []
    for cluster in clusters.clusters.values():
        kafka, setting = cluster.kafka, cluster.setting("security_protocol")
        if not settings.insecure_allow_plaintext_kafka:
            protocol = kafka.security_protocol
            faults += unsafe_connection(kafka.bootstrap_servers, protocol, setting)
        if cluster.login(settings) is not None:
            faults += unsafe_logins(kafka.bootstrap_servers, settings)
    return list(dict.fromkeys(faults))


def unsafe_connection(
    bootstrap_servers: str, protocol: SecurityProtocol, setting: str
) -> Iterator[str]:
    """Yield a sentence where brokers on other machines are spoken to without TLS."""
    hosts = _other_hosts(bootstrap_servers)
    if hosts and not protocol.uses_tls:
        yield (
            f"{setting}: {protocol} to {', '.join(hosts)} is not encrypted. "
            "Use SSL or SASL_SSL, or accept the risk with "
            "QUOTAS_INSECURE_ALLOW_PLAINTEXT_KAFKA=true."
        )


def unsafe_logins(bootstrap_servers: str, settings: Settings) -> Iterator[str]:
    """Yield a sentence where callers' passwords would go to other machines without TLS."""
    if _other_hosts(bootstrap_servers) and not settings.basic_security_protocol.uses_tls:
        is_plain = settings.basic_sasl_mechanism == SaslMechanism.PLAIN
        sent = "passwords" if is_plain else "logins"
        yield (
            f"QUOTAS_BASIC_SECURITY_PROTOCOL: SASL_PLAINTEXT sends the callers' {sent} to the "
            "brokers unencrypted over a network. Use SASL_SSL."
        )


def _other_hosts(bootstrap_servers: str) -> list[str]:
    addresses = KafkaSettings(bootstrap_servers).addresses
    return [host for host, _ in addresses if not is_this_machine(host)]
