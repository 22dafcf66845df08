"""Points become minutes, each once, whatever the partitions; what cannot be used is kept."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession

from app.pipeline.errors import DataQualityError, InfrastructureError, UsageError
from app.pipeline.ingest.checks import Broker, Tally, checks
from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.tables import DQ_RESULT, OBSERVATION_MINUTE, QUARANTINE, RATE_MINUTE
from tests.pipeline.conftest import Command
from tests.pipeline.ingest.points import (
    HEADERS,
    NOON,
    Point,
    job_of,
    observed,
    run_job,
    write_csv,
    write_export,
)

NAN = float("nan")
START = int(NOON.timestamp())


def table(spark: SparkSession, out: Path, what: Any) -> Sequence[Row]:
    rows = observed(spark, out) if what is OBSERVATION_MINUTE else Lake(spark, str(out)).read(what)
    return rows.orderBy(*what.partitions, *what.order).collect()


def row(second: float, value: object, user: str = "alice", **others: str) -> str:
    """Return a line of CSV."""
    columns = {"metric": "byte_rate", "resource": "Fetch", "cluster": "c", "broker": "1"} | others
    names = (columns["metric"], columns["resource"], user, "etl", str(value), columns["cluster"])
    return ",".join((str(START + second), columns["broker"], *names))


THROTTLE = {"metric": "throttle_time"}
LARGE = (8_999_999_999_999.0, 8_999_999_999_998.0, 1.0)
MINUTES = (
    *(row(0, 1), row(20, 2), row(59.999, 2), row(60, 0)),
    *(row(0, NAN, **THROTTLE), row(20, 30, **THROTTLE), row(40, 5, **THROTTLE)),
    row(60, NAN, **THROTTLE),
    row(60, 0.25, metric="request_time", resource="Request"),
    *(row(number, value, "large") for number, value in enumerate(LARGE)),
)
TWICE = (
    *(row(0, 7, "twice"), row(0, 1, "twice"), row(1, 3, "twice"), row(0, 7, "twice")),
    *(row(0, 7, "once"), row(0, 8, "twice", cluster="d")),
)
BAD = (
    *(row(60, 30, "none", **THROTTLE), row(0, -1, "none"), row(0, 1, "none", metric="x")),
    row(0, 1, "none", broker=""),
)
BROKERS = (
    *(row(60 * number, number / 7, "often", cluster="") for number in range(10)),
    row(0, 1, "seldom", cluster="", broker="2"),
    *(row(60 * number, number % 2, "", metric="up", cluster="") for number in (10, 11)),
)


@dataclass(frozen=True)
class World:
    """What became of all the rows above."""

    source: Path
    out: Path
    job: Job
    minutes: Sequence[Row]
    quarantine: Sequence[Row]
    checks: Mapping[str, Row]

    def of(self, user: str) -> list[Row]:
        return [minute for minute in self.minutes if minute.user == user]


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    source, out = tmp_path_factory.mktemp("in"), tmp_path_factory.mktemp("out")
    header = ",".join((*HEADERS, "cluster_id"))
    lines = "\n".join((header, *MINUTES, *TWICE, *BAD, *BROKERS))
    (source / "a.csv").write_text(lines + "\n")
    (source / "b.csv").write_text("\n".join((header, *BROKERS[:3], *MINUTES[:2])))
    (source / "c.csv").write_bytes(b"\x00")
    job = run_job(spark, "csv", source, out)
    found = [table(spark, out, item) for item in (OBSERVATION_MINUTE, QUARANTINE, DQ_RESULT)]
    return World(source, out, job, found[0], found[1], {item.check: item for item in found[2]})


@pytest.mark.small
def test_a_minute_is_summed_up(world: World):
    first, second, percent = world.of("alice")
    assert first == Row(
        cluster_id="c",
        dt=date(2026, 11, 21),
        ts=NOON.replace(tzinfo=None),
        broker_id=1,
        key="consumer_byte_rate",
        user="alice",
        client_id="etl",
        grain="bucket",
        rate_avg=1.666667,
        rate_max=2.0,
        throttle_ms_avg=17.5,
        throttle_ms_max=30.0,
        samples=3,
        bytes_est=100,
        source="csv",
        ingest_run_id=world.job.run_id,
    )
    assert (second.rate_avg, second.samples, second.bytes_est) == (0.0, 1, 0)
    assert (second.throttle_ms_avg, second.throttle_ms_max) == (None, None)
    assert (percent.key, percent.rate_max, percent.bytes_est) == ("request_percentage", 0.25, None)


@pytest.mark.small
def test_a_minute_of_a_scraped_broker_without_a_sample_is_one_of_rate_0(world: World):
    often, seldom = world.of("often"), world.of("seldom")
    assert [(item.ts.minute, item.samples) for item in often] == [
        *((number, 1) for number in range(10)),
        (11, 0),
    ]
    idle = often[-1]
    assert (idle.rate_avg, idle.rate_max, idle.throttle_ms_max, idle.bytes_est) == (0, 0, None, 0)
    assert len(seldom) == 1, "its broker has no `up`"


@pytest.mark.small
def test_a_throttle_time_without_a_rate_is_a_minute_with_rate_0(world: World):
    (minute,) = world.of("none")
    assert (minute.ts.minute, minute.rate_avg, minute.rate_max, minute.bytes_est) == (1, 0, 0, 0)
    assert (minute.throttle_ms_avg, minute.throttle_ms_max, minute.samples) == (30.0, 30.0, 0)


@pytest.mark.small
def test_the_mean_of_large_rates_is_exact(world: World):
    (minute,) = world.of("large")
    assert minute.rate_avg == 5_999_999_999_999.333333
    assert minute.bytes_est == round(5_999_999_999_999_333_333 * 60 / 10**6)
    assert minute.rate_max == LARGE[0]


@pytest.mark.small
def test_the_first_of_the_same_point_counts(world: World):
    twice = [(item.cluster_id, item.rate_avg, item.samples) for item in world.of("twice")]
    assert twice == [("c", 5.0, 2), ("d", 8.0, 1)]
    assert [(item.rate_avg, item.samples) for item in world.of("once")] == [(7.0, 1)]


def test_of_the_same_minute_that_of_the_first_named_input_counts(
    spark: SparkSession, tmp_path: Path
):
    inputs = {
        "b": [Point(value=2.0), Point(20, value=4.0)],
        "a": [Point(value=1.0), Point(5, value=1.0), Point(60, value=8.0)],
        "c": [Point(7, attribute="throttle_time", value=30.0)],
    }
    files = [
        str(write_csv(points, tmp_path).rename(tmp_path / f"{name}.csv"))
        for name, points in inputs.items()
    ]
    more = [option for file in files[1:] for option in ("--input", file)]
    job = run_job(spark, "csv", Path(files[0]), tmp_path / "out", *more)
    first, second = table(spark, tmp_path / "out", OBSERVATION_MINUTE)
    assert (first.rate_avg, first.samples, first.throttle_ms_max) == (3.0, 2, 30.0)
    assert (second.rate_avg, second.samples) == (8.0, 1)
    refused = table(spark, tmp_path / "out", QUARANTINE)
    assert [(Path(item.source).name, item.reason) for item in refused] == [
        ("a.csv", "duplicate"),
        ("a.csv", "duplicate"),
    ]
    assert job.quarantined == 2


@pytest.mark.small
def test_the_surplus_is_quarantined_with_the_file_that_has_it(world: World):
    duplicates = [item for item in world.quarantine if item.reason == "duplicate"]
    surplus = sorted(duplicates, key=lambda item: (item.source, "twice" not in item.raw))
    assert [(item.source, item.line, item.n) for item in surplus] == [
        *((f"{world.source}/{name}.csv", None, 1) for name in "aabbbbb"),
    ]
    assert '"user":"twice"' in surplus[0].raw
    assert '"ts":"2026-11-21T12:00:00.000000Z"' in surplus[0].raw


@pytest.mark.small
def test_rows_in_are_rows_used_and_quarantined(world: World):
    counts = world.job.counts
    assert counts["quarantined_by_reason"] == {
        "duplicate": 7,
        "missing-broker": 1,
        "negative": 1,
        "unknown-metric": 1,
        "unreadable-file": 1,
    }
    rows = sum(map(len, (MINUTES, TWICE, BAD, BROKERS))) + 5 + 1
    assert counts["rows_in"] == rows == counts["rows_used"] + world.job.quarantined
    assert world.job.quarantined == sum(item.n for item in world.quarantine) == 11
    assert counts["used"] == {"rate": 23, "throttle": 5, "up": 2}
    assert counts["rows_out"]["rate_minute"] == len(world.minutes)


@pytest.mark.small
def test_the_checks_name_what_is_wrong(world: World):
    failed = {name for name, check in world.checks.items() if not check.passed}
    assert (
        failed
        == set(world.job.counts["dq_failed"])
        == {
            *("cluster_named", "failed_scrapes"),
            *("quarantined_duplicate", "quarantined_missing_broker", "quarantined_negative"),
            *("quarantined_unknown_metric", "quarantined_unreadable_file"),
            *("coverage cluster unknown broker 2", "seconds_behind cluster unknown broker 2"),
        }
    )
    assert world.checks["coverage cluster unknown broker 1"].value == 11 / 12
    assert world.checks["coverage cluster unknown broker 2"].value == 1 / 12


def test_an_input_of_which_nothing_can_be_read_replaces_nothing(
    spark: SparkSession, tmp_path: Path
):
    source, out = write_csv([Point()], tmp_path), tmp_path / "out"
    run_job(spark, "csv", source, out)
    before = table(spark, out, RATE_MINUTE)
    source.write_bytes(b"\x1f\x8b\x08\x00 no text")
    period = ("--from", "2026-11-20", "--to", "2026-11-23", "--cluster", "unknown")
    with pytest.raises(InfrastructureError, match=f"No file of the input can be read. {source}: "):
        run_job(spark, "csv", source, out, *period)
    assert table(spark, out, RATE_MINUTE) == before != []


def test_a_gap_alone_fails_where_data_quality_is_asked_for(spark: SparkSession, tmp_path: Path):
    source = write_csv([Point(0), Point(3600)], tmp_path)
    job = run_job(spark, "csv", source, tmp_path / "out", "--fail-on", "dq")
    assert job.quarantined == 0
    with pytest.raises(DataQualityError, match="coverage cluster unknown broker 1"):
        job.judge()
    job.options.fail_on = job_of(spark, "csv", source, tmp_path / "out").options.fail_on
    job.judge()


@pytest.mark.small
def test_a_clock_that_is_ahead_fails_a_check():
    now = datetime(2026, 11, 21, 12)  # noqa: DTZ001 - as Spark returns times
    passed = {}
    for seconds in (120, 121):
        broker = Broker("c", 1, 1, now, now + timedelta(seconds=seconds))
        by_name = {item.check: item for item in checks(Tally(brokers=[broker]), now)}
        passed[seconds] = by_name["seconds_ahead_of_this_clock"].passed
    assert passed == {120: True, 121: False}


def test_the_partitions_change_not_a_byte_of_the_files(
    world: World, spark: SparkSession, tmp_path: Path
):
    changes = {
        "spark.sql.shuffle.partitions": 16,
        "spark.sql.adaptive.enabled": False,
        # Several tasks read the lines of a file, one of them its header.
        "spark.sql.files.maxPartitionBytes": 500,
        "spark.sql.files.openCostInBytes": 1,
    }
    before = {name: spark.conf.get(name) for name in changes}
    for name, value in changes.items():
        spark.conf.set(name, value)
    try:
        run_job(spark, "csv", world.source, tmp_path)
    finally:
        for name, value in before.items():
            spark.conf.set(name, f"{value}")
    assert files_of(tmp_path) == files_of(world.out)


def files_of(out: Path) -> list[tuple[Path, bytes]]:
    files = sorted(out.rglob("*.parquet"))
    return [(file.parent.relative_to(out), file.read_bytes()) for file in files]


def test_a_run_over_a_period_empties_its_days_and_no_other(
    world: World, spark: SparkSession, tmp_path: Path
):
    out = tmp_path / "out"
    shutil.copytree(world.out, out)
    period = ("--from", "2026-11-21", "--to", "2026-11-22")
    source = write_csv([Point(86_400)], tmp_path)
    job = run_job(spark, "csv", source, out, "--cluster", "c", *period)
    left = table(spark, out, OBSERVATION_MINUTE)
    assert [minute for minute in world.minutes if minute.cluster_id != "c"] == left
    assert (job.counts["rows_in"], job.counts["left_out"]) == (0, 1)


def test_several_clusters_are_not_called_by_a_single_name(
    world: World, spark: SparkSession, tmp_path: Path
):
    with pytest.raises(UsageError, match="the input holds the clusters c, d;"):
        run_job(spark, "csv", world.source, tmp_path / "out", "--cluster", "e")
    assert not (tmp_path / "out").exists()


@pytest.mark.small
def test_quarantined_rows_are_exit_code_3_after_publishing(spark_command: Command, tmp_path: Path):
    points = [Point(0, value=3), Point(0, value=3), Point(9, value=-1)]
    source = write_export(points, tmp_path)
    in_a_cluster = {"metric": points[0].labels(cluster="c", __name__=points[0].metric)}
    with source.open("a") as lines:
        lines.write(json.dumps(in_a_cluster | {"values": [5], "timestamps": [START * 1000 + 1]}))
    out = tmp_path / "out"
    options = ("--format", "vm-jsonl", "--input", source, "--out", out, "--cluster", "e")
    done = spark_command("ingest", *options, "--fail-on", "dq", "--json", "--explain")
    assert done.returncode == 3, done.stderr
    report = json.loads(done.stdout)
    assert (report["rows_in"], report["rows_used"], report["quarantined"]) == (4, 2, 2)
    assert report["rows_out"]["rate_minute"] == 1
    assert report["clusters"] == ["e"]
    assert "cluster_named" not in report["dq_failed"]
    assert "failed: quarantined_duplicate, quarantined_negative." in done.stderr
    assert "-- rate_minute" in done.stderr
    (row,) = pq.read_table(out / "rate_minute").to_pylist()
    (series,) = pq.read_table(out / "series").to_pylist()
    assert (row["rate_avg"], row["hour"], row["series_id"]) == (4.0, 12, series["series_id"])
    assert (series["user"], series["source"]) == ("alice", "vm-jsonl")
    quarantined = pq.read_table(out / "quarantine").to_pylist()
    assert [(row["line"], row["reason"]) for row in quarantined] == [
        (None, "duplicate"),
        (None, "negative"),
    ]


def test_points_are_counted_by_the_tasks_that_write_their_minutes(
    spark_command: Command, tmp_path: Path
):
    """What such tasks count they return: whatever runs again is counted once.

    Spark divides points by hour, and neither sorts them nor makes tables of hashes of all minutes,
    which would be larger than what a task has in memory.
    """
    (tmp_path / "more").mkdir()
    inputs = [write_csv([Point()], folder) for folder in (tmp_path, tmp_path / "more")]
    options = [option for file in inputs for option in ("--input", file)]
    out = ("--out", tmp_path / "out")
    done = spark_command("ingest", "--format", "csv", *options, *out, "--explain", "--json")
    assert done.returncode == 0, done.stderr
    plan = done.stderr.partition("-- rate_minute")[2]
    above, divided, below = plan.partition("Exchange")
    assert divided
    assert "MapInArrow" in above
    assert "MapInArrow" in below
    assert not any(word in plan for word in ("Aggregate", "Sort", "CollectMetrics"))
    assert json.loads(done.stdout)["quarantined_by_reason"] == {"duplicate": 1}


def test_a_dry_run_writes_nothing(spark_command: Command, tmp_path: Path):
    source = write_csv([Point()], tmp_path)
    options = ("--format", "csv", "--input", source, "--out", tmp_path / "out", "--dry-run")
    done = spark_command("ingest", *options, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["would_read"] == [str(source)]
    assert report["would_write"][0] == f"{tmp_path}/out/series"
    assert not (tmp_path / "out").exists()


@pytest.mark.small
def test_a_wrong_column_is_exit_code_2_and_named(spark_command: Command, tmp_path: Path):
    (tmp_path / "a.csv").write_text("ts,value\n1,2\n")
    done = spark_command(
        "ingest", "--format", "csv", "--input", tmp_path, "--out", tmp_path / "out"
    )
    assert done.returncode == 2
    assert "has no column broker_id, metric, resource, user, client_id" in done.stderr
    assert "Its headers are ts, value." in done.stderr
    assert not (tmp_path / "out").exists()
