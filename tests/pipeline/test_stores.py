"""Tables in an object store, and in catalogs of Iceberg and Delta, are those of a local folder."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from app.localdev.jars import jars_of
from app.localdev.processes import launched
from tests.pipeline.chain import RESULTS, Jobs, assert_same_results, settings, write_inputs
from tests.testkit.object_store import object_store

pytestmark = pytest.mark.long

SMALL = {
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
        chosen = map("=".join, {**SMALL, **self.settings}.items())
        command = [sys.executable, "-c", EXPORT, self.name, self.option, str(out), names, *chosen]
        done = subprocess.run(
            launched(command), capture_output=True, text=True, check=False, env=dict(os.environ)
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


@pytest.fixture
def iceberg(tmp_path: Path) -> Store:
    catalog = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(tmp_path / "warehouse"),
    }
    return Store("--catalog", "lake.usage", jars("iceberg") | catalog)


@pytest.fixture
def delta(tmp_path: Path) -> Store:
    metastore = f"jdbc:derby:{tmp_path}/metastore;create=true"
    catalog = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.sources.default": "delta",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": metastore,
    }
    return Store("--catalog", "spark_catalog.default", jars("delta") | catalog)


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with points and quotas, and with the results of the chain in ``alone``."""
    made = tmp_path_factory.mktemp("folder")
    write_inputs(spark, made, str(made / "quotas"))
    Jobs(made, *settings(SMALL))("run", *inputs_in(made), "--out", str(made / "alone"))
    return made


def inputs_in(folder: Path) -> list[str]:
    points, quotas = folder / "points.jsonl", folder / "quotas"
    return ["--format", "adapter-json", "--input", str(points), "--quotas", str(quotas)]


@pytest.mark.parametrize("where", ["s3a", "iceberg", "delta"])
def test_the_chain_to_incidents_gives_there_what_it_gives_in_a_folder(
    *, where: str, folder: Path, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
):
    store: Store = request.getfixturevalue(where)
    there = Jobs(tmp_path, store.option, store.name, *settings({**SMALL, **store.settings}))
    for _ in ("once", "and again over its own rows"):
        report = there("run", *inputs_in(folder))
        assert report["rows_out"]["throttle_incident"] > 0
    store.export(tmp_path / "exported")
    assert_same_results(spark, str(folder / "alone"), str(tmp_path / "exported"))
