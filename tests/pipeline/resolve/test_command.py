"""``quota-pipeline resolve`` as a person runs it."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from app.domain.quota_keys import QuotaKey
from app.pipeline.arrow_storage import write_arrow
from app.pipeline.folders import RunFolder
from app.pipeline.main import main
from app.pipeline.tables import OBSERVATION_MINUTE, QUOTA_VERSION
from tests.pipeline.conftest import Command
from tests.pipeline.resolve import clusters
from tests.pipeline.resolve.clusters import Version, minute, observation, quota_table

KEY = QuotaKey.CONSUMER_BYTE_RATE
ALICE = (("user", "alice"),)


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A folder with observations and quotas: alice's limit was raised after two minutes."""
    rows = [observation("c", KEY.value, at, user="alice", client_id="x") for at in range(4)]
    first = Version("c", ALICE, KEY, 10.0, 1, 2, "snapshot")
    quotas = [first, Version("c", ALICE, KEY, 20.0, 2, None)]
    run = RunFolder(tmp_path / "given", "one")
    write_arrow(clusters.observation_table(rows), OBSERVATION_MINUTE, run)
    write_arrow(quota_table(quotas), QUOTA_VERSION, run)
    run.publish()
    return tmp_path / "given"


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


def test_an_input_without_the_table_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = ["--input", str(tmp_path), "--out", str(tmp_path / "out"), "--quotas", str(tmp_path)]
    assert main(["resolve", *options]) == 2
    told = capsys.readouterr().err
    assert f"There is no table observation_minute in {tmp_path}." in told


def test_a_cluster_without_any_quota_ends_with_3_and_is_named(
    spark_command: Command, given: Path, tmp_path: Path
):
    other = tmp_path / "other"
    quotas = [Version("Kafka's id", ALICE, KEY, 10.0, 1, None, "snapshot")]
    run = RunFolder(other, "one")
    write_arrow(quota_table(quotas), QUOTA_VERSION, run)
    run.publish()
    options = ["--input", given, "--quotas", other, "--out", tmp_path / "out"]
    done = spark_command("resolve", *options)
    assert done.returncode == 3
    assert "No quota is of the cluster 'c', so all of its rows are unlimited" in done.stderr
    assert 'there are quotas of "Kafka\'s id".' in done.stderr
    assert pq.read_table(tmp_path / "out" / "bucket_minute").num_rows == 4


def test_each_minute_has_the_limit_that_held_then(
    spark_command: Command, given: Path, tmp_path: Path
):
    out = tmp_path / "out"
    options = ["--input", given, "--quotas", given, "--out", out, "--json", "--explain"]
    period = ["--from", minute(0).isoformat(), "--to", minute(3).isoformat()]
    done = spark_command("resolve", "--as-of", "history", *options, *period)
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
