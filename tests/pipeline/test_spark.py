"""Whose Spark a job uses: its own, an active one, or ``spark-submit``'s."""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from app.java import find_java
from app.pipeline import driver_java
from app.pipeline import spark as pipeline_spark
from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.ingest.inputs import file_inputs
from app.pipeline.ingest.metric_map import MetricMap
from app.pipeline.spark import spark_session


def test_an_active_session_is_used_and_goes_on(spark: SparkSession):
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get("spark.sql.shuffle.partitions")
    SparkSession.builder.getOrCreate()
    with spark_session("beside", settings={"spark.sql.shuffle.partitions": "7"}) as session:
        assert session.sparkContext is spark.sparkContext
        assert session.conf.get(zone) == "UTC"
        assert session.conf.get("spark.sql.shuffle.partitions") == "7"
        session.createDataFrame([(1,)], "n int")
    assert SparkSession.active().conf.get("spark.sql.shuffle.partitions") == before
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    assert spark.range(3).count() == 3


def test_a_setting_that_an_active_session_cannot_take_is_named(spark: SparkSession):
    del spark
    SparkSession.builder.getOrCreate()
    settings = {"spark.driver.memory": "3g"}
    with (
        pytest.raises(UsageError, match=r"spark\.driver\.memory cannot be changed"),
        spark_session("beside", settings=settings),
    ):
        pass


def ran(*command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program, which finds this checkout, to its good end."""
    ended = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended


@pytest.mark.parametrize("content", [None, b"of another Java"])
def test_java_takes_the_options_of_the_driver_and_prints_nothing(
    tmp_path: Path, content: bytes | None
):
    """What it printed would stand before the report on the standard output."""
    archive = tmp_path / "classes.jsa"
    if content is not None:
        archive.write_bytes(content)
    of_archive = driver_java.options_of_archive(archive)
    named = [f"-XX:SharedArchiveFile={archive}" in option for option in of_archive]
    assert any(named) if content is not None else not named
    options = shlex.split(" ".join((driver_java.DRIVER_OPTIONS, *of_archive)))
    ended = ran(find_java(), *options, "--list-modules")
    assert ended.stdout.startswith("java.base@")
    assert not ended.stderr


@pytest.mark.long
def test_a_run_takes_its_classes_from_the_archive_that_warm_wrote(tmp_path: Path):
    environ = {"XDG_CACHE_HOME": str(tmp_path), "SPARK_SUBMIT_OPTS": ""}
    warm = ran(sys.executable, "-m", "app.pipeline.main", "warm", "--json", **environ)
    archive = Path(json.loads(warm.stdout)["archive"])
    assert archive.parent == tmp_path / "kafka-quota-service"
    assert archive.stat().st_size == json.loads(warm.stdout)["bytes"]
    mapped = (
        "from pathlib import Path\n"
        "from app.pipeline.spark import spark_session\n"
        "with spark_session('run') as session:\n"
        "    java = session._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()\n"
        "    print(Path(f'/proc/{java.getPid()}/maps').read_text())\n"
    )
    assert str(archive) in ran(sys.executable, "-c", mapped, **environ).stdout


def test_the_python_and_the_java_that_are_configured_are_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").symlink_to(find_java())
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    driver_java.name_programs(tmp_path)
    assert os.environ["JAVA_HOME"] == str(home)
    assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"


def test_the_heap_is_for_the_cores_and_a_third_of_the_container_at_most(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(driver_java, "_LIMIT", limit)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    machine = driver_java.heap_gib()
    assert machine in {1, 2}
    limit.write_text("max\n")
    assert driver_java.heap_gib() == machine
    for gib, heap in ((1, 1), (4, 1), (6, min(machine, 2))):
        limit.write_text(f"{gib * 2**30}\n")
        assert driver_java.heap_gib() == heap


def test_a_connect_server_that_does_not_answer_is_named_without_its_token(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = f"sc://127.0.0.1:{port}/;token=a-secret"
    with (
        pytest.raises(InfrastructureError) as failed,
        pipeline_spark._connected("beside", address, {}, tmp_path),
    ):
        pass
    assert f"Spark Connect does not answer at 127.0.0.1:{port}:" in str(failed.value)
    assert "a-secret" not in str(failed.value)


@pytest.mark.parametrize("server", ["connect:first", "connect:99999", ""])
def test_an_address_of_spark_connect_without_host_or_port_is_refused(server: str, tmp_path: Path):
    with (
        pytest.raises(UsageError, match=r"^The address of Spark Connect is not sc://HOST:PORT\.$"),
        pipeline_spark._connected("beside", f"sc://{server}/;token=a-secret", {}, tmp_path),
    ):
        pass


def test_ingest_says_that_spark_connect_lists_no_files():
    without_jvm = cast("SparkSession", object())
    with pytest.raises(UsageError, match="which Spark Connect does not offer"):
        file_inputs(without_jvm, ["/data"], "csv", MetricMap())


@pytest.mark.long
def test_a_job_runs_below_spark_submit_with_its_master_and_settings(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(
        "from app.pipeline.spark import spark_session\n"
        "with spark_session('ours') as session:\n"
        "    context = session.sparkContext\n"
        "    print(context.master, session.conf.get('spark.sql.shuffle.partitions'))\n"
        "    print(context.getConf().get('spark.app.name'), session.range(7).count())\n"
    )
    submit = shutil.which("spark-submit", path=str(Path(sys.executable).parent))
    assert submit is not None
    chosen = ("--master", "local[1]", "--name", "submitted")
    partitions = ("--conf", "spark.sql.shuffle.partitions=5")
    done = ran(submit, *chosen, *partitions, program, PYSPARK_PYTHON=sys.executable)
    assert done.stdout.splitlines() == ["local[1] 5", "submitted 7"]


@pytest.mark.long
def test_looking_for_a_table_that_is_absent_logs_no_stack(tmp_path: Path):
    program = (
        "from app.pipeline.lake import Lake\n"
        "from app.pipeline.spark import spark_session\n"
        "from app.pipeline.tables import QUOTA_SNAPSHOT, QUOTA_VERSION\n"
        "with spark_session('quiet') as session:\n"
        f"    lake = Lake(session, {str(tmp_path)!r})\n"
        "    lake.write(session.createDataFrame([], QUOTA_VERSION.ddl), QUOTA_VERSION)\n"
        "    print(lake.has(QUOTA_VERSION), lake.has(QUOTA_SNAPSHOT))\n"
    )
    done = ran(sys.executable, "-c", program)
    assert (done.stdout, done.stderr) == ("True False\n", "")
