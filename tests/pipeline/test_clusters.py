"""Clusters that share nothing with the driver but HDFS give what this machine gives alone."""

import json
import os
import re
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pyspark
import pytest
from confluent_kafka import Producer
from pyspark.sql import Row, SparkSession

import app
from app.localdev.kafka import LocalKafka
from app.localdev.processes import HOST, ManagedProcess, free_ports
from app.pipeline.driver_java import name_programs
from app.pipeline.tables import RATE_MINUTE
from tests.pipeline.chain import (
    POINTS,
    RESULTS,
    SMALL,
    Jobs,
    assert_same_results,
    on_yarn,
    settings,
    write_inputs,
)
from tests.pipeline.ingest.points import Point, adapter_message, observed, write_adapter
from tests.testkit.hadoop import NODES, Hadoop
from tests.testkit.patience import wait_until
from tests.testkit.processes import running

pytestmark = pytest.mark.long

DEADLINE_S = 180.0
MASTER = ("--master", "local[2]")
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


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


def daemon(
    log: Path, host: str, name: str, *arguments: str, hiding: Sequence[str] = ()
) -> AbstractContextManager[ManagedProcess]:
    """Run a daemon of Spark for the length of a block.

    Args:
        log: What it prints.
        host: Its address.
        name: Of its class.
        arguments: Its own.
        hiding: What runs the command, so that it does not see all files.
    """
    environ = {**os.environ, "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"}
    command = [SPARK_CLASS, f"org.apache.spark.deploy.{name}", *arguments, "--host", host]
    return running([*hiding, *command], log, environ)


def without(first: Path, second: Path) -> list[str]:
    """Return the command that runs another one to which two folders are empty."""
    script = 'mount -t tmpfs none "$0" && mount -t tmpfs none "$1" && shift && exec "$@"'
    return ["/usr/bin/unshare", "--mount", "sh", "-c", script, str(first), str(second)]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the driver, which nobody else sees."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, driver: Path) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("standalone")
    port, web, *others = free_ports(6)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
        name_programs(folder)
        made = Cluster(port, web)
        ports = ("--port", str(port), "--webui-port", str(web))
        stack.enter_context(daemon(folder / "master.log", HOST, "master.Master", *ports))
        for number, host in enumerate(NODES):
            work = folder / f"worker-{number}"
            ports = ("--port", str(others[number]), "--webui-port", str(others[number + 2]))
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            worker = (*ports, *size, made.master)
            # The program itself is hidden, too: it is sent to them.
            hiding = without(driver, Path(app.__file__).parent)
            log = folder / f"worker-{number}.log"
            stack.enter_context(daemon(log, host, "worker.Worker", *worker, hiding=hiding))
        wait_until(lambda: made.alive() == 2, f"both workers are there; see {folder}", DEADLINE_S)
        yield made


@pytest.fixture
def alone(driver: Path) -> Jobs:
    return Jobs(driver)


@pytest.fixture
def standalone(driver: Path, cluster: Cluster) -> Jobs:
    return Jobs(driver, "--master", cluster.master, *settings(SMALL))


@pytest.fixture
def yarn(driver: Path, hadoop: Hadoop) -> Jobs:
    return on_yarn(hadoop, driver, SMALL)


def minutes(spark: SparkSession, out: str) -> list[Row]:
    return sorted(observed(spark, out).drop("source", "ingest_run_id").collect(), key=str)


