"""A real Apache Kafka broker on this machine: its JVM, its configuration, its metrics agent."""

import base64
import os
import re
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

from app.java import JavaMissingError, find_java
from app.localdev.jars import class_path, metrics_agent
from app.localdev.kafka_admin import cluster_id_of, silent_admin
from app.localdev.local_directory import LocalDevError, read_state, write_state
from app.localdev.processes import HOST, LocalServer, free_ports, is_free, run_to_end

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


_TOOL_DEADLINE_S = 120

QUICK_START = "-XX:TieredStopAtLevel=1"
"""The first compiler alone: a program of minutes takes half of the processor's time."""


def java_command(
    main_class: str, *options: str, tools: bool = False, jars: Sequence[Path] = ()
) -> list[str]:
    """Return the command that runs a main class with options of the JVM; its arguments follow.

    ``jars`` are others than Kafka's, such as those of plugins.
    """
    try:
        java = str(find_java())
    except JavaMissingError as error:
        raise LocalDevError(str(error)) from error
    jars_in_order = os.pathsep.join(map(str, [*class_path(tools=tools), *jars]))
    usual = ("-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dfile.encoding=UTF-8")
    return [java, *usual, *options, "-cp", jars_in_order, main_class]


def jvm_environment() -> dict[str, str]:
    """Return the environment of the broker and its tools, free of Java options of this shell."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}


def run_tool(
    main_class: str,
    *arguments: str,
    java_options: Sequence[str] = (),
    tools: bool = False,
    jars: Sequence[Path] = (),
) -> CompletedProcess[str]:
    """Run one of Kafka's command-line programs to its end and return its output and exit code.

    Args:
        main_class: for example `kafka.admin.ConfigCommand`, which is kafka-configs.
        arguments: as on its command line.
        java_options: further options of its JVM.
        tools: the class is in kafka-tools, as `org.apache.kafka.tools.AclCommand` and
            `org.apache.kafka.tools.DumpLogSegments` are.
        jars: others than Kafka's.
    """
    options = ("-Xmx256m", QUICK_START, *java_options)
    command = java_command(main_class, *options, tools=tools, jars=jars)
    return run_to_end([*command, *arguments], jvm_environment(), deadline_s=_TOOL_DEADLINE_S)


_ATTRIBUTES: Final = "(byte-rate|request-time|mutation-rate|tokens|throttle-time)"
_RESOURCES: Final = "(Produce|Fetch|Request|ControllerMutation)"

# The first pattern comes first: the names of a pair match that of a user as well.
_RULES: Final = f"""lowercaseOutputName: true
includeObjectNames: ["kafka.server:type=Produce,*", "kafka.server:type=Fetch,*",
  "kafka.server:type=Request,*", "kafka.server:type=ControllerMutation,*"]
rules:
- pattern: 'kafka.server<type={_RESOURCES}, user=(.*), client-id=(.*)><>{_ATTRIBUTES}'
  name: kafka_server_quota_$4
  labels: {{resource: $1, user: $2, client_id: $3}}
- pattern: 'kafka.server<type={_RESOURCES}, user=(.*)><>{_ATTRIBUTES}'
  name: kafka_server_quota_$3
  labels: {{resource: $1, user: $2}}
- pattern: 'kafka.server<type={_RESOURCES}, client-id=(.*)><>{_ATTRIBUTES}'
  name: kafka_server_quota_$3
  labels: {{resource: $1, client_id: $2}}
- pattern: 'kafka.server<type={_RESOURCES}, (group|quota.type)=(.*)><>{_ATTRIBUTES}'
  name: kafka_server_quota_$4
  labels: {{resource: $1, user: "$2:$3"}}
"""
"""The last is for quota callbacks, whose tags are others: a group is the user `group:<name>`.

Source: KafkaMbean, ClientQuotaManager, ControllerMutationQuotaManager."""


def agent_option(directory: Path, port: int) -> str:
    """Write the agent's rules into a directory; return the option that loads it."""
    rules = directory / "jmx_exporter.yaml"
    rules.write_text(_RULES, encoding="utf-8")
    return f"-javaagent:{metrics_agent()}={HOST}:{port}:{rules}"


