"""``quota-pipeline utilization`` as people start it."""

import json
from pathlib import Path

import pytest

from app.pipeline.main import main


def test_a_dry_run_writes_nothing(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out"
    options = ["--input", str(world), "--out", str(out), "--json", "--dry-run"]
    assert main(["utilization", *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["would_read"] == [f"{world}/bucket_minute", f"{world}/dim_bucket"]
    assert f"{out}/utilization_daily" in report["would_write"]
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "--input is missing"),
        (["--input", "."], "--out is missing"),
        (["--input", ".", "--from", "2026-11-21", "--to", "2026-11-20"], "--to must be later"),
    ],
)
def test_a_wrong_option_is_named(options: list[str], line: str, capsys: pytest.CaptureFixture[str]):
    assert main(["utilization", *options]) == 2
    assert line in capsys.readouterr().err


def test_an_input_without_the_table_is_named_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    options = ["--input", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(["utilization", *options]) == 2
    told = capsys.readouterr().err
    assert f"There is no table bucket_minute in {tmp_path}." in told
    assert "starting Spark" not in told
