"""The command `resolve` as a process of its own, with a Spark of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipeline.resolve.clusters import (
    minute,
)


@pytest.mark.timeout(600)
def test_each_minute_has_the_limit_that_held_then(given: Path, tmp_path: Path):
    out = tmp_path / "out"
    command = [Path(sys.executable).parent / "quota-pipeline", "resolve", "--as-of", "history"]
    options = ["--input", given, "--quotas", given, "--out", out, "--json"]
    last = ["--from", minute(0).isoformat(), "--to", minute(3).isoformat(), "--explain"]
    done = subprocess.run(
        [*command, *options, *last], capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["rows_in"], report["rows_out"]) == (3, {"bucket_minute": 3, "dim_bucket": 1})
    assert "BroadcastHashJoin" in done.stderr
    minutes = sorted(pq.read_table(out / "bucket_minute").to_pylist(), key=lambda row: row["ts"])
    assert [(row["ts"], row["limit"], row["level"]) for row in minutes] == [
        (minute(0), 10.0, 3),
        (minute(1), 10.0, 3),
        (minute(2), 20.0, 3),
    ]
    [bucket] = pq.read_table(out / "dim_bucket").to_pylist()
    assert (bucket["bucket_user"], bucket["quota_user"]) == ("alice", "alice")
    assert {row["bucket_id"] for row in minutes} == {bucket["bucket_id"]}
    assert not list((out / "_runs").iterdir())
