"""``quota-pipeline utilization`` as people start it."""

import json
from pathlib import Path

import pytest

from app.pipeline.arrow_storage import read_arrow
from app.pipeline.main import main
from app.pipeline.tables import BUCKET_MINUTE, DIM_BUCKET, UTILIZATION_DAILY, UTILIZATION_HIST
from tests.pipeline.conftest import Command
from tests.testkit.bucket_worlds import bucket, minute, publish


@pytest.fixture
def world(tmp_path: Path) -> Path:
    rows = [minute(number, rate_max=60.0 + number) for number in (0, 50, 1440)]
    rows.append(minute(5, cluster_id="c2"))
    return publish(tmp_path / "in", {BUCKET_MINUTE: rows, DIM_BUCKET: [bucket()]})


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


def test_an_input_without_the_table_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = ["--input", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(["utilization", *options]) == 2
    told = capsys.readouterr().err
    assert f"There is no table bucket_minute in {tmp_path}." in told


def test_the_command_writes_both_tables_and_the_names(
    spark_command: Command, world: Path, tmp_path: Path
):
    out = tmp_path / "out"
    options = ["--input", world, "--out", out, "--cluster", "c1", "--to", "2026-11-21"]
    ended = spark_command("utilization", "--json", *options, "--fail-on", "findings", "--explain")
    assert ended.returncode == 4, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["rows_in"], report["findings"]) == (2, 1)
    written = {"dim_bucket": 1, "utilization_daily": 2, "utilization_hist": 4, "bucket_hour": 1}
    assert report["rows_out"] == written
    assert "== Physical Plan ==" in ended.stderr
    days = read_arrow(out, UTILIZATION_DAILY).to_pylist()
    assert [(row["dt"].day, row["broker_id"]) for row in days] == [(20, None), (20, 1)]
    assert {row["cluster_id"] for row in days} == {"c1"}
    assert read_arrow(out, UTILIZATION_HIST).num_rows == 4
    assert read_arrow(out, DIM_BUCKET).to_pylist()[0]["bucket_user"] == "alice"
