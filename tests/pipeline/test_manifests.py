"""Which run a run is: the same job, options and files are the same one, anything else another."""

import argparse
import os
from pathlib import Path
from typing import Any

import pytest

from app.pipeline.job import Job
from app.pipeline.manifests import manifest_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What is read: two files, one of them in a partition, beside what holds no rows."""
    place = tmp_path / "in"
    (place / "dt=2026-11-21").mkdir(parents=True)
    (place / "dt=2026-11-21" / "part.parquet").write_bytes(b"12345")
    (place / "more.csv").write_bytes(b"1")
    (place / "_runs" / "other").mkdir(parents=True)
    (place / "_runs" / "other" / "part.parquet").write_bytes(b"half")
    (place / "_lock").touch()
    return place


def run_id(name: str = "resolve", **options: Any) -> str:
    return Job(name, argparse.Namespace(**options)).run_id


def test_a_manifest_names_each_file_that_holds_rows(folder: Path):
    marks = manifest_of(str(folder))
    assert [(path, size) for path, size, _ in marks] == [
        ("dt=2026-11-21/part.parquet", 5),
        ("more.csv", 1),
    ]
    assert [mark[:2] for mark in manifest_of(str(folder / "more.csv"))] == [("more.csv", 1)]
    assert manifest_of(str(folder / "*.csv")) == manifest_of(str(folder / "more.csv"))
    assert manifest_of(str(folder / "not there")) == []
    assert manifest_of("s3://elsewhere/folder") == []


def test_a_run_is_the_same_while_nothing_that_decides_it_changes(folder: Path):
    told = {"input": [str(folder)], "cluster": "one"}
    assert run_id(**told) == run_id(**told, out="elsewhere", master="local[2]", json=True)
    (folder / "_runs" / "other" / "more.parquet").touch()
    assert run_id(**told) == run_id(**told)


@pytest.mark.parametrize("option", ["input", "quotas"])
def test_other_files_are_another_run(folder: Path, option: str):
    told = {option: [str(folder)] if option == "input" else str(folder)}
    ids = [run_id(**told)]
    (folder / "new.parquet").touch()
    ids.append(run_id(**told))
    (folder / "more.csv").write_bytes(b"22")
    ids.append(run_id(**told))
    os.utime(folder / "more.csv", ns=(1, 1))
    ids.append(run_id(**told))
    assert len(set(ids)) == 4


def test_another_job_another_option_and_another_release_are_another_run(
    monkeypatch: pytest.MonkeyPatch,
):
    ids = [run_id(cluster="one"), run_id("utilization", cluster="one"), run_id(cluster="two")]
    monkeypatch.setattr("app.pipeline.job.version", lambda _: "0.0.1")
    ids.append(run_id(cluster="one"))
    assert len(set(ids)) == 4


def test_what_a_run_writes_makes_no_other_run_of_it(folder: Path):
    job = Job("history", argparse.Namespace(input=[str(folder)]))
    before = job.run_id
    (folder / "new.parquet").touch()
    assert job.run_id == before
