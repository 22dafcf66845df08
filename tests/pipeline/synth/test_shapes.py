"""What ``synth`` writes in each shape comes back as the same observations."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from app.pipeline.commands.ingest import ingest, material_of
from app.pipeline.job import Job
from app.pipeline.main import _parser
from app.pipeline.storage import read_table
from app.pipeline.synth.formats import SHAPES
from app.pipeline.tables import OBSERVATION_MINUTE

ROWS = 2_000
DEADLINE_S = 280
FILES = sorted(set(SHAPES) - {"kafka-json"})
PROVENANCE = ("source", "ingest_run_id")


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synth")
    sizes = ["--seed", "3", "--observations", str(ROWS), "--entities", "50", "--cluster", "a=b/c"]
    command = [sys.executable, "-m", "app.pipeline.main", "synth", *sizes, "--shape", "all"]
    done = subprocess.run(
        [*command, "--out", str(folder), "--master", "local[2]", "--json"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["observation_minute"] == ROWS
    return folder


def ingested(spark: SparkSession, shape: str, folder: Path, out: Path) -> DataFrame:
    arguments = ["--format", shape, "--input", str(folder), "--cluster", "a=b/c"]
    options = _parser(["ingest"]).parse_args(["ingest", *arguments, "--out", str(out)])
    job = Job("ingest", options)
    run = job.output()
    ingest(job, spark, material_of(job), run)
    run.publish()
    assert job.quarantined == 0
    return read_table(spark, [out], OBSERVATION_MINUTE)


@pytest.mark.long
@pytest.mark.parametrize("shape", FILES)
def test_a_shape_comes_back_as_the_same_observations(
    spark: SparkSession, made_up: Path, tmp_path: Path, shape: str
):
    expected = read_table(spark, [made_up], OBSERVATION_MINUTE).drop(*PROVENANCE)
    found = ingested(spark, shape, made_up / shape, tmp_path).drop(*PROVENANCE)
    assert set(map(tuple, found.collect())) == set(map(tuple, expected.collect()))
    assert found.count() == ROWS


@pytest.mark.long
def test_the_lines_for_kafka_are_those_of_the_adapter(made_up: Path):
    shapes = ("adapter-json", "kafka-json")
    lines = [next((made_up / shape).glob("part-*")).read_text() for shape in shapes]
    assert lines[0] == lines[1]
    first = json.loads(lines[0].splitlines()[0])
    assert set(first) == {"timestamp", "value", "name", "labels"}
    assert isinstance(first["value"], str)


@pytest.mark.long
def test_names_stand_in_labels_as_brokers_export_them(made_up: Path):
    table = pq.read_table(made_up / "collect" / "collected")
    assert table.schema.names == [
        *("cluster_id", "ts", "broker_id", "metric", "resource", "user", "client_id", "value")
    ]
    rows = table.to_pylist()
    ups = [row for row in rows if row["metric"] == "up"]
    assert len({(row["ts"], row["broker_id"]) for row in rows}) == len(ups)
    users = {row["user"] for row in rows}
    assert "%3Cdefault%3E" in users
    assert '"<default>"' in {row["client_id"] for row in rows}
