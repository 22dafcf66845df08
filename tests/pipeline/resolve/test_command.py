"""``quota-pipeline resolve`` as a person runs it."""

import json
from pathlib import Path

import pytest

from app.pipeline.main import main


def test_a_dry_run_says_what_it_would_do(given: Path, capsys: pytest.CaptureFixture[str]):
    options = ["--input", str(given), "--quotas", str(given), "--out", "/never", "--dry-run"]
    assert main(["resolve", *options, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["would_read"] == [
        str(given / "observation_minute"),
        str(given / "quota_version"),
    ]
    assert report["would_write"] == ["/never/bucket_minute", "/never/dim_bucket"]


def test_missing_quotas_are_named(given: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["resolve", "--input", str(given), "--out", "/never"]) == 2
    assert "--quotas is missing" in capsys.readouterr().err


def test_an_input_without_the_table_is_named_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    options = ["--input", str(tmp_path), "--out", str(tmp_path / "out"), "--quotas", str(tmp_path)]
    assert main(["resolve", *options]) == 2
    told = capsys.readouterr().err
    assert f"There is no table observation_minute in {tmp_path}." in told
    assert "starting Spark" not in told
