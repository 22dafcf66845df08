"""The command as it is used: what it reports, and its exit codes."""

import json
from pathlib import Path

import pyarrow.parquet as pq

from tests.pipeline.conftest import Command
from tests.pipeline.ingest.points import Point, write_csv, write_export


def test_quarantined_rows_are_exit_code_3_after_publishing(spark_command: Command, tmp_path: Path):
    source = write_export([Point(0, value=3), Point(0, value=3), Point(9, value=-1)], tmp_path)
    out = tmp_path / "out"
    options = ("--format", "vm-jsonl", "--input", source, "--out", out, "--cluster", "c")
    done = spark_command("ingest", *options, "--fail-on", "dq", "--json", "--explain")
    assert done.returncode == 3, done.stderr
    report = json.loads(done.stdout)
    assert (report["rows_in"], report["rows_used"], report["quarantined"]) == (3, 1, 2)
    assert report["rows_out"]["observation_minute"] == 1
    assert "2 rows were quarantined" in done.stderr
    assert "-- observation_minute" in done.stderr
    assert pq.read_table(out / "observation_minute").num_rows == 1
    aside = pq.read_table(out / "quarantine").to_pylist()
    assert [(row["line"], row["reason"]) for row in aside] == [(2, "duplicate"), (3, "negative")]


def test_a_dry_run_writes_nothing(spark_command: Command, tmp_path: Path):
    source = write_csv([Point()], tmp_path)
    options = ("--format", "csv", "--input", source, "--out", tmp_path / "out", "--dry-run")
    done = spark_command("ingest", *options, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["would_read"] == [str(source)]
    assert report["would_write"][0] == f"{tmp_path}/out/observation_minute"
    assert not (tmp_path / "out").exists()


def test_a_wrong_column_is_exit_code_2_and_named(spark_command: Command, tmp_path: Path):
    (tmp_path / "a.csv").write_text("ts,value\n1,2\n")
    done = spark_command(
        "ingest", "--format", "csv", "--input", tmp_path, "--out", tmp_path / "out"
    )
    assert done.returncode == 2
    assert "has no column broker_id, metric, resource, user, client_id" in done.stderr
    assert "Its headers are ts, value." in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_unknown_format_is_exit_code_2_and_the_known_are_listed(
    spark_command: Command, tmp_path: Path
):
    done = spark_command("ingest", "--format", "xml", "--input", tmp_path)
    assert done.returncode == 2
    assert "--format xml is unknown: it is one of parquet, prom-json" in done.stderr
