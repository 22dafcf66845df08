"""A bucket's day beside its limit: counts by hand, percentiles against order statistics."""

import hashlib
import json
import math
import random
from argparse import Namespace
from collections import Counter
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from app.domain.plan_impact import BIN_RATIO, ZERO_BIN
from app.pipeline.commands.utilization import write_utilization
from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.main import main
from app.pipeline.results import Scope
from app.pipeline.summary import summarize
from app.pipeline.tables import (
    BUCKET_HOUR,
    DIM_BUCKET,
    QUOTA_VERSION,
    RATE_MINUTE,
    REVISION,
    SERIES,
    SERIES_LIMIT,
    THROTTLE_INCIDENT,
    UTILIZATION_DAILY,
    Table,
)
from app.pipeline.usage.buckets import _means, facts_of, hours_of, minutes_of, sum_members
from app.pipeline.usage.measures import bin_middles, rate_bins
from tests.pipeline.conftest import Command
from tests.testkit.bucket_worlds import (
    DAY,
    Row,
    arrow,
    bucket,
    facts_of_minutes,
    frame,
    minute,
    publish,
    read_arrow,
    version,
)
from tests.testkit.sizes import size

COUNTED, PEAKS, POOLED, UNLIMITED = "counted", "peaks", "pooled", "unlimited"
DISTRIBUTIONS, BINS = "distributions", "bins"
"""Clusters: a world for each test, so that a run serves all of them."""

PEAK_RATES = [round(100.0 * 1.003**number, 6) for number in range(12)]


def write(spark: SparkSession, facts: Path, out: Path) -> Job:
    """Run the job over all minutes."""
    job = Job("utilization", Namespace(explain=False))
    lakes = [Lake(spark, str(facts))]
    write_utilization(job, lakes, facts_of(lakes, Scope()), Lake(spark, str(out)))
    return job


def distributions() -> list[list[float]]:
    """Return the rates of some buckets, many of them zero."""
    drawing = random.Random(5)
    return [
        [drawing.choice((0.0, drawing.lognormvariate(9, 3))) for _ in range(count)]
        for count in (*range(1, 60, 3), 99, 100, 101, 200, 1000)
    ]


def worlds() -> dict[str, list[Row]]:
    """Return the minutes of each cluster."""
    unlimited = {"limit": None, "level": 0}
    return {
        COUNTED: [
            minute(0, rate_max=0.0),
            minute(1, rate_max=80.0),
            minute(2, rate_max=80.1, throttle_ms_max=3.0),
            minute(3, rate_max=100.0, throttle_ms_avg=4.0),
            minute(
                5, rate_max=200.0, limit=50.0, level=1, throttle_ms_avg=2.0, throttle_ms_max=9.0
            ),
            # Another bucket of the broker: in minute 4 the broker was there.
            minute(4, bucket_id=8, key="request_percentage", bytes_est=None, **unlimited),
            minute(0, broker_id=2, rate_max=30.0),
            minute(1440, rate_max=1.0),
        ],
        PEAKS: [minute(0, bucket_id=n, rate_max=rate) for n, rate in enumerate(PEAK_RATES)],
        POOLED: [
            *(minute(number, rate_max=10.0) for number in range(3)),
            minute(0, broker_id=2, rate_max=50.0),
            minute(1, broker_id=3, bucket_id=8),
        ],
        UNLIMITED: [
            minute(0, **unlimited),
            minute(0, bucket_id=8, limit=float("nan")),
            minute(0, bucket_id=9, limit=0.0),
            minute(0, bucket_id=10, key="request_percentage"),
        ],
        DISTRIBUTIONS: [
            minute(number, bucket_id=world, rate_max=rate)
            for world, rates in enumerate(distributions())
            for number, rate in enumerate(rates)
        ],
        BINS: [
            minute(number, broker_id=broker, rate_max=number % 7 * 1.1)
            for number in range(0, 2880, 30)
            for broker in (1, 2)
        ],
    }


