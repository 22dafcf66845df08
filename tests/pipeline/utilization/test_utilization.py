"""A bucket's day beside its limit: counts by hand, percentiles against order statistics."""

import hashlib
import math
import random
from argparse import Namespace
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from app.pipeline.commands.utilization import write_utilization
from app.pipeline.folders import RunFolder
from app.pipeline.job import Job
from app.pipeline.jobs.utilization import ZERO_BIN, bin_middle, rate_bin
from app.pipeline.storage import read_table, write_table
from app.pipeline.tables import BUCKET_MINUTE, UTILIZATION_DAILY, UTILIZATION_HIST, Table
from tests.testkit.bucket_worlds import Row, frame, minute, publish, rows_of


def summed(spark: SparkSession, rows: list[Row], table: Table) -> list[Row]:
    """Return the rows of a table that the job makes of these minutes."""
    with TemporaryDirectory() as folder:
        given = publish(Path(folder) / "in", {BUCKET_MINUTE: rows})
        job = write(spark, given, Path(folder) / "out")
        assert job.counts["rows_in"] == len(rows)
        return rows_of(read_table(spark, [Path(folder) / "out"], table))


def write(spark: SparkSession, given: Path, out: Path) -> Job:
    """Run the job over all minutes of a folder."""
    job, run = Job("utilization", Namespace(explain=False)), RunFolder(out, "one")
    write_utilization(job, read_table(spark, [given], BUCKET_MINUTE), run, [])
    run.publish()
    return job


def daily(spark: SparkSession, rows: list[Row]) -> dict[tuple[int, int | None, int], Row]:
    """Return the days by (day of the month, broker, bucket)."""
    result = summed(spark, rows, UTILIZATION_DAILY)
    return {(row["dt"].day, row["broker_id"], row["bucket_id"]): row for row in result}


def test_a_day_is_counted_beside_its_limit(spark: SparkSession):
    rows = [
        minute(0, rate_max=0.0),
        minute(1, rate_max=80.0),
        minute(2, rate_max=80.1, throttle_ms_max=3.0),
        minute(3, rate_max=100.0, throttle_ms_avg=4.0),
        minute(5, rate_max=200.0, limit=50.0, level=1, throttle_ms_avg=2.0, throttle_ms_max=9.0),
        # Another bucket of the broker: in minute 4 the broker was there.
        minute(4, bucket_id=8, limit=None, level=0, key="request_percentage", bytes_est=None),
        minute(0, broker_id=2, rate_max=30.0),
        minute(1440, rate_max=1.0),
    ]
    days = daily(spark, rows)
    one = days[20, 1, 7]
    assert (one["minutes_present"], one["minutes_expected"]) == (5, 6)
    assert one["coverage"] == 5 / 6
    assert (one["minutes_over_80"], one["minutes_over_100"]) == (3, 1)
    assert (one["throttled_minutes"], one["throttle_ms_max"]) == (3, 9.0)
    assert (one["limit"], one["level"], one["peak"]) == (50.0, 1, 200.0)
    assert one["bytes"] == sum(round(rate * 60) for rate in (0, 80, 80.1, 100, 200))
    assert one["p50"] == pytest.approx(80.1, rel=0.005)
    assert one["p99"] == one["p95"] == pytest.approx(200.0, rel=0.005)
    assert one["util_p99"] == one["p99"] / 50.0
    assert one["headroom"] == 50.0 - one["p99"]
    assert days[21, 1, 7]["minutes_expected"] == 1


def test_no_percentile_is_above_the_peak(spark: SparkSession):
    rates = [100.0 * 1.003**number for number in range(12)]
    days = daily(spark, [minute(0, bucket_id=n, rate_max=rate) for n, rate in enumerate(rates)])
    for (_, _, bucket_id), day in days.items():
        assert day["p50"] == day["p99"] <= day["peak"] == rates[bucket_id]
        assert day["p99"] == pytest.approx(day["peak"], rel=0.005)


def test_the_pool_of_all_brokers_holds_their_minutes(spark: SparkSession):
    rows = [minute(number, broker_id=1, rate_max=10.0) for number in range(3)]
    rows += [minute(0, broker_id=2, rate_max=50.0), minute(1, broker_id=3, bucket_id=8)]
    pool = daily(spark, rows)[20, None, 7]
    assert (pool["minutes_present"], pool["minutes_expected"], pool["coverage"]) == (4, 5, 0.8)
    assert (pool["peak"], pool["bytes"]) == (50.0, 3 * 600 + 3000)
    assert pool["p50"] == pytest.approx(10.0, rel=0.005)


