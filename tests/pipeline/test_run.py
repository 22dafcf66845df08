"""``quota-pipeline run``: the whole chain in one Spark application."""

import csv
import json
import re
from pathlib import Path

import pytest

from app.pipeline.tables import BY_CLUSTER, QUOTA_VERSION, TABLES, THROTTLE_INCIDENT
from tests.pipeline.conftest import Command
from tests.testkit.bucket_worlds import at, publish, read_arrow, version

EXPORTED = {"observation_minute", "bucket_minute", "utilization_hist"}
OTHERS = ("quota_", "whatif_")
WRITTEN = [
    table.name
    for table in TABLES.values()
    if table.partitions != BY_CLUSTER and not table.name.startswith((*EXPORTED, *OTHERS))
]
HEADERS = ("ts", "broker_id", "metric", "resource", "user", "client_id", "value")


def scrapes(file: Path, day: int = 0, minute: int = 0) -> Path:
    """Write ten minutes of alice's two clients, over her limit of 100 in minutes 3 to 5."""
    begin = 1440 * day + minute
    with file.open("w", newline="", encoding="utf-8") as target:
        writer = csv.writer(target)
        writer.writerow(HEADERS)
        for number in range(10):
            rate = 80.0 if 3 <= number <= 5 else 20.0
            for client_id, share in (("etl", 1.0), ("web", 0.5)):
                name = ("kafka_server_quota_byte_rate", "Produce", "alice", client_id)
                writer.writerow((at(begin + number).isoformat(), 1, *name, rate * share))
        writer.writerow((at(0).isoformat(), 1, "kafka_server_quota_byte_rate", *["?"] * 4))
    return file


def test_one_run_writes_the_tables_of_all_steps_and_the_next_day_replaces_itself_alone(
    spark_command: Command, tmp_path: Path
):
    quotas = publish(tmp_path / "quotas", {QUOTA_VERSION: [version("producer_byte_rate", 100.0)]})
    out, map_file = tmp_path / "out", tmp_path / "map.yaml"
    map_file.write_text("grain: pair\n")
    options = ["--json", "--format", "csv", "--quotas", quotas, "--out", out]
    options += ["--map", map_file, "--cluster", "c1"]
    first_day = ["--input", scrapes(tmp_path / "in.csv"), "--plot", tmp_path / "pictures"]
    ended = spark_command("run", "--explain", *options, *first_day)
    assert ended.returncode == 0, ended.stderr
    nodes = set(re.findall(r"[:+]- \*?(\w*(?:Python|Arrow|Pandas)\w*)", ended.stderr))
    # Python parses the text, looks names up, and sums up whole hours and days; nothing else.
    assert nodes == {"MapInArrow"}
    report = json.loads(ended.stdout)
    assert list(report["steps"]) == ["ingest", "resolve", "utilization", "incidents"]
    assert (report["quarantined"], report["findings"]) == (1, 2)
    rows = {name: read_arrow(out, TABLES[name]).to_pylist() for name in WRITTEN}
    assert {name: len(found) for name, found in rows.items()} == report["rows_out"]
    [incident] = rows["throttle_incident"]
    assert (incident["start"], incident["end"]) == (at(3), at(6))
    assert (incident["quota_user"], incident["level"], incident["peak_ratio"]) == ("alice", 3, 1.2)
    began = json.loads(incident["first_contributors"])
    assert [item["client-id"] for item in began] == ["etl", "web"]
    [on_broker] = [row for row in rows["utilization_daily"] if row["broker_id"] is not None]
    assert (on_broker["minutes_present"], on_broker["minutes_over_100"]) == (10, 3)
    [near] = report["summary"]["nearest_to_limit"]
    assert (near["bucket"], near["entity"]) == ({"user": "alice"}, {"user": "alice"})
    assert (near["limit"], near["p99"], near["dt"]) == (100, pytest.approx(120, 0.01), "2026-11-20")
    assert report["summary"]["open_incidents"] == 0
    [hour] = rows["bucket_hour"]
    assert (hour["dt"], hour["hour"], hour["minutes"]) == (at(0).date(), 0, 10)
    assert (hour["rate_avg"], hour["rate_max"]) == (57, 120)
    assert (tmp_path / "pictures" / "percentile_ladder.png").exists()
    ended = spark_command("run", *options, "--input", scrapes(tmp_path / "next.csv", 1))
    assert ended.returncode == 0, ended.stderr
    steps = json.loads(ended.stdout)["steps"]
    read = [steps[name]["rows_in"] for name in ("ingest", "resolve", "utilization")]
    assert read == [21, 2, 10]
    starts = [row["start"] for row in read_arrow(out, THROTTLE_INCIDENT).to_pylist()]
    assert starts == [at(3), at(1440 + 3)]


def test_a_dry_run_says_what_it_would_do(spark_command: Command, tmp_path: Path):
    quotas = publish(tmp_path / "quotas", {QUOTA_VERSION: [version("producer_byte_rate", 100.0)]})
    source, out = scrapes(tmp_path / "in.csv"), tmp_path / "out"
    options = ["--format", "csv", "--input", str(source), "--quotas", str(quotas)]
    done = spark_command("run", *options, "--out", str(out), "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["would_read"] == [str(source), f"{quotas}/quota_version"]
    assert sorted(report["would_write"]) == sorted(f"{out}/{name}" for name in WRITTEN)
    assert not out.exists()