@dataclass(frozen=True)
class Written:
    """The facts of a run, the folder that it wrote to, and what it counted."""

    facts: Path
    out: Path
    job: Job

    def rows(self, table: Table, cluster: str) -> list[Row]:
        rows = pq.read_table(self.out / table.name).to_pylist()
        return [row for row in rows if row["cluster_id"] == cluster]

    def days(self, cluster: str) -> dict[tuple[int, int | None, int], Row]:
        """Return the days by (day of the month, broker, bucket)."""
        return {
            (date.fromisoformat(row["dt"]).day, row["broker_id"], row["bucket_id"]): row
            for row in self.rows(UTILIZATION_DAILY, cluster)
        }


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Written:
    rows = [row | {"cluster_id": name} for name, world in worlds().items() for row in world]
    folder = tmp_path_factory.mktemp("utilization")
    facts, out = publish(folder / "in", facts_of_minutes(rows)), folder / "out"
    job = write(spark, facts, out)
    assert job.counts["rows_in"] == len(rows)
    return Written(facts, out, job)


@pytest.mark.small
def test_a_day_is_counted_beside_its_limit(written: Written):
    days = written.days(COUNTED)
    day = days[20, 1, 7]
    assert (day["minutes_present"], day["minutes_expected"]) == (5, 6)
    assert day["coverage"] == 5 / 6
    assert (day["minutes_over_80"], day["minutes_over_100"]) == (3, 1)
    assert (day["throttled_minutes"], day["throttle_ms_max"]) == (3, 9.0)
    assert (day["limit"], day["level"], day["peak"]) == (50.0, 1, 200.0)
    assert day["bytes"] == sum(round(rate * 60) for rate in (0, 80, 80.1, 100, 200))
    assert day["p50"] == pytest.approx(80.1, rel=0.005)
    assert day["p99"] == day["p95"] == pytest.approx(200.0, rel=0.005)
    assert day["util_p99"] == day["p99"] / 50.0
    assert day["headroom"] == 50.0 - day["p99"]
    assert days[21, 1, 7]["minutes_expected"] == 1


@pytest.mark.small
def test_no_percentile_is_above_the_peak(written: Written):
    days = written.days(PEAKS)
    assert len(days) == 2 * len(PEAK_RATES)
    for (_, _, bucket_id), day in days.items():
        assert day["p50"] == day["p99"] <= day["peak"] == PEAK_RATES[bucket_id]
        assert day["p99"] == pytest.approx(day["peak"], rel=0.005)


@pytest.mark.small
def test_the_pool_of_all_brokers_holds_their_minutes(written: Written):
    pool = written.days(POOLED)[20, None, 7]
    assert (pool["minutes_present"], pool["minutes_expected"], pool["coverage"]) == (4, 5, 0.8)
    assert (pool["peak"], pool["bytes"]) == (50.0, 3 * 600 + 3000)
    assert pool["p50"] == pytest.approx(10.0, rel=0.005)


@pytest.mark.small
def test_without_a_limit_there_is_no_ratio(written: Written):
    days = written.days(UNLIMITED)
    for bucket_id in (7, 8, 9):
        row = days[20, 1, bucket_id]
        assert (row["util_p99"], row["headroom"]) == (None, None)
    assert days[20, 1, 7]["minutes_over_80"] == days[20, 1, 8]["minutes_over_100"] == 0
    assert days[20, 1, 9]["minutes_over_100"] == 1
    assert days[20, 1, 10]["bytes"] is None


