"""Which run a run is: the same job, options and files are the same one, anything else another."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.pipeline.job import Job
from app.pipeline.lake import files_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What is read: two files, one of them in a partition, beside what holds no rows."""
    root = tmp_path / "in"
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

    def of(name: str = "ingest", **options: Any) -> str:
        job = Job(name, argparse.Namespace(**options))
        job.session = spark
        return job.run_id

    return of


def test_the_files_of_a_run_are_those_that_hold_rows(spark: SparkSession, folder: Path):
    files = [(f"file:{folder}/dt=2026-11-21/part.parquet", 5), (f"file:{folder}/more.csv", 1)]
    assert [file[:2] for file in files_of(spark, [str(folder)])] == files
    assert [file[:2] for file in files_of(spark, [folder.as_uri(), str(folder)])] == files
    assert [file[:2] for file in files_of(spark, [f"{folder}/*.csv"])] == files[1:]
    assert files_of(spark, [str(folder / "not there")]) == []


def test_a_run_is_the_same_while_nothing_that_decides_it_changes(
    run_id: RunId, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    options = {"input": [str(folder)], "cluster": "one"}
    first = run_id(**options)
    assert run_id(**options, out="elsewhere", master="local[2]", json=True, fail_on=["dq"]) == first
    (folder / "_runs" / "other" / "more.parquet").write_bytes(b"1")
    assert run_id(**options) == first
    monkeypatch.chdir(folder.parent)
    assert run_id(input=[folder.as_uri()], cluster="one") == first


def test_what_a_job_writes_beside_its_input_makes_no_other_run_of_it(run_id: RunId, folder: Path):
    (folder / "bucket_minute").mkdir()
    (folder / "bucket_minute" / "part.parquet").write_bytes(b"1")
    first = run_id("utilization", input=[str(folder)])
    (folder / "utilization_daily").mkdir()
    (folder / "utilization_daily" / "part.parquet").write_bytes(b"1")
    assert run_id("utilization", input=[str(folder)]) == first


def test_another_content_of_the_map_is_another_run(run_id: RunId, tmp_path: Path):
    file = tmp_path / "map.yaml"
    file.write_text("grain: pair\n")
    first = run_id(map=str(file))
    file.write_text("grain: bucket\n")
    assert run_id(map=str(file)) != first


def test_other_offsets_are_another_run():
    ids = {
        Job("ingest", argparse.Namespace(), read={"offsets": [offset]}).run_id for offset in (1, 2)
    }
    assert len(ids) == 2


@pytest.mark.parametrize("option", ["input", "quotas"])
def test_other_files_are_another_run(run_id: RunId, folder: Path, option: str):
    folder = folder / "quota_version" if option == "quotas" else folder
    folder.mkdir(exist_ok=True)
    (folder / "more.csv").write_bytes(b"1")
    above = folder.parent if option == "quotas" else folder
    options = {option: [str(above)] if option == "input" else str(above)}
    ids = [run_id(**options)]
    (folder / "new.parquet").write_bytes(b"1")
    ids.append(run_id(**options))
    (folder / "more.csv").write_bytes(b"22")
    ids.append(run_id(**options))
    os.utime(folder / "more.csv", ns=(1, 1))
    ids.append(run_id(**options))
    assert len(set(ids)) == 4


def test_another_job_another_option_and_another_release_are_another_run(
    run_id: RunId, monkeypatch: pytest.MonkeyPatch
):
    ids = [run_id(cluster="one"), run_id("utilization", cluster="one"), run_id(cluster="two")]
    monkeypatch.setattr("app.pipeline.job.version", lambda _: "0.0.1")
    ids.append(run_id(cluster="one"))
    assert len(set(ids)) == 4


def test_what_a_run_writes_makes_no_other_run_of_it(spark: SparkSession, folder: Path):
    job = Job("ingest", argparse.Namespace(input=[str(folder)]))
    job.session = spark
    before = job.run_id
    (folder / "new.parquet").write_bytes(b"1")
    assert job.run_id == before
