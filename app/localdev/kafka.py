"""A real Apache Kafka broker on this machine."""

import base64
import shutil
import signal
import uuid
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from app.localdev.kafka_admin import cluster_id_of, silent_admin
from app.localdev.kafka_jvm import (
    QUICK_START,
    LocalTls,
    agent_option,
    broker_properties,
    java_command,
    jvm_environment,
    listener_names,
    logging_text,
    properties_text,
    run_tool,
    sasl_properties,
    scram_arguments,
    tls_properties,
)
from app.localdev.local_directory import LocalDevError, read_state, write_state
from app.localdev.processes import HOST, LocalServer, ManagedProcess, free_ports, is_free

_STOP_DEADLINE_S = 30.0


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

    def __post_init__(self) -> None:
        self.directory = self.directory.absolute()
        self.log_path = self.directory / "broker.log"
        self.request_log_path = self.directory / "requests.log"
        self._properties_path = self.directory / "server.properties"
        self._logging_path = self.directory / "log4j2.properties"
        self._state_path = self.directory / "node.json"
        self._state = read_state(self._state_path)
        self._child = ManagedProcess("The broker", self.log_path)

    @property
    def cluster_id(self) -> str:
        """The cluster id, set from the first start on."""
        return str(self._state["cluster_id"])

    @property
    def controller_port(self) -> int:
        """The port of the controller's listener."""
        return self._ports["CONTROLLER"]

    @property
    def bootstrap_servers(self) -> str:
        """The PLAINTEXT listener; its callers are `User:ANONYMOUS`."""
        return self._address("PLAINTEXT")

    @property
    def sasl_bootstrap_servers(self) -> str:
        """The SASL_PLAINTEXT listener: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512."""
        return self._address("SASL_PLAINTEXT")

    @property
    def ssl_bootstrap_servers(self) -> str:
        """The SSL listener, where `tls` is set."""
        return self._address("SSL")

    @property
    def sasl_ssl_bootstrap_servers(self) -> str:
        """The SASL_SSL listener, where `tls` is set."""
        return self._address("SASL_SSL")

    @property
    def metrics_url(self) -> str:
        """The Prometheus text, where `metrics` is on."""
        return f"http://{HOST}:{self._state['metrics_port']}/metrics"

    def start(self) -> None:
        """Start the node, with its data and its ports if still free; return when it answers."""
        if self._child.is_running():
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        self._child.bring_up(self._launch, self.kill)

    def stop(self) -> None:
        """Shut the node down in order; kill it when it takes longer than 30 s."""
        self._child.stop(signal.SIGTERM, _STOP_DEADLINE_S)

    def kill(self) -> None:
        """Kill the node, as a power cut would."""
        self._child.kill()

    def pause(self) -> None:
        """Let the node hang: connections stay open and nothing answers."""
        self._child.pause()

    def resume(self) -> None:
        """Let a paused node go on."""
        self._child.resume()

    @property
    def _ports(self) -> dict[str, int]:
        ports: dict[str, int] = self._state["ports"]
        return ports

    def _address(self, listener: str) -> str:
        return f"{HOST}:{self._ports[listener]}"

    def _prepare(self) -> None:
        names = listener_names(self.tls)
        ports: dict[str, int] = self._state.get("ports", {})
        if list(ports) != names or not all(is_free(port) for port in ports.values()):
            ports = dict(zip(names, free_ports(len(names)), strict=True))
        metrics_port = self._state.get("metrics_port")
        if self.metrics and (metrics_port is None or not is_free(metrics_port)):
            self._state = {**self._state, "metrics_port": free_ports(1)[0]}
        formatted = "cluster_id" in self._state
        self._state = {"cluster_id": _new_cluster_id(), **self._state, "ports": ports}
        self._write_configuration()
        if not formatted:
            self._format()
        write_state(self._state_path, self._state)

    def _write_configuration(self) -> None:
        properties = {
            **broker_properties(self.directory, self._ports, self.super_users),
            **sasl_properties(self._ports, self.plain_users),
            **tls_properties(self.tls),
            **self.extra_properties,
        }
        self._properties_path.write_text(properties_text(properties), encoding="utf-8")
        request_log = self.request_log_path if self.request_log else None
        self._logging_path.write_text(logging_text(request_log))
        self.log_path.touch()

    def _format(self) -> None:
        shutil.rmtree(self.directory / "data", ignore_errors=True)
        # A cluster ID may begin with a hyphen: it must not look like an option.
        cluster = f"--cluster-id={self.cluster_id}"
        arguments = ["format", cluster, "-c", str(self._properties_path)]
        arguments += scram_arguments(self.scram_users)
        done = run_tool("kafka.tools.StorageTool", *arguments, java_options=self.java_options)
        if done.returncode != 0:
            raise LocalDevError(f"The broker's storage was not formatted:\n{done.stdout}")

    def _launch(self) -> Callable[[], bool]:
        self._prepare()
        options = [f"-Xmx{self.heap}", f"-Dlog4j2.configurationFile={self._logging_path}"]
        if not self.optimized:
            options.append(QUICK_START)
        if self.metrics:
            options.append(agent_option(self.directory, self._state["metrics_port"]))
        command = java_command("kafka.Kafka", *options, *self.java_options)
        command.append(str(self._properties_path))
        self._child.start(command, directory=self.directory, environ=jvm_environment())
        client = silent_admin(self.bootstrap_servers)
        return lambda: cluster_id_of(client) == self.cluster_id


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