@pytest.mark.small
def test_percentiles_are_within_half_a_percent_of_the_order_statistics(written: Written):
    days = written.days(DISTRIBUTIONS)
    for world, rates in enumerate(distributions()):
        ordered = sorted(rates)
        for percent in (50, 95, 99):
            exact = ordered[-(-percent * len(rates) // 100) - 1]
            assert days[20, 1, world][f"p{percent}"] == pytest.approx(exact, rel=0.005)


def test_bins_hold_at_their_borders(spark: SparkSession):
    borders = [1.01**power for power in range(-2000, 4000, size(20, 1))]
    values = [item for border in borders for item in (math.nextafter(border, 0), border)]
    values = sorted([*values, 0.0, 5e-324, 1e-9, 1.0, 1e6, 2.0**63, 1.7e308])
    bins = rate_bins(np.array(values)).tolist()
    assert bins == sorted(bins)
    # As the service looks up the bin of a limit.
    of_limits = (math.floor(math.log(value) / math.log(BIN_RATIO)) for value in values[1:])
    assert bins == [ZERO_BIN, *of_limits]
    middles = bin_middles(np.array(bins))
    rows = [*zip(values, bins, middles.tolist(), strict=True)]
    assert rows[0] == (0.0, ZERO_BIN, 0.0)
    for rate, number, middle in rows[2:]:
        assert middle == pytest.approx(rate, rel=0.005)
        assert number == pytest.approx(math.log(rate) / math.log(1.01), abs=1.000001)
    assert bins[values.index(1.0)] == 0
    of_java = spark.createDataFrame([*zip(bins)], "bin int").select(
        sf.exp((sf.col("bin") + 0.5) * math.log(BIN_RATIO))
    )
    assert [row[0] for row in of_java.collect()][1:] == middles.tolist()[1:]


@pytest.mark.small
def test_the_histogram_adds_up_and_merges_exactly(written: Written):
    rows, day = worlds()[BINS], "2026-11-20"
    days = written.rows(UTILIZATION_DAILY, BINS)
    pools = [row for row in days if row["broker_id"] is None]
    assert [row["hist_bin"] for row in days if row["broker_id"] is not None] == [None] * 4
    assert sum(sum(row["hist_n"]) for row in pools) == len(rows)
    counts: Counter[tuple[str, int]] = Counter()
    for row in pools:
        assert row["hist_bin"] == sorted(set(row["hist_bin"]))
        counts |= {
            (row["dt"], item): n for item, n in zip(row["hist_bin"], row["hist_n"], strict=True)
        }
    hours: Counter[tuple[str, int]] = Counter()
    for row in written.rows(BUCKET_HOUR, BINS):
        hours.update((row["dt"], item) for item in row["bins"])
    assert counts == hours
    zeros = [row for row in rows if row["rate_max"] == 0 and f"{row['dt']}" == day]
    assert counts[day, ZERO_BIN] == len(zeros)


def digests(out: Path) -> dict[str, str]:
    return {
        f"{file.relative_to(out).parent}".partition(f"/{REVISION}=")[0]: hashlib.sha256(
            file.read_bytes()
        ).hexdigest()
        for file in out.rglob("*.parquet")
    }


def test_files_are_the_same_to_the_bit_for_any_partitions(
    spark: SparkSession, written: Written, tmp_path: Path
):
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        write(spark, written.facts, tmp_path)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    files = digests(written.out)
    of_table = Counter(name.partition("/")[0] for name in files)
    assert of_table.keys() == {"bucket_hour", "utilization_daily"}
    assert digests(tmp_path) == files


def test_what_spark_divides_by_hour_gives_the_same_bits(
    spark: SparkSession, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("app.pipeline.by_partition.local_partitions", lambda *_: None)
    job = write(spark, written.facts, tmp_path)
    assert (job.counts["rows_in"], job.findings) == (
        written.job.counts["rows_in"],
        written.job.findings,
    )
    assert digests(tmp_path) == digests(written.out)


def test_a_large_hour_is_divided_by_broker(
    spark: SparkSession, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("app.pipeline.usage.buckets._BYTES_OF_SHARE", 2_000)
    write(spark, written.facts, tmp_path)
    assert len(digests(tmp_path)) == len(digests(written.out))
    assert len([*tmp_path.rglob("*.parquet")]) > len([*written.out.rglob("*.parquet")])
    # As text, in which NaN is like NaN.
    divided, whole = (
        str(read_arrow(out, UTILIZATION_DAILY).to_pylist()) for out in (tmp_path, written.out)
    )
    assert divided == whole


@pytest.mark.parametrize("lacks", [RATE_MINUTE, SERIES, SERIES_LIMIT])
def test_minutes_without_a_name_or_limit_are_of_no_bucket(lacks: Table):
    made = facts_of_minutes([minute(0), minute(5, bucket_id=8)])
    facts = {table: arrow(table, rows) for table, rows in made.items()}
    facts[lacks] = facts[lacks].slice(1)
    summed = sum_members(*(facts[table] for table in (RATE_MINUTE, SERIES, SERIES_LIMIT)))
    assert hours_of(summed)["bucket_id"].to_pylist() == [8]
    facts[lacks] = facts[lacks].slice(1)
    summed = sum_members(*(facts[table] for table in (RATE_MINUTE, SERIES, SERIES_LIMIT)))
    assert len(hours_of(summed)) == len(minutes_of(summed)) == 0


def test_a_mean_has_ten_decimals_of_the_exact_quotient():
    drawing = random.Random(7)
    rates = [
        [drawing.randrange(2**bits) for _ in range(drawing.randrange(1, 61))]
        for bits in range(1, 63)
        for _ in range(20)
    ]
    micros = np.array([rate for hour in rates for rate in hour])
    counts = np.array([len(hour) for hour in rates])
    found = _means(micros, np.cumsum(counts) - counts, counts)
    with localcontext(prec=60):
        for hour, mean in zip(rates, found.tolist(), strict=True):
            exact = Decimal(sum(hour)) / len(hour)
            for decimals in ("1e-6", "1e-4"):
                exact = exact.quantize(Decimal(decimals), ROUND_HALF_UP)
            assert mean == float(exact / 10**6)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    rows = [minute(number, rate_max=60.0 + number) for number in (0, 50, 1440)]
    rows.append(minute(5, cluster_id="c2"))
    return publish(tmp_path / "in", {**facts_of_minutes(rows), DIM_BUCKET: [bucket()]})


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "--input is missing"),
        (["--input", "in"], "--out is missing"),
        (
            ["--input", ".", "--out", "o", "--from", "2026-11-21", "--to", "2026-11-20"],
            "--to must be later",
        ),
    ],
)
def test_a_wrong_option_is_named(
    options: list[str],
    line: str,
    world: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(world.parent)
    assert main(["utilization", *options]) == 2
    assert line in capsys.readouterr().err


def test_the_command_writes_both_tables_and_the_names(
    spark_command: Command, world: Path, tmp_path: Path
):
    out = tmp_path / "out"
    options = ["--input", world, "--out", out, "--cluster", "c1", "--to", "2026-11-21"]
    ended = spark_command("utilization", "--json", *options, "--fail-on", "findings", "--explain")
    assert ended.returncode == 4, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["rows_in"], report["findings"]) == (2, 1)
    written = {"dim_bucket": 1, "utilization_daily": 2, "bucket_hour": 1}
    assert report["rows_out"] == written
    assert "== Physical Plan ==" in ended.stderr
    days = read_arrow(out, UTILIZATION_DAILY).to_pylist()
    assert [(row["dt"].day, row["broker_id"]) for row in days] == [(20, None), (20, 1)]
    assert {row["cluster_id"] for row in days} == {"c1"}
    assert [row["hist_n"] for row in days] == [[1, 1], None]
    assert read_arrow(out, DIM_BUCKET).to_pylist()[0]["bucket_user"] == "alice"


@pytest.mark.parametrize("job", ["resolve", "utilization", "incidents"])
def test_a_job_says_that_its_input_has_nothing_of_the_cluster(
    job: str, spark_command: Command, world: Path, tmp_path: Path
):
    hours = {BUCKET_HOUR: [{"cluster_id": "c1", "dt": DAY.date(), "hour": 0, "minutes": 1}]}
    publish(world, {**hours, QUOTA_VERSION: [version("producer_byte_rate", 100.0)]})
    quotas = ["--quotas", world] if job == "resolve" else []
    options = ["--input", world, *quotas, "--out", tmp_path / "out", "--cluster", "another"]
    ended = spark_command(job, *options)
    assert ended.returncode == 0, ended.stderr
    assert f"{job}: the input has no minutes of this cluster and period.\n" in ended.stderr


def test_the_summary_claims_nothing_of_a_job_that_has_not_run(spark: SparkSession, tmp_path: Path):
    job = Job("plot", Namespace(cluster=None, since=None, until=None))
    lake = Lake(spark, str(tmp_path))
    summarize(job, [lake])
    assert job.summary == [
        "",
        "Nearest to their limits: unknown until `utilization` has run",
        "",
        "Open incidents: unknown until `incidents` has run",
    ]
    unknown = {"nearest_to_limit": None, "open_incidents": None, "worst_open_incidents": []}
    assert job.counts["summary"] == unknown
    for table in (UTILIZATION_DAILY, THROTTLE_INCIDENT):
        lake.write(frame(spark, table, []), table)
    summarize(job, [lake])
    assert job.summary == [
        "",
        "No bucket with a limit has minutes here.",
        "",
        "Open incidents: none",
    ]
    empty = {"nearest_to_limit": [], "open_incidents": 0, "worst_open_incidents": []}
    assert job.counts["summary"] == empty
