"""``quota-pipeline resolve`` as a person runs it."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from app.domain.quota_keys import QuotaKey
from app.pipeline.main import main
from app.pipeline.tables import OBSERVATION_MINUTE, QUOTA_VERSION
from tests.pipeline.conftest import Command
from tests.pipeline.resolve import clusters
from tests.pipeline.resolve.clusters import Version, minute, observation, quota_table
from tests.testkit.bucket_worlds import write_arrow

KEY = QuotaKey.CONSUMER_BYTE_RATE
CLUSTER = "Kafka's id"
ALICE = (("user", "alice"),)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder with observations and quotas: alice's limit was raised after two minutes.

    The quotas are of one of the two clusters.
    """
    rows = [observation(CLUSTER, KEY.value, at, user="alice", client_id="x") for at in range(4)]
    rows.append(observation("other", KEY.value, 0, user="alice", client_id="x"))
    first = Version(CLUSTER, ALICE, KEY, 10.0, 1, 2, "snapshot")
    quotas = [first, Version(CLUSTER, ALICE, KEY, 20.0, 2, None)]
    write_arrow(clusters.observation_table(rows), OBSERVATION_MINUTE, tmp_path / "tables")
    write_arrow(quota_table(quotas), QUOTA_VERSION, tmp_path / "tables")
    # The same traffic as another source has it.
    again = [{**row, "source": "another", "grain": "bucket", "rate_max": 99.0} for row in rows]
    write_arrow(clusters.observation_table(again), OBSERVATION_MINUTE, tmp_path / "again")
    return tmp_path / "tables"


def test_a_dry_run_says_what_it_would_do(tables: Path, capsys: pytest.CaptureFixture[str]):
    options = ["--input", str(tables), "--quotas", str(tables), "--out", "/never", "--dry-run"]
    assert main(["resolve", *options, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["would_read"] == [
        str(tables / "observation_minute"),
        str(tables / "quota_version"),
    ]
    assert report["would_write"] == ["/never/bucket_minute", "/never/dim_bucket"]


def test_each_minute_counts_once_with_the_limit_that_held_then_and_missing_quotas_are_named(
    spark_command: Command, tables: Path, tmp_path: Path
):
    out = tmp_path / "out"
    inputs = ["--input", tables, "--input", tables.with_name("again")]
    options = [*inputs, "--quotas", tables, "--out", out, "--json", "--explain"]
    period = ["--from", minute(0).isoformat(), "--to", minute(3).isoformat()]
    done = spark_command("resolve", "--as-of", "history", *options, *period)
    assert done.returncode == 3
    assert "No quota is of the cluster 'other', so all of its rows are unlimited" in done.stderr
    assert 'there are quotas of "Kafka\'s id".' in done.stderr
    report = json.loads(done.stdout)
    assert (report["rows_in"], report["rows_out"]) == (4, {"bucket_minute": 4, "dim_bucket": 2})
    assert report["duplicates"] == 4
    assert "BroadcastHashJoin" in done.stderr
    minutes = sorted(pq.read_table(out / "bucket_minute").to_pylist(), key=lambda row: row["ts"])
    assert {(row["rate_max"], row["contributors"]) for row in minutes} == {(2.0, 1)}
    limits = [(row["ts"], row["limit"], row["level"]) for row in minutes]
    assert sorted(limits[:2], key=str) == [(minute(0), 10.0, 3), (minute(0), None, 0)]
    assert limits[2:] == [(minute(1), 10.0, 3), (minute(2), 20.0, 3)]
    names = {row["cluster_id"]: row for row in pq.read_table(out / "dim_bucket").to_pylist()}
    bucket = names[CLUSTER]
    assert (bucket["bucket_user"], bucket["quota_user"]) == ("alice", "alice")
    assert {row["bucket_id"] for row in minutes if row["level"]} == {bucket["bucket_id"]}