def test_without_a_limit_there_is_no_ratio(spark: SparkSession):
    unlimited = {"limit": None, "level": 0}
    rows = [minute(0, **unlimited), minute(0, bucket_id=8, limit=float("nan"))]
    rows += [minute(0, bucket_id=9, limit=0.0), minute(0, bucket_id=10, bytes_est=None)]
    days = daily(spark, rows)
    for bucket_id in (7, 8, 9):
        row = days[20, 1, bucket_id]
        assert (row["util_p99"], row["headroom"]) == (None, None)
    assert days[20, 1, 7]["minutes_over_80"] == days[20, 1, 8]["minutes_over_100"] == 0
    assert days[20, 1, 9]["minutes_over_100"] == 1
    assert days[20, 1, 10]["bytes"] is None


def test_percentiles_are_within_half_a_percent_of_the_order_statistics(spark: SparkSession):
    drawing = random.Random(5)
    worlds = [
        [drawing.choice((0.0, drawing.lognormvariate(9, 3))) for _ in range(size)]
        for size in (*range(1, 60), 99, 100, 101, 200, 1000, 1440)
    ]
    rows = [
        minute(number, bucket_id=world, rate_max=rate)
        for world, rates in enumerate(worlds)
        for number, rate in enumerate(rates)
    ]
    days = daily(spark, rows)
    for world, rates in enumerate(worlds):
        ordered = sorted(rates)
        for percent in (50, 95, 99):
            exact = ordered[-(-percent * len(rates) // 100) - 1]
            assert days[20, 1, world][f"p{percent}"] == pytest.approx(exact, rel=0.005)


def test_bins_hold_at_their_borders(spark: SparkSession):
    borders = [1.01**power for power in range(-2000, 4000)]
    values = [item for border in borders for item in (math.nextafter(border, 0), border)]
    values = sorted([*values, 0.0, 5e-324, 1e-9, 1.0, 1e6, 2.0**63, 1.7e308])
    given = spark.createDataFrame([(value,) for value in values], "rate double")
    bins = given.withColumn("bin", rate_bin(sf.col("rate")))
    rows = bins.withColumn("middle", bin_middle(sf.col("bin"))).orderBy("rate").collect()
    assert tuple(rows[0]) == (0.0, ZERO_BIN, 0.0)
    assert [row.bin for row in rows] == sorted(row.bin for row in rows)
    for row in rows[2:]:
        assert row.middle == pytest.approx(row.rate, rel=0.005)
        assert row.bin == pytest.approx(math.log(row.rate) / math.log(1.01), abs=1.000001)
    assert rows[values.index(1.0)].bin == 0


def test_the_histogram_adds_up_and_merges_exactly(spark: SparkSession):
    rows = [
        minute(number, broker_id=broker, rate_max=float(number % 7))
        for number in range(0, 2880, 30)
        for broker in (1, 2)
    ]
    bins = summed(spark, rows, UTILIZATION_HIST)
    counts = {(row["dt"], row["broker_id"], row["bin"]): row["n"] for row in bins}
    assert sum(n for (_, broker, _), n in counts.items() if broker is None) == len(rows)
    for (day, broker, item), n in counts.items():
        if broker is None:
            assert n == counts[day, 1, item] + counts[day, 2, item]
    zeros = [row for row in rows if row["rate_max"] == 0 and row["dt"] == date(2026, 11, 20)]
    assert counts[date(2026, 11, 20), None, ZERO_BIN] == len(zeros)


def _files(given: Path, out: Path, spark: SparkSession, partitions: int) -> dict[str, str]:
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    try:
        write(spark, given, out)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    return {
        str(file.relative_to(out).parent): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in out.rglob("*.parquet")
    }


def _minutes_of_four_buckets() -> list[Row]:
    drawing = random.Random(6)
    return [
        minute(
            number,
            broker_id=broker,
            bucket_id=bucket_id,
            rate_max=drawing.uniform(0, 200),
            throttle_ms_avg=drawing.choice((None, 1.5)),
        )
        for number in range(0, 2880, 20)
        for broker in (1, 2)
        for bucket_id in range(4)
    ]


def test_files_are_the_same_to_the_bit_for_any_partitions(spark: SparkSession, tmp_path: Path):
    rows = _minutes_of_four_buckets()
    run = RunFolder(tmp_path / "sixteen", "in")
    write_table(frame(spark, BUCKET_MINUTE, rows).repartition(16), BUCKET_MINUTE, run)
    run.publish()
    assert len(list((tmp_path / "sixteen").rglob("*.parquet"))) > 16
    given = publish(tmp_path / "one", {BUCKET_MINUTE: rows})
    two = _files(given, tmp_path / "from-one", spark, 2)
    sixteen = _files(tmp_path / "sixteen", tmp_path / "from-sixteen", spark, 16)
    assert len(two) == 6
    assert two == sixteen
