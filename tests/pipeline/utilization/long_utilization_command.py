"""The command `utilization` as a process of its own, with a Spark of its own."""

import json
import subprocess
import sys
from pathlib import Path

from app.pipeline.arrow_storage import read_arrow
from app.pipeline.tables import DIM_BUCKET, UTILIZATION_DAILY, UTILIZATION_HIST


def test_the_command_writes_both_tables_and_the_names(world: Path, tmp_path: Path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "app.pipeline.main", "utilization", "--json"]
    options = ["--input", str(world), "--out", str(out), "--cluster", "c1", "--master", "local[2]"]
    ended = subprocess.run(
        [*command, *options, "--to", "2026-11-21", "--fail-on", "findings", "--explain"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 4, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["rows_in"], report["findings"]) == (2, 1)
    assert report["rows_out"] == {"dim_bucket": 1, "utilization_daily": 2, "utilization_hist": 4}
    assert "== Physical Plan ==" in ended.stderr
    days = read_arrow(out, UTILIZATION_DAILY).to_pylist()
    assert [(row["dt"].day, row["broker_id"]) for row in days] == [(20, None), (20, 1)]
    assert {row["cluster_id"] for row in days} == {"c1"}
    assert read_arrow(out, UTILIZATION_HIST).num_rows == 4
    assert read_arrow(out, DIM_BUCKET).to_pylist()[0]["bucket_user"] == "alice"
