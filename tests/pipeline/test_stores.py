"""Tables in an object store, and in catalogs of Iceberg and Delta, are those of a local folder."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from app.localdev.jars import jars_of
from app.localdev.processes import launched
from tests.pipeline.chain import (
    RESULTS,
    SMALL,
    Jobs,
    assert_same_results,
    on_yarn,
    settings,
    write_inputs,
)
from tests.testkit.hadoop import Hadoop
from tests.testkit.object_store import object_store

pytestmark = pytest.mark.long

QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

EXPORT = """
import sys
from app.pipeline.lake import Lake
from app.pipeline.spark import spark_session
from app.pipeline.tables import TABLES

tables, is_catalog, out, names, *settings = sys.argv[1:]
chosen = dict(item.split("=", 1) for item in settings)
with spark_session("export", master="local[2]", settings=chosen) as session:
    lake = Lake(session, tables, catalog=is_catalog == "--catalog")
    for name in names.split():
        lake.read(TABLES[name]).write.parquet(f"{out}/{name}")
"""


LOSING = """
import os, signal, sys, time
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import functions as sf
from app.pipeline.lake import Lake, schema_of
from app.pipeline.spark import spark_session
from app.pipeline.tables import QUOTA_CONFLICT

tables, folder, *settings = sys.argv[1:]
done = Path(folder)
chosen = dict(item.split("=", 1) for item in settings)

def lose_an_executor(batches):
    yield from batches
    number = TaskContext.get().partitionId()
    (done / str(number)).touch()
    if number == 3 and TaskContext.get().attemptNumber() == 0:
        deadline = time.monotonic() + 60
        while len(list(done.iterdir())) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(daemon.rsplit(")", 1)[1].split()[1]), signal.SIGKILL)

with spark_session("lose", master="local-cluster[2,1,1024]", settings=chosen) as session:
    lake, empty = Lake(session, tables, catalog=True), sf.lit(None)
    columns = [empty.cast(each.dataType).alias(each.name) for each in schema_of(QUOTA_CONFLICT)]
    rows = session.range(0, 40, 1, 4).mapInArrow(lose_an_executor, "id bigint").select(*columns)
    written = lake.write(rows.fillna("c", ["cluster_id"]), QUOTA_CONFLICT)
    print(written, lake.read(QUOTA_CONFLICT).count())
"""
"""The fourth task kills its executor, after the others have ended: two of them on it."""


@dataclass(frozen=True)
class Store:
    """Where tables are.

    Attributes:
        option: Of the command, ``--out`` or ``--catalog``.
        name: Its value.
        settings: Of Spark.
    """

    option: str
    name: str
    settings: Mapping[str, str]

    def export(self, out: Path) -> None:
        """Write the results as Parquet below a folder, by a Spark with the store's jars."""
        names = " ".join(table.name for table in RESULTS)
        chosen = map("=".join, {**QUICK, **self.settings}.items())
        command = [sys.executable, "-c", EXPORT, self.name, self.option, str(out), names, *chosen]
        done = subprocess.run(
            launched(command), capture_output=True, text=True, check=False, cwd=out.parent
        )
        assert done.returncode == 0, done.stderr


def jars(lock: str) -> dict[str, str]:
    return {"spark.jars": ",".join(map(str, jars_of(lock)))}


@pytest.fixture
def s3a(tmp_path: Path) -> Iterator[Store]:
    """With Spark's default committer."""
    with object_store("lake", tmp_path) as url:
        chosen = {
            "endpoint": url,
            "endpoint.region": "us-east-1",
            "access.key": "test",
            "secret.key": "test",
            "path.style.access": "true",
        }
        hadoop = {f"spark.hadoop.fs.s3a.{name}": value for name, value in chosen.items()}
        yield Store("--out", "s3a://lake/usage", jars("s3a") | hadoop)


def iceberg(warehouse: str, _folder: Path) -> Store:
    catalog = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": warehouse,
    }
    return Store("--catalog", "lake.usage", jars("iceberg") | catalog)


def delta(warehouse: str, folder: Path) -> Store:
    """Return a catalog whose metastore, the driver's own, is in the folder."""
    metastore = f"jdbc:derby:{folder}/metastore;create=true"
    catalog = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.sources.default": "delta",
        "spark.sql.warehouse.dir": warehouse,
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": metastore,
    }
    return Store("--catalog", "spark_catalog.default", jars("delta") | catalog)


CATALOGS = {"iceberg": iceberg, "delta": delta}


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with points and quotas, and with the results of the chain in ``alone``."""
    made = tmp_path_factory.mktemp("folder")
    write_inputs(spark, made, str(made / "quotas"))
    Jobs(made, *settings(QUICK))("run", *inputs_in(made), "--out", str(made / "alone"))
    return made


def inputs_in(folder: Path) -> list[str]:
    points, quotas = folder / "points.jsonl", folder / "quotas"
    return ["--format", "adapter-json", "--input", str(points), "--quotas", str(quotas)]


def assert_gives_the_same(
    store: Store, there: Jobs, options: list[str], *, spark: SparkSession, alone: str, out: Path
) -> None:
    """Run the chain twice, over its own rows, and compare with a run into a folder."""
    for _ in range(2):
        report = there("run", *options)
        assert report["rows_out"]["throttle_incident"] > 0
    store.export(out)
    assert_same_results(spark, alone, str(out))


@pytest.mark.parametrize("where", ["s3a", *CATALOGS])
def test_the_chain_to_incidents_gives_there_what_it_gives_in_a_folder(
    *, where: str, folder: Path, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
):
    if where in CATALOGS:
        store = CATALOGS[where](str(tmp_path / "warehouse"), tmp_path)
    else:
        store = request.getfixturevalue(where)
    there = Jobs(tmp_path, store.option, store.name, *settings({**QUICK, **store.settings}))
    alone, out = str(folder / "alone"), tmp_path / "exported"
    assert_gives_the_same(store, there, inputs_in(folder), spark=spark, alone=alone, out=out)


@pytest.mark.parametrize("where", CATALOGS)
def test_catalogs_on_yarn_and_hdfs_hold_what_a_folder_holds(
    *, where: str, folder: Path, hadoop: Hadoop, spark: SparkSession, tmp_path: Path
):
    root = f"/{where}"
    store = CATALOGS[where](f"{hadoop.uri}{root}/warehouse", tmp_path)
    there = on_yarn(hadoop, tmp_path, SMALL | QUICK | store.settings, store.option, store.name)
    points = hadoop.put(folder / "points.jsonl", f"{root}/points.jsonl")
    quotas = hadoop.put(folder / "quotas", f"{root}/quotas")
    options = ["--format", "adapter-json", "--input", points, "--quotas", quotas]
    alone, out = str(folder / "alone"), tmp_path / "exported"
    assert_gives_the_same(store, there, options, spark=spark, alone=alone, out=out)


def test_what_an_executor_had_made_before_it_was_lost_is_counted_once(tmp_path: Path):
    store, done = iceberg(str(tmp_path / "warehouse"), tmp_path), tmp_path / "done"
    done.mkdir()
    chosen = map("=".join, {**QUICK, **store.settings, "spark.executor.memory": "1g"}.items())
    command = [sys.executable, "-c", LOSING, store.name, str(done), *chosen]
    ended = subprocess.run(
        launched(command), capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["40", "40"]
