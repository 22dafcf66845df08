"""HDFS and YARN on this machine: each daemon is a process, and each node has an address."""

import json
import os
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from xml.sax.saxutils import escape

from app.java import find_java
from app.localdev.jars import jars_of
from app.localdev.processes import HOST, free_ports
from tests.testkit.patience import wait_until
from tests.testkit.processes import running

DEADLINE_S = 180.0
NODES = ("127.0.0.2", "127.0.0.3")

_HDFS = "org.apache.hadoop.hdfs.server"
_YARN = "org.apache.hadoop.yarn.server"


class Hadoop:
    """Where it runs.

    Attributes:
        uri: The root of HDFS.
        conf: What ``HADOOP_CONF_DIR`` is for its clients.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._web = folder / "web"
        self.conf = folder / "conf"
        name_node, self._name_web, *manager = free_ports(7)
        self.uri = f"hdfs://{HOST}:{name_node}"
        self._manager_web = manager[-1]
        self._settings = _settings(folder, self.uri, self._name_web, manager)
        _write(self.conf, self._settings)
        # Jetty looks for these pages in all jars, for seconds, unless they come first.
        (daemons,) = (jar for jar in jars_of("hadoop") if "minicluster" in jar.name)
        with zipfile.ZipFile(daemons) as jar:
            jar.extractall(self._web, [each for each in jar.namelist() if "webapps/" in each])

    def put(self, local: Path, path: str) -> str:
        target = f"{self.uri}{path}"
        command = self._command(self.conf, "org.apache.hadoop.fs.FsShell")
        subprocess.run([*command, "-mkdir", "-p", target.rpartition("/")[0]], check=True)
        subprocess.run([*command, "-put", str(local), target], check=True)
        return target

    def start_hdfs(self, stack: ExitStack) -> None:
        """Start a NameNode and a DataNode; wait until the second has reported to the first."""
        name_node = f"{_HDFS}.namenode.NameNode"
        subprocess.run(
            [*self._command(self.conf, name_node), "-format", "-nonInteractive"],
            check=True,
            capture_output=True,
        )
        self._run(stack, self.conf, name_node)
        self._run(stack, self.conf, f"{_HDFS}.datanode.DataNode")
        query = "jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        self._await(
            f"http://{HOST}:{self._name_web}/{query}",
            lambda state: bool(state["beans"]) and state["beans"][0]["NumLiveDataNodes"] == 1,
        )

    def start_yarn(self, stack: ExitStack) -> None:
        """Start a ResourceManager and two NodeManagers; wait until it knows both."""
        manager = f"{_YARN}.resourcemanager.ResourceManager"
        self._run(stack, self.conf, manager)
        for node in NODES:
            conf = self._folder / node / "conf"
            _write(conf, {**self._settings, **_node_settings(self._folder / node, node)})
            self._run(stack, conf, f"{_YARN}.nodemanager.NodeManager")
        self._await(
            f"http://{HOST}:{self._manager_web}/ws/v1/cluster/metrics",
            lambda state: state["clusterMetrics"]["activeNodes"] == len(NODES),
        )

    def _command(self, conf: Path, main_class: str) -> list[str]:
        jars = os.pathsep.join(map(str, (conf, self._web, *jars_of("hadoop"))))
        options = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
        return [str(find_java()), *options, "-cp", jars, main_class]

    def _run(self, stack: ExitStack, conf: Path, main_class: str) -> None:
        log = conf.parent / f"{main_class.rpartition('.')[2]}.log"
        environ = {**os.environ, "JAVA_HOME": str(Path(find_java()).parent.parent)}
        stack.enter_context(running(self._command(conf, main_class), log, environ))

    def _await(self, url: str, holds: Callable[[Any], bool]) -> None:
        def answers() -> bool:
            try:
                with urlopen(url, timeout=30) as answer:
                    return holds(json.load(answer))
            except OSError:
                return False

        wait_until(answers, f"its daemons are up; their logs are in {self._folder}", DEADLINE_S)


def _settings(folder: Path, uri: str, name_web: int, manager: list[int]) -> dict[str, str]:
    resource_manager = "yarn.resourcemanager"
    fifo = f"{_YARN}.resourcemanager.scheduler.fifo.FifoScheduler"
    tracker, scheduler, clients, admin, web = manager
    return {
        "fs.defaultFS": uri,
        "hadoop.tmp.dir": str(folder / "tmp"),
        "dfs.replication": "1",
        "dfs.permissions.enabled": "false",
        "dfs.namenode.http-address": f"{HOST}:{name_web}",
        "dfs.datanode.address": f"{HOST}:0",
        "dfs.datanode.http.address": f"{HOST}:0",
        "dfs.datanode.ipc.address": f"{HOST}:0",
        f"{resource_manager}.resource-tracker.address": f"{HOST}:{tracker}",
        f"{resource_manager}.scheduler.address": f"{HOST}:{scheduler}",
        f"{resource_manager}.address": f"{HOST}:{clients}",
        f"{resource_manager}.admin.address": f"{HOST}:{admin}",
        f"{resource_manager}.webapp.address": f"{HOST}:{web}",
        f"{resource_manager}.scheduler.class": fifo,
        "yarn.scheduler.minimum-allocation-mb": "256",
    }


def _node_settings(folder: Path, node: str) -> dict[str, str]:
    manager = "yarn.nodemanager"
    return {
        f"{manager}.address": f"{node}:0",
        f"{manager}.localizer.address": f"{node}:0",
        f"{manager}.webapp.address": f"{node}:0",
        f"{manager}.local-dirs": str(folder / "local"),
        f"{manager}.log-dirs": str(folder / "logs"),
        f"{manager}.resource.memory-mb": "2048",
        f"{manager}.resource.cpu-vcores": "2",
        f"{manager}.vmem-check-enabled": "false",
        f"{manager}.disk-health-checker.enable": "false",
    }


def _write(conf: Path, settings: Mapping[str, str]) -> None:
    conf.mkdir(parents=True)
    properties = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    )
    text = f"<configuration>{properties}</configuration>"
    for site in ("core-site.xml", "hdfs-site.xml", "yarn-site.xml"):
        (conf / site).write_text(text)
