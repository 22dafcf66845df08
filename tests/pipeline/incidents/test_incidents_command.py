"""``quota-pipeline incidents`` as people start it."""

import json
from pathlib import Path

import pytest

from app.pipeline.arrow_storage import read_arrow
from app.pipeline.main import main
from app.pipeline.tables import BUCKET_MINUTE, DIM_BUCKET, THROTTLE_INCIDENT
from tests.pipeline.conftest import Command
from tests.testkit.bucket_worlds import at, bucket, minute, publish


@pytest.mark.parametrize("gap", ["0", "-1", "1.5", "x"])
def test_a_gap_is_a_whole_number_of_minutes(gap: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["incidents", f"--gap={gap}"])
    assert ended.value.code == 2
    assert "--gap: " in capsys.readouterr().err


def test_an_input_without_the_table_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = ["--input", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(["incidents", *options]) == 2
    told = capsys.readouterr().err
    assert f"There is no table bucket_minute in {tmp_path}." in told


def test_the_command_replaces_the_days_that_it_reads(spark_command: Command, tmp_path: Path):
    rows = [minute(number, rate_max=101.0) for number in (1440, 1442, 1443, 2880)]
    world = publish(tmp_path / "in", {BUCKET_MINUTE: rows, DIM_BUCKET: [bucket()]})
    earlier = [
        {"cluster_id": "c1", "incident_id": name, "bucket_id": 7, "start": at(start)}
        | {"end": at(start + 1), "status": "open"}
        for name, start in (("stays", 1439), ("goes", 1450))
    ]
    out = publish(tmp_path / "out", {THROTTLE_INCIDENT: earlier})
    options = ["--input", world, "--out", out, "--gap", "2", "--to", "2026-11-22"]
    ended = spark_command("incidents", "--json", *options)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["rows_in"], report["incidents"], report["findings"]) == (3, 1, 1)
    stays, new = read_arrow(out, THROTTLE_INCIDENT).to_pylist()
    assert (stays["incident_id"], stays["status"]) == ("stays", "closed")
    assert (new["start"], new["end"], new["minutes"]) == (at(1440), at(1444), 3)
    assert (new["quota_user"], new["status"]) == ("alice", "open")
    assert read_arrow(out, DIM_BUCKET).num_rows == 1
