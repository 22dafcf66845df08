"""Brokers with a quota callback, what their metrics say, and traffic on them."""

import os
import re
import shutil
import subprocess
import threading
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from app.java import find_java
from app.localdev.jars import class_path
from app.localdev.kafka import LocalKafka
from app.localdev.traffic import TrafficClient, prepare_traffic, run_traffic
from tests.testkit.accounts import allow
from tests.testkit.class_archive import shared_classes
from tests.testkit.service import acl

USERS: Final = ("alice", "bob", "boss", "carol")
MEASURED_WITHIN_S: Final = 90.0
"""A quota's window has eleven seconds, and a busy machine gives a broker less than one of two."""


SOURCES: Final = Path(__file__).parents[2] / "deploy" / "callbacks"


def built_callbacks(folder: Path) -> Path:
    """Compile the callbacks of deploy/ as their page says; return the jar. It needs a JDK."""
    beside = find_java().resolve().with_name("javac")
    javac = beside if beside.is_file() else shutil.which("javac")
    assert javac, "The callbacks for brokers are compiled here: install a JDK, or set JAVA_HOME."
    classes, jars = folder / "classes", os.pathsep.join(map(str, class_path()))
    subprocess.run(
        [javac, "-cp", jars, "-d", classes, *sorted(SOURCES.glob("*.java"))],
        check=True,
    )
    with zipfile.ZipFile(folder / "quota-callbacks.jar", "w") as jar:
        for file in sorted(classes.rglob("*.class")):
            jar.write(file, file.relative_to(classes))
    return folder / "quota-callbacks.jar"


class Plugin(NamedTuple):
    """A callback of a broker: its class, its jars, and its properties."""

    class_name: str
    jars: tuple[Path, ...]
    properties: Mapping[str, str]


def node_with(
    plugin: Plugin, folder: Path, joins: LocalKafka | None = None, node_id: int = 1
) -> LocalKafka:
    """Return a node with a callback, not started yet."""
    return LocalKafka(
        folder,
        plain_users={name: f"{name}-secret" for name in USERS},
        extra_properties={"client.quota.callback.class": plugin.class_name, **plugin.properties},
        heap="256m",
        metrics=True,
        java_options=shared_classes(),
        plugin_jars=plugin.jars,
        joins=joins,
        node_id=node_id,
    )


@contextmanager
def broker_with(plugin: Plugin, folder: Path) -> Iterator[LocalKafka]:
    """Run a broker with a callback; alice may alter and describe, and each may write."""
    with node_with(plugin, folder) as kafka:
        allow(kafka, acl("alice", "ALTER_CONFIGS"), acl("alice", "DESCRIBE_CONFIGS"))
        prepare_traffic(kafka.bootstrap_servers)
        yield kafka


def callback_file(folder: Path, class_name: str, model: str, options: object) -> Path:
    """Write the file that says what a class does."""
    path = folder / "callback.yaml"
    path.write_text(yaml.safe_dump({"class": class_name, "model": model, "options": options}))
    return path


class Failing:
    """A callback of somebody's own that cannot decide about mallory."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], float] = {}

    def quota_metric_tags(self, quota_type: str, principal: str, client_id: str) -> dict[str, str]:
        return {"whose": principal}

    def quota_limit(self, quota_type: str, metric_tags: Mapping[str, str]) -> float | None:
        if metric_tags["whose"] == "User:mallory":
            raise LookupError("not a day for mallory")
        return self.values.get((quota_type, metric_tags["whose"]))

    def update_quota(self, quota_type: str, entity: Mapping[str, str], new_value: float) -> None:
        self.values[quota_type, f"User:{entity.get('user')}"] = new_value

    def remove_quota(self, quota_type: str, entity: Mapping[str, str]) -> None:
        del self.values[quota_type, f"User:{entity.get('user')}"]

    def quota_reset_required(self, quota_type: str) -> bool:
        return False

    def update_cluster_metadata(self, cluster: object) -> bool:
        return False

    def close(self) -> None: ...


@contextmanager
def traffic(kafka: LocalKafka, *clients: TrafficClient) -> Iterator[None]:
    """Let clients write or read for the block."""
    done = threading.Event()
    thread = threading.Thread(
        target=run_traffic, args=(kafka.sasl_bootstrap_servers, clients, done)
    )
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def rates(kafka: LocalKafka, resource: str = "Produce") -> dict[str, float]:
    """Return the byte rate of each bucket, by its metric tags but for the resource."""
    with urllib.request.urlopen(kafka.metrics_url) as answer:
        text = answer.read().decode()
    found = re.findall(r"^kafka_server_quota_byte_rate\{(.*)\} (\S+)$", text, re.MULTILINE)
    wanted = f'resource="{resource}"'
    return {
        ",".join(tag for tag in tags.split(",") if tag and tag != wanted): float(rate)
        for tags, rate in found
        if wanted in tags
    }


def wait_for(kafka: LocalKafka, holds: Callable[[Mapping[str, float]], object]) -> None:
    """Wait until the rates of the buckets are so."""
    deadline = time.monotonic() + MEASURED_WITHIN_S
    while not holds(seen := rates(kafka)):
        assert time.monotonic() < deadline, seen
        time.sleep(1.0)


def is_near(rate: float | None, limit: float) -> bool:
    """Tell whether a bucket is spent to its limit; a window has between ten and eleven seconds."""
    return rate is not None and 0.8 * limit < rate < 1.15 * limit