@dataclass
class LocalKafka(LocalServer):
    """One node, broker and controller, that keeps its data, ports and cluster id in a directory.

    Attributes:
        directory: everything the node writes; the same directory gives the same cluster again.
        super_users: as in the broker's `super.users`.
        plain_users: name to password for SASL PLAIN.
        scram_users: name to password for both SCRAM mechanisms; stored at the first start.
        extra_properties: broker properties that are added or win.
        request_log: keep each DescribeClientQuotas and AlterClientQuotas that arrives.
        heap: the largest Java heap, as after `-Xmx`.
        optimized: compile as a broker in production does; it starts more slowly.
        tls: adds an SSL and a SASL_SSL listener.
        metrics: serve the quota metrics as Prometheus text.
        java_options: further options of the JVMs that format and run the node.
        plugin_jars: jars of classes that the properties name, such as quota callbacks.
        joins: the node that is the controller of its cluster; null: it is its own.
        node_id: of this node; the others of its cluster have others.
    """

    directory: Path
    _: KW_ONLY
    super_users: str = "User:ANONYMOUS;User:admin"
    plain_users: Mapping[str, str] = field(default_factory=dict)
    scram_users: Mapping[str, str] = field(default_factory=dict)
    extra_properties: Mapping[str, str] = field(default_factory=dict)
    request_log: bool = False
    heap: str = "512m"
    optimized: bool = False
    tls: LocalTls | None = None
    metrics: bool = False
    java_options: tuple[str, ...] = ()
    plugin_jars: tuple[Path, ...] = ()
    joins: "LocalKafka | None" = None
    node_id: int = 1

    def __post_init__(self) -> None:
        self.directory = self.directory.absolute()
        super().__init__("The broker", self.directory / "broker.log")
        self.request_log_path = self.directory / "requests.log"
        self._properties_path = self.directory / "server.properties"
        self._logging_path = self.directory / "log4j2.properties"
        self._state_path = self.directory / "node.json"
        self._state = read_state(self._state_path)

    @property
    def cluster_id(self) -> str:
        """The cluster id, set from the first start on."""
        return str(self._state["cluster_id"])

    @property
    def bootstrap_servers(self) -> str:
        """The PLAINTEXT listener; its callers are `User:ANONYMOUS`."""
        return self.address("PLAINTEXT")

    @property
    def sasl_bootstrap_servers(self) -> str:
        """The SASL_PLAINTEXT listener: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512."""
        return self.address("SASL_PLAINTEXT")

    def address(self, listener: str) -> str:
        """Return where a listener is: also SSL and SASL_SSL, where `tls` is set."""
        return f"{HOST}:{self._state['ports'][listener]}"

    @property
    def metrics_url(self) -> str:
        """The Prometheus text, where `metrics` is on."""
        return f"http://{HOST}:{self._state['metrics_port']}/metrics"

    def start(self) -> None:
        """Start the node, with its data and its ports if still free; return when it answers."""
        if not self.is_running():
            self.directory.mkdir(parents=True, exist_ok=True)
            self.bring_up(self._launch)

    def _prepare(self) -> None:
        names = listener_names(self.tls)
        ports: dict[str, int] = self._state.get("ports", {})
        if list(ports) != names or not all(is_free(port) for port in ports.values()):
            ports = dict(zip(names, free_ports(len(names)), strict=True))
        metrics_port = self._state.get("metrics_port")
        if self.metrics and (metrics_port is None or not is_free(metrics_port)):
            self._state = {**self._state, "metrics_port": free_ports(1)[0]}
        formatted = "cluster_id" in self._state
        cluster_id = _new_cluster_id() if self.joins is None else self.joins.cluster_id
        self._state = {"cluster_id": cluster_id, **self._state, "ports": ports}
        self._write_configuration()
        if not formatted:
            self._format()
        write_state(self._state_path, self._state)

    def _write_configuration(self) -> None:
        ports: dict[str, int] = self._state["ports"]
        properties = {
            **broker_properties(self.directory, ports, self.super_users),
            **self._membership(ports),
            **sasl_properties(ports, self.plain_users),
            **tls_properties(self.tls),
            **self.extra_properties,
        }
        self._properties_path.write_text(properties_text(properties), encoding="utf-8")
        request_log = self.request_log_path if self.request_log else None
        self._logging_path.write_text(logging_text(request_log))
        self.log_path.touch()

    def _membership(self, ports: Mapping[str, int]) -> dict[str, str]:
        """Return what differs for a broker whose controller is another node."""
        if self.joins is None:
            return {}
        clients = {name: port for name, port in ports.items() if name != "CONTROLLER"}
        return {
            "process.roles": "broker",
            "node.id": str(self.node_id),
            "controller.quorum.voters": f"1@{self.joins.address('CONTROLLER')}",
            "listeners": _listeners(clients),
        }

    def _format(self) -> None:
        shutil.rmtree(self.directory / "data", ignore_errors=True)
        # A cluster ID may begin with a hyphen: it must not look like an option.
        cluster = f"--cluster-id={self.cluster_id}"
        arguments = ["format", cluster, "-c", str(self._properties_path)]
        arguments += scram_arguments(self.scram_users)
        done = run_tool(
            "kafka.tools.StorageTool",
            *arguments,
            java_options=self.java_options,
            jars=self.plugin_jars,
        )
        if done.returncode != 0:
            raise LocalDevError(f"The broker's storage was not formatted:\n{done.stdout}")

    def _launch(self) -> Callable[[], bool]:
        self._prepare()
        options = [f"-Xmx{self.heap}", f"-Dlog4j2.configurationFile={self._logging_path}"]
        if not self.optimized:
            options.append(QUICK_START)
        if self.metrics:
            options.append(agent_option(self.directory, self._state["metrics_port"]))
        options += self.java_options
        command = java_command("kafka.Kafka", *options, jars=self.plugin_jars)
        command.append(str(self._properties_path))
        self.spawn(command, directory=self.directory, environ=jvm_environment())
        client = silent_admin(self.bootstrap_servers)
        return lambda: cluster_id_of(client) == self.cluster_id


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
