"""A standalone cluster of two workers gives what this machine gives alone."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow.parquet as pq
import pyspark
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from app.domain.quota_keys import QuotaKey
from app.localdev.kafka import LocalKafka
from app.localdev.processes import HOST, free_ports
from app.pipeline.lake import Lake
from app.pipeline.spark import _prepare_environment, spark_session
from app.pipeline.tables import (
    BUCKET_MINUTE,
    OBSERVATION_MINUTE,
    QUOTA_VERSION,
    THROTTLE_INCIDENT,
    UTILIZATION_DAILY,
    UTILIZATION_HIST,
    Table,
)
from tests.pipeline.ingest.points import Point, adapter_message, write_adapter
from tests.pipeline.resolve.clusters import Version, quota_table

pytestmark = pytest.mark.long

DEADLINE_S = 180.0
COMMAND = str(Path(sys.executable).with_name("quota-pipeline"))
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
SMALL = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}
POINTS = [Point(n, n % 3, user=f"user {n % 7}", client_id='a"b', value=n / 7) for n in range(600)]


class Cluster:
    """Where the master listens, and what it says of itself."""

    def __init__(self, port: int, web_port: int) -> None:
        self.master = f"spark://{HOST}:{port}"
        self._status = f"http://{HOST}:{web_port}/json/"

    def status(self) -> dict[str, Any]:
        with urlopen(self._status, timeout=10) as answer:
            state: dict[str, Any] = json.load(answer)
        return state

    def alive(self) -> int:
        try:
            return sum(worker["state"] == "ALIVE" for worker in self.status()["workers"])
        except (OSError, json.JSONDecodeError):
            # A master that starts answers with an empty page at first.
            return 0


@contextmanager
def daemon(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    """Run a daemon of Spark for the length of a block."""
    environ = {**os.environ, "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m"}
    command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", *arguments, "--host", HOST]
    with (folder / f"{name}-{arguments[1]}.log").open("w") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("standalone")
    port, web, *others = free_ports(6)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
        _prepare_environment(folder, "spark://")
        made = Cluster(port, web)
        ports = ("--port", str(port), "--webui-port", str(web))
        stack.enter_context(daemon(folder, "master.Master", *ports))
        for number in (0, 1):
            work = folder / f"worker-{number}"
            ports = ("--port", str(others[number]), "--webui-port", str(others[number + 2]))
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            stack.enter_context(daemon(folder, "worker.Worker", *ports, *size, made.master))
        until = time.monotonic() + DEADLINE_S
        while made.alive() < 2:
            assert time.monotonic() < until, "\n".join(
                log.read_text() for log in folder.glob("*.log")
            )
            time.sleep(0.2)
        yield made


def ingest(*options: str | Path) -> dict[str, Any]:
    return job("ingest", *options)


def job(name: str, *options: str | Path) -> dict[str, Any]:
    done = subprocess.run(
        [COMMAND, name, "--json", "--cluster", "c", *map(str, options)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def minutes(out: Path) -> list[dict[str, Any]]:
    unlike = ("source", "ingest_run_id")
    rows = rows_of(out, OBSERVATION_MINUTE)
    return [{name: row[name] for name in row if name not in unlike} for row in rows]


def rows_of(out: Path, table: Table) -> list[dict[str, Any]]:
    rows = pq.read_table(out / table.name).to_pylist()
    return sorted(rows, key=str)


def on(cluster: Cluster) -> list[str]:
    settings = [argument for item in SMALL.items() for argument in ("--conf", "=".join(item))]
    return ["--master", cluster.master, *settings]


def test_files_and_a_topic_are_ingested_on_two_workers_as_on_one_machine(
    cluster: Cluster, tmp_path: Path
):
    source = write_adapter(POINTS, tmp_path)
    file = ("--format", "adapter-json", "--input", source)
    alone = ingest(*file, "--out", tmp_path / "alone")
    spread = ingest(*file, "--out", tmp_path / "spread", *on(cluster))
    assert spread["rows_used"] == alone["rows_used"] == len(POINTS)
    assert minutes(tmp_path / "spread") == minutes(tmp_path / "alone")
    with LocalKafka(tmp_path / "kafka", extra_properties={"num.partitions": "4"}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for point in POINTS:
            producer.produce("metrics", adapter_message(point))
        assert producer.flush(60) == 0
        topic = ("--format", "kafka-json", "--input", f"kafka://{kafka.bootstrap_servers}/metrics")
        streamed = ingest(*topic, "--out", tmp_path / "topic", *on(cluster))
    assert sum(offset["to"] - offset["from"] for offset in streamed["offsets"]) == len(POINTS)
    assert minutes(tmp_path / "topic") == minutes(tmp_path / "alone")
    done = cluster.status()["completedapps"]
    assert [item["state"] for item in done] == ["FINISHED", "FINISHED"]


def test_the_chain_to_incidents_gives_on_two_workers_what_it_gives_on_one_machine(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
):
    entity = (("user", "user 1"),)
    limit = Version("c", entity, QuotaKey.PRODUCER_BYTE_RATE, 40.0, 0, None)
    quotas = spark.createDataFrame(quota_table([limit]))
    Lake(spark, str(tmp_path / "quotas")).write(quotas, QUOTA_VERSION)
    source = write_adapter(POINTS, tmp_path)
    options = ("--format", "adapter-json", "--input", source, "--quotas", tmp_path / "quotas")
    job("run", *options, "--out", tmp_path / "alone")
    report = job("run", *options, "--out", tmp_path / "spread", *on(cluster))
    assert report["rows_out"]["throttle_incident"] > 0
    for table in (BUCKET_MINUTE, UTILIZATION_DAILY, UTILIZATION_HIST, THROTTLE_INCIDENT):
        spread = rows_of(tmp_path / "spread", table)
        assert spread == rows_of(tmp_path / "alone", table) != [], table.name


def test_workers_import_the_program_that_is_sent_to_them(cluster: Cluster):
    with spark_session("packed", master=cluster.master, settings=SMALL) as session:

        def module(_number: int) -> str:
            import app.pipeline.ingest.read as found  # noqa: PLC0415

            return str(found.__file__)

        modules = session.sparkContext.parallelize(range(8), 8).map(module).collect()
    assert {position.rpartition("app.zip")[1] for position in modules} == {"app.zip"}
