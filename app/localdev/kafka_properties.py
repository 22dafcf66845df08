"""The broker's configuration files as text: pure functions over names, ports and accounts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.localdev.processes import HOST

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

_PLAIN_WORD = re.compile(r"[A-Za-z0-9_-]+")
_FIRST_BEYOND_ASCII = 0x80

SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

QUOTA_REQUESTS = ("ALTER_CLIENT_QUOTAS", "DESCRIBE_CLIENT_QUOTAS")
"""API keys 49 and 48 as `kafka.request.logger` prints them. Source: ApiKeys."""


@dataclass(frozen=True)
class LocalTls:
    """PEM files of a broker: its key (PKCS 8) with its certificates, and its authorities."""

    keystore_file: Path
    truststore_file: Path


def listener_names(tls: LocalTls | None) -> list[str]:
    """Return the listeners of a node, the controller's first."""
    plain = ["CONTROLLER", "PLAINTEXT", "SASL_PLAINTEXT"]
    return plain if tls is None else [*plain, "SSL", "SASL_SSL"]


def broker_properties(
    directory: Path, ports: Mapping[str, int], super_users: str
) -> dict[str, str]:
    """Return the properties of one combined broker and controller, ACLs enforced."""
    clients = {name: port for name, port in ports.items() if name != "CONTROLLER"}
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{ports['CONTROLLER']}",
        "listeners": _listeners(ports),
        "advertised.listeners": _listeners(clients),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(
            f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in ports
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(directory / "data"),
        # Half the default: how long a node that was killed is refused when it comes back.
        "broker.session.timeout.ms": "4500",
        "broker.heartbeat.interval.ms": "500",
        # Each idle thread of a listener wakes up three times a second.
        "num.network.threads": "1",
        "num.io.threads": "4",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": super_users,
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def sasl_properties(ports: Mapping[str, int], plain_users: Mapping[str, str]) -> dict[str, str]:
    """Return what lets callers in with PLAIN and SCRAM on each SASL listener."""
    accounts = "".join(f" {_jaas_option('user_' + n, p)}" for n, p in plain_users.items())
    properties = {"sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM_MECHANISMS))}
    for name in (name for name in ports if name.startswith("SASL_")):
        listener = f"listener.name.{name.lower()}"
        properties[f"{listener}.plain.sasl.jaas.config"] = f"{_PLAIN} required{accounts};"
        for mechanism in SCRAM_MECHANISMS:
            properties[f"{listener}.{mechanism.lower()}.sasl.jaas.config"] = f"{_SCRAM} required;"
    return properties


def tls_properties(tls: LocalTls | None) -> dict[str, str]:
    """Return the broker's side of TLS; a client certificate is checked where there is one."""
    if tls is None:
        return {}
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tls.keystore_file),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tls.truststore_file),
        "ssl.client.auth": "requested",
    }


def scram_arguments(scram_users: Mapping[str, str]) -> list[str]:
    """Return the arguments of StorageTool that store the accounts for both mechanisms."""
    return [
        argument
        for name, password in scram_users.items()
        for mechanism in SCRAM_MECHANISMS
        for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the properties as a file that `java.util.Properties` reads back unchanged."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in properties.items())


def logging_text(request_log: Path | None) -> str:
    """Return a log4j 2 configuration: everything to the output, quota requests to a file."""
    lines = [
        "status = error",
        "appender.out.type = Console",
        "appender.out.name = out",
        "appender.out.layout.type = PatternLayout",
        "appender.out.layout.pattern = [%d] %p %m (%c)%n",
        "rootLogger.level = info",
        "rootLogger.appenderRef.out.ref = out",
    ]
    return "\n".join(lines + (_request_log_lines(request_log) if request_log else [])) + "\n"


def _request_log_lines(path: Path) -> list[str]:
    wanted = "|".join(f'.*"requestApiKeyName":"{name}".*' for name in QUOTA_REQUESTS)
    return [
        "appender.requests.type = File",
        "appender.requests.name = requests",
        f"appender.requests.fileName = {path}",
        "appender.requests.layout.type = PatternLayout",
        "appender.requests.layout.pattern = %m%n",
        "appender.requests.filter.wanted.type = RegexFilter",
        f"appender.requests.filter.wanted.regex = {_escape(wanted)}",
        "logger.requests.name = kafka.request.logger",
        "logger.requests.level = debug",
        "logger.requests.additivity = false",
        "logger.requests.appenderRef.requests.ref = requests",
    ]


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())


def _jaas_option(name: str, value: str) -> str:
    return f"{name if _PLAIN_WORD.fullmatch(name) else _in_quotes(name)}={_in_quotes(value)}"


def _in_quotes(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _escape(value: str) -> str:
    """Escape what `java.util.Properties` would read otherwise: it takes a file for Latin 1."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    numbers = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(
        chr(unit) if unit < _FIRST_BEYOND_ASCII else f"\\u{unit:04x}" for unit in numbers
    )
