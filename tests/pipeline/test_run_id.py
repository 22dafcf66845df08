"""Which run a run is: the same job, options and files are the same one, anything else another."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.pipeline.commands.ingest import inputs_of, rules_of
from app.pipeline.folders import files_of
from app.pipeline.job import Job
from app.pipeline.tables import QUOTA_VERSION
from tests.pipeline.ingest.points import Point, job_of, write_collected, write_parquet
from tests.pipeline.resolve.clusters import quota_table
from tests.testkit.bucket_worlds import write_arrow


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """What ``resolve`` reads: two files, one of them in a partition, beside what holds no rows."""
    root = tmp_path / "in" / "series"
    (root / "dt=2026-11-21").mkdir(parents=True)
    (root / "dt=2026-11-21" / "part.parquet").write_bytes(b"12345")
    (root / "more.csv").write_bytes(b"1")
    (root / "_runs" / "other").mkdir(parents=True)
    (root / "_runs" / "other" / "part.parquet").write_bytes(b"half")
    (root / "_lock").touch()
    return root


RunId = Callable[..., str]


@pytest.fixture
def run_id(spark: SparkSession) -> RunId:
    """Return the id of a run with these options, in the session of all tests."""

    def of(name: str = "resolve", **options: Any) -> str:
        defaults = {"input": None, "quotas": None, "catalog": None, "out": "/nowhere"}
        job = Job(name, argparse.Namespace(**{**defaults, **options}))
        job.session = spark
        return job.run_id

    return of


def test_the_files_of_a_run_are_those_that_hold_rows(spark: SparkSession, table: Path):
    files = [(f"file:{table}/dt=2026-11-21/part.parquet", 5), (f"file:{table}/more.csv", 1)]
    assert [file[:2] for file in files_of(spark, [str(table)])] == files
    assert [file[:2] for file in files_of(spark, [table.as_uri(), str(table)])] == files
    assert [file[:2] for file in files_of(spark, [f"{table}/*.csv"])] == files[1:]
    assert files_of(spark, [str(table / "not there")]) == []


def test_files_of_this_machine_are_called_as_hadoop_calls_them(spark: SparkSession, tmp_path: Path):
    """A folder is listed without Spark, which lists a pattern."""
    for number, name in enumerate(("é %20", "a=b")):
        file = tmp_path / f"{name}.csv"
        file.write_text(name)
        os.utime(file, ns=(0, 1_764_000_000_120_999_999 + number * 879_000_001))
    of_spark = files_of(spark, [f"{tmp_path}/*.csv"])
    assert [file[2] for file in of_spark] == ["2025-11-24 16:00:01", "2025-11-24 16:00:00.12"]
    assert files_of(spark, [str(tmp_path)]) == of_spark


def test_a_run_is_the_same_while_nothing_that_decides_it_changes(run_id: RunId, table: Path):
    options = {"input": [str(table.parent)], "cluster": "one"}
    first = run_id(**options)
    assert run_id(**options, out="elsewhere", master="local[2]", json=True, fail_on=["dq"]) == first
    (table / "_runs" / "other" / "more.parquet").write_bytes(b"1")
    (table.parent / "rate_minute").mkdir()
    (table.parent / "rate_minute" / "part.parquet").write_bytes(b"1")
    assert run_id(**options) == first
    assert run_id(input=[table.parent.as_uri()], cluster="one") == first


@pytest.mark.parametrize("name", ["ingest", "run"])
def test_reading_and_writing_one_folder_is_the_same_run_again(
    spark: SparkSession, tmp_path: Path, name: str
):
    write_collected([Point(0)], tmp_path)
    write_arrow(quota_table([]), QUOTA_VERSION, tmp_path)
    quotas = ("--quotas", str(tmp_path)) if name == "run" else ()

    def next_job() -> Job:
        job = job_of(spark, "collect", tmp_path, tmp_path, *quotas, name=name)
        inputs_of(job, rules_of(job))
        return job

    job = job_of(spark, "collect", tmp_path, tmp_path, *quotas, name=name)
    job.options.command.run(job)
    assert next_job().run_id == job.run_id
    (tmp_path / "more").mkdir()
    write_parquet([Point(60)], tmp_path / "more").rename(tmp_path / "collected" / "more.parquet")
    assert next_job().run_id != job.run_id


@pytest.mark.parametrize("option", ["input", "quotas"])
def test_other_files_are_another_run(run_id: RunId, table: Path, option: str):
    folder = table.with_name("quota_version") if option == "quotas" else table
    folder.mkdir(exist_ok=True)
    (folder / "more.csv").write_bytes(b"1")
    options = {option: [str(folder.parent)] if option == "input" else str(folder.parent)}
    ids = [run_id(**options)]
    (folder / "new.parquet").write_bytes(b"1")
    ids.append(run_id(**options))
    (folder / "more.csv").write_bytes(b"22")
    ids.append(run_id(**options))
    os.utime(folder / "more.csv", ns=(1, 1))
    ids.append(run_id(**options))
    assert len(set(ids)) == 4


def test_another_job_option_map_and_release_are_another_run(
    run_id: RunId, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ids = [run_id(cluster="one"), run_id("utilization", cluster="one"), run_id(cluster="two")]
    for content in ("grain: pair\n", "grain: bucket\n"):
        (tmp_path / "map.yaml").write_text(content)
        ids.append(run_id(cluster="one", map=str(tmp_path / "map.yaml")))
    monkeypatch.setattr("app.pipeline.job.version", lambda _: "0.0.1")
    ids.append(run_id(cluster="one"))
    assert len(set(ids)) == 6