def test_files_and_a_topic_are_ingested_on_two_workers_as_on_one_machine(
    *,
    alone: Jobs,
    standalone: Jobs,
    cluster: Cluster,
    hadoop: Hadoop,
    spark: SparkSession,
    tmp_path: Path,
):
    source = hadoop.put(write_adapter(POINTS, tmp_path), "/files/points.jsonl")
    file = ("--format", "adapter-json", "--input", source)
    first, second, third = (f"{hadoop.uri}/files/{out}" for out in ("alone", "spread", "topic"))
    ingested = alone("ingest", *file, "--out", first)
    spread = standalone("ingest", *file, "--out", second)
    assert spread["rows_used"] == ingested["rows_used"] == len(POINTS)
    assert minutes(spark, second) == minutes(spark, first)
    with LocalKafka(tmp_path / "kafka", extra_properties={"num.partitions": "4"}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for point in POINTS:
            producer.produce("metrics", adapter_message(point))
        assert producer.flush(60) == 0
        topic = ("--format", "kafka-json", "--input", f"kafka://{kafka.bootstrap_servers}/metrics")
        streamed = standalone("ingest", *topic, "--out", third)
    assert sum(offset["to"] - offset["from"] for offset in streamed["offsets"]) == len(POINTS)
    assert minutes(spark, third) == minutes(spark, first)
    done = cluster.status()["completedapps"]
    assert [item["state"] for item in done] == ["FINISHED", "FINISHED"]


def chain(
    hadoop: Hadoop,
    spark: SparkSession,
    root: str,
    folder: Path,
    points: Sequence[Point] = POINTS,
) -> list[str]:
    """Put points and quotas to HDFS; return the options of a run that reads them."""
    quotas = f"{hadoop.uri}{root}/quotas"
    source = hadoop.put(write_inputs(spark, folder, quotas, points), f"{root}/points.jsonl")
    return ["--format", "adapter-json", "--input", source, "--quotas", quotas]


@pytest.mark.parametrize("where", ["standalone", "yarn"])
def test_the_chain_to_incidents_gives_on_two_nodes_what_it_gives_on_one_machine(
    *,
    where: str,
    alone: Jobs,
    hadoop: Hadoop,
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
):
    several: Jobs = request.getfixturevalue(where)
    root = f"{hadoop.uri}/{where}"
    options = chain(hadoop, spark, f"/{where}", tmp_path)
    alone("run", *options, "--out", f"{root}/alone")
    several("run", *options, "--out", f"{root}/spread")
    assert_same_results(spark, f"{root}/alone", f"{root}/spread")


def executors() -> list[psutil.Process]:
    """Return the executors of the standalone cluster that run now."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                found.append(child)
    return found


def logged(executor: psutil.Process, pattern: str) -> set[str]:
    """Return what an executor has logged of tasks; its folder is the one it works in."""
    return set(re.findall(pattern, (Path(executor.cwd()) / "stderr").read_text()))


def is_caught(executor: psutil.Process) -> bool:
    """Halt an executor in the middle of a task; without one it goes on."""
    executor.suspend()
    ended = logged(executor, r"(?:Finished|killed) (task .+?\))")
    if logged(executor, r"Running (task .+?\))") - ended:
        return True
    executor.resume()
    return False


def test_a_killed_executor_and_copies_of_slow_tasks_change_no_result(
    *,
    alone: Jobs,
    standalone: Jobs,
    hadoop: Hadoop,
    spark: SparkSession,
    driver: Path,
    tmp_path: Path,
):
    root = f"{hadoop.uri}/killed"
    # Some points are there twice: they count once, whatever becomes of the tasks.
    options = chain(hadoop, spark, "/killed", tmp_path, [*POINTS, *POINTS[::7]])
    expected = alone("run", *options, "--out", f"{root}/alone")
    chosen = {
        "spark.speculation": "true",
        "spark.speculation.task.duration.threshold": "1s",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": driver.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(standalone, "run", *options, "--out", f"{root}/spread", *settings(chosen))
        wait_until(lambda: len(executors()) == 2, "there are two executors", DEADLINE_S)
        slow, killed = executors()
        wait_until(lambda: is_caught(slow), "a task is halted", DEADLINE_S)
        try:
            wait_until(lambda: logged(killed, r"Finished task \d+\.1 "), "it is copied", DEADLINE_S)
        finally:
            slow.resume()
        wait_until(lambda: is_caught(killed), "a task runs", DEADLINE_S)
        killed.kill()
        report = job.result()
    (events,) = driver.glob("app-*")
    reasons = {
        event["Task End Reason"]["Reason"]
        for event in map(json.loads, events.read_text().splitlines())
        if event["Event"] == "SparkListenerTaskEnd"
    }
    assert {"Success", "TaskKilled", "ExecutorLostFailure"} <= reasons
    assert_same_results(spark, f"{root}/alone", f"{root}/spread")
    for count in ("rows_in", "rows_out", "findings", "quarantined"):
        assert report[count] == expected[count], count
    ingested = report["steps"]["ingest"]
    assert ingested["quarantined_by_reason"] == {"duplicate": len(POINTS[::7])}
    assert ingested["used"] == {"rate": len(POINTS)}


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a Spark Connect server."""
    folder = tmp_path_factory.mktemp("connect")
    (port,) = free_ports(1)
    options = settings(
        {
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(port),
            "spark.sql.shuffle.partitions": "4",
            "spark.ui.enabled": "false",
        }
    )
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
        patch.setenv("SPARK_LOCAL_IP", HOST)
        name_programs(folder)
        command = [SPARK_CLASS.with_name("spark-submit"), "--master", "local[2]", "--class", server]
        with running([*command, *options], folder / "server.log", dict(os.environ)):
            wait_until(lambda: is_open(port), f"the server is there; see {folder}", DEADLINE_S)
            yield f"sc://{HOST}:{port}"


def is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), timeout=10):
        return True
    return False


def test_jobs_give_by_spark_connect_what_they_give_without(
    alone: Jobs, connect: str, spark: SparkSession, tmp_path: Path
):
    quotas = f"{tmp_path}/quotas"
    source = write_inputs(spark, tmp_path, quotas)
    remote = {"SPARK_REMOTE": connect}
    by_connect, in_spite = (Jobs(tmp_path, *master, environ=remote) for master in ((), MASTER))
    observations = f"{tmp_path}/observations"
    in_spite("ingest", "--format", "adapter-json", "--input", str(source), "--out", observations)
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    broker = producer.list_topics(timeout=30).brokers.popitem()[1]
    for point in POINTS:
        producer.produce("metrics", adapter_message(point))
    assert producer.flush(60) == 0
    topic = ("--format", "kafka-json", "--input", f"kafka://{broker.host}:{broker.port}/metrics")
    by_connect("ingest", *topic, "--out", f"{tmp_path}/topic")
    assert minutes(spark, f"{tmp_path}/topic") == minutes(spark, observations)
    ids = []
    for jobs, out in ((alone, f"{tmp_path}/alone"), (by_connect, f"{tmp_path}/connect")):
        both = ("--input", observations, "--input", out)
        reports = [
            jobs("resolve", "--input", observations, "--quotas", quotas, "--out", out),
            jobs("utilization", *both, "--out", out),
            jobs("incidents", "--input", out, "--out", out),
        ]
        ids.append(reports[0]["run_id"])
    assert ids[0] == ids[1]
    later = [table for table in RESULTS if table is not RATE_MINUTE]
    assert_same_results(spark, f"{tmp_path}/alone", f"{tmp_path}/connect", later)
