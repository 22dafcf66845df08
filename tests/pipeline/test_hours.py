"""Runs of hours: a late one again, several at once, the newest alone, and a large chain."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from app.domain.broker_metrics import Sample
from app.pipeline.commands.collect import CollectedFiles, Scrape
from app.pipeline.commands.export import observation_minutes
from app.pipeline.ingest.points import Rules
from app.pipeline.lake import Lake
from app.pipeline.main import main
from app.pipeline.results import Hours, Scope, settled
from app.pipeline.synth.formats import write_shape
from app.pipeline.synth.tables import Plan, observations, quotas
from app.pipeline.tables import (
    BUCKET_HOUR,
    DIM_BUCKET,
    OBSERVATION_MINUTE,
    QUARANTINE,
    QUOTA_VERSION,
    RATE_MINUTE,
    REVISION,
    SERIES,
    SERIES_LIMIT,
    THROTTLE_INCIDENT,
    UTILIZATION_DAILY,
    Table,
)
from tests.pipeline.conftest import Command
from tests.pipeline.ingest.points import HEADERS, job_of
from tests.testkit.bucket_worlds import (
    at,
    minute,
    publish,
    read_arrow,
    version,
    write_hours,
)
from tests.testkit.patience import wait_until
from tests.testkit.processes import DEADLINE_S, processes_of
from tests.testkit.sizes import size

FACTS = (SERIES, RATE_MINUTE, SERIES_LIMIT, DIM_BUCKET, BUCKET_HOUR)
DAYS = (UTILIZATION_DAILY, THROTTLE_INCIDENT)
RESULTS = (*FACTS, *DAYS, QUARANTINE)
OF_HOUR = 4


def scrapes(hours: range) -> Iterator[tuple[Any, ...]]:
    """Yield the last minutes of hours and the first of the next: over the limit across each end."""
    for hour in hours:
        for number in (0, 1, 2, 59):
            rate = 50.0 if number == 2 else 120.0 + hour
            name = ("byte_rate", "Produce", "alice", f"app-{number % 2}")
            yield (at(60 * hour + number).isoformat(), 1, *name, rate)
        yield (at(60 * hour).isoformat(), 1, "byte_rate", "Produce", "alice", "bad", -1)


def written(folder: Path, hours: range) -> Path:
    file = folder / f"hours-{hours.start}-{hours.stop}.csv"
    with file.open("w", newline="") as target:
        writer = csv.writer(target)
        writer.writerow(HEADERS)
        writer.writerows(scrapes(hours))
    return file


def run(spark: SparkSession, limits: Path, source: Path, out: Path, cluster: str | None) -> None:
    options = ("--quotas", f"{limits}", *(() if cluster is None else ("--cluster", cluster)))
    job = job_of(spark, "csv", source, out, *options, name="run")
    job.options.command.run(job)


def rows(out: Path, table: Table) -> list[dict[str, Any]]:
    found = read_arrow(out, table).to_pylist()
    for row in found:
        # They name the run and its files.
        row["ingest_run_id"] = row["source"] = None
    return sorted(found, key=str)


CLUSTERS = ("c1", "c2")
HOURS = range(size(2, 4))


@dataclass(frozen=True)
class Written:
    """What was made of all hours of two clusters.

    Attributes:
        out: The tables.
        again: The options of a run that makes clusters again.
        clusters: How many.
    """

    out: Path
    again: tuple[str | Path, ...]
    clusters: int


@pytest.fixture(scope="module")
def limits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a quota of alice in each of two clusters."""
    quota = version("producer_byte_rate", 100.0)
    rows = [{**quota, "cluster_id": name} for name in CLUSTERS]
    return publish(tmp_path_factory.mktemp("quotas"), {QUOTA_VERSION: rows})


@pytest.fixture(scope="module")
def whole(spark: SparkSession, limits: Path, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """What one run made."""
    folder, out = (tmp_path_factory.mktemp(name) for name in ("source", "whole"))
    source = folder / "whole.csv"
    with source.open("w", newline="") as target:
        writer = csv.writer(target)
        writer.writerow([*HEADERS, "cluster_id"])
        writer.writerows((*row, name) for name in CLUSTERS for row in scrapes(HOURS))
    run(spark, limits, source, out, None)
    return Written(out, ("--quotas", limits, "--input", source), len(CLUSTERS))


@pytest.fixture(scope="module")
def at_once(spark: SparkSession, limits: Path, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """What a run for each hour of a cluster made, and one of the other cluster, all at once."""
    folder, out = (tmp_path_factory.mktemp(name) for name in ("hours", "at-once"))
    sources = [written(folder, range(hour, hour + 1)) for hour in HOURS]
    first, other = CLUSTERS
    work = [*((file, first) for file in sources), (written(folder, HOURS), other)]
    with ThreadPoolExecutor(len(work)) as pool:
        runs = [pool.submit(run, spark, limits, file, out, cluster) for file, cluster in work]
        for each in runs:
            each.result()
    inputs = (word for file in sources for word in ("--input", file))
    return Written(out, ("--quotas", limits, *inputs, "--cluster", CLUSTERS[0]), 1)


@pytest.mark.parametrize(
    ("first", "chosen"),
    [
        pytest.param("at_once", ("--last", "1h"), marks=pytest.mark.small),
        ("whole", ("--from", f"{at(60 * HOURS[-1])}", "--to", f"{at(60 * HOURS[-1] + 59)}")),
    ],
    ids=["the last hour after several runs at once", "a period after one run"],
)
def test_a_late_hour_again_is_one_run_and_gives_the_same_bits(
    spark_command: Command,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    first: str,
    chosen: tuple[str, ...],
):
    former: Written = request.getfixturevalue(first)
    out = tmp_path / "out"
    shutil.copytree(former.out, out)
    before = {table: rows(out, table) for table in RESULTS}
    files = {file: file.read_bytes() for file in (out / RATE_MINUTE.name).rglob("*.parquet")}
    options = ("--format", "csv", "--out", out, *former.again, *chosen, "--json")
    done = spark_command("run", *options)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows_in"] == former.clusters * (OF_HOUR + 1)
    assert all(before.values())
    assert {table: rows(out, table) for table in RESULTS} == before
    again = {file: file.read_bytes() for file in (out / RATE_MINUTE.name).rglob("*.parquet")}
    assert sorted(again.values()) == sorted(files.values())
    new = again.keys() - files.keys()
    assert {file.parent.name for file in new} == {f"hour={HOURS[-1]}"}
    assert len(new) == former.clusters, "one hour of each has a new file"
    assert len(before[QUARANTINE]) == len(CLUSTERS) * len(HOURS)


def test_several_runs_at_once_write_what_one_run_of_all_writes(at_once: Written, whole: Written):
    for table in (*FACTS, *DAYS):
        assert rows(at_once.out, table) == rows(whole.out, table) != [], table.name


@pytest.mark.small
def test_several_runs_at_once_leave_whole_tables(at_once: Written):
    left = [*at_once.out.rglob("*")]
    levels = [[each.partition("=")[0] for each in file.parts if "=" in each] for file in left]
    assert all(len(names) == len({*names}) for names in levels), "no folder is inside its like"
    assert not [file for file in left if file.name == "_temporary" or "staging" in file.name]
    incidents = rows(at_once.out, THROTTLE_INCIDENT)
    across = [row for row in incidents if row["start"] == at(59) and row["end"] == at(62)]
    assert sorted(row["cluster_id"] for row in across) == list(CLUSTERS)
    assert {row["hour"] for row in rows(at_once.out, BUCKET_HOUR)} == {*HOURS}


def test_days_are_summed_up_again_where_an_hour_came_meanwhile(spark: SparkSession, tmp_path: Path):
    lake, found = Lake(spark, str(tmp_path)), []
    day = {"cluster_id": "c1", "dt": f"{at(0):%F}"}
    write_hours(lake, [minute(0)])

    def write(hours: Hours) -> str:
        hours.remember([day])
        found.append(lake.read_in(BUCKET_HOUR, [day]).count())
        if len(found) == 1:
            write_hours(lake, [minute(60)])
        return hours.revision

    before = lake.next_revision(UTILIZATION_DAILY, [])
    assert settled([lake], lake, UTILIZATION_DAILY, write) > before
    assert found == [1, 2]


@pytest.mark.parametrize(
    "table", size([UTILIZATION_DAILY], [*FACTS, *DAYS]), ids=lambda table: table.name
)
def test_a_run_that_is_killed_leaves_days_whole_and_is_run_again(
    spark: SparkSession, limits: Path, tmp_path: Path, table: Table
):
    """It is killed while it writes the table."""
    first, second = (written(tmp_path, range(hour, hour + 1)) for hour in (0, 1))
    out, whole = tmp_path / "out", tmp_path / "whole"
    run(spark, limits, written(tmp_path, range(2)), whole, "c1")
    run(spark, limits, first, out, "c1")
    before = {each: rows(out, each) for each in DAYS}
    written_before = {*(out / table.name).rglob("*")}
    command = [sys.executable, "-m", "app.pipeline.main", "run", "--format", "csv"]
    options = ["--input", second, "--quotas", limits, "--out", out, "--cluster", "c1"]
    with (tmp_path / "log").open("wb") as log:
        killed = subprocess.Popen(
            [*command, *map(str, options), "--master", "local[1]"],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        folder = out / table.name
        wait_until(
            lambda: {*folder.rglob("*")} != written_before or killed.poll() is not None,
            within_s=DEADLINE_S,
        )
        assert killed.poll() is None, (tmp_path / "log").read_text()
    finally:
        for process in processes_of(killed.pid):
            os.kill(process, signal.SIGKILL)
        killed.wait()
    for each in DAYS:
        assert rows(out, each) in (before[each], rows(whole, each)), each.name
    run(spark, limits, second, out, "c1")
    for each in (*FACTS, *DAYS):
        assert rows(out, each) == rows(whole, each) != [], each.name
    for each in DAYS:
        assert len([*(out / each.name).rglob(f"{REVISION}=*")]) == 1


def test_the_newest_whole_hours_are_taken_alone(
    spark_command: Command, limits: Path, tmp_path: Path
):
    source, out = written(tmp_path, range(2)), tmp_path / "out"
    options = ("--format", "csv", "--quotas", limits, "--out", out, "--cluster", "c1")

    def hours(*chosen: str | Path) -> list[int]:
        done = spark_command("run", *options, "--json", *chosen)
        assert done.returncode == 0, done.stderr
        return sorted({row["hour"] for row in rows(out, RATE_MINUTE)})

    assert hours("--input", source, "--last", "1h") == [1]
    assert hours("--input", source, "--since-last") == [1]
    more = written(tmp_path, range(2, 4))
    with more.open("a") as target:
        target.write(f"{at(241).isoformat()},1,byte_rate,Produce,alice,app-1,1\n")
    assert hours("--input", source, "--input", more, "--since-last") == [1, 2, 3]


def test_a_clock_that_is_ahead_makes_no_hour_whole(spark: SparkSession, tmp_path: Path):
    source, out = written(tmp_path, range(2)), tmp_path / "out"
    with source.open("a") as target:
        # Two hours ahead of now; then a late point.
        for time in (datetime.now(UTC) + timedelta(hours=2), at(3)):
            target.write(f"{time.isoformat()},1,byte_rate,Produce,alice,app-1,1\n")
    for option, since in (("--since-last", None), ("--last=1h", at(60).replace(tzinfo=UTC))):
        job = job_of(spark, "csv", source, out, option, name="run")
        assert job.options.command._choose_hours(job, Rules(), job.lake())
        assert (job.options.since, job.options.until) == (since, at(120).replace(tzinfo=UTC))


def test_an_hour_of_the_future_in_the_tables_holds_up_no_later_run(
    spark: SparkSession, tmp_path: Path
):
    source, out = written(tmp_path, range(2)), tmp_path / "out"
    ahead = datetime.now(UTC) + timedelta(hours=2)
    for dt, hour in ((f"{at(0):%Y-%m-%d}", 0), (f"{ahead:%Y-%m-%d}", ahead.hour)):
        (out / SERIES.name / "cluster_id=c1" / f"dt={dt}" / f"hour={hour}").mkdir(parents=True)
    for folder in (out / SERIES.name).rglob("hour=*"):
        (folder / "part-0.parquet").touch()
    job = job_of(spark, "csv", source, out, "--since-last", "--cluster=c1", name="run")
    assert job.options.command._choose_hours(job, Rules(), job.lake())
    assert job.options.since == at(60).replace(tzinfo=UTC)


def test_files_of_other_hours_are_not_even_opened(
    spark_command: Command, limits: Path, tmp_path: Path
):
    files, name = CollectedFiles(tmp_path, "c1"), ("producer_byte_rate", "Produce", "alice", "etl")
    for number in (*range(60, 120), 179):
        files.add([Scrape(at(number).replace(tzinfo=UTC).timestamp(), 1, [Sample(*name, 1.0)])])
        files.write()
    for file in (tmp_path / "collected").glob("hour-20261120T01-*"):
        file.write_bytes(b"not even a footer")
    options = ("--input", tmp_path, "--quotas", limits, "--out", tmp_path / "out", "--json")
    done = spark_command("run", "--format", "collect", "--last", "1h", *options)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["rows_in"], report["quarantined"]) == (2, 0)
    assert {row["hour"] for row in rows(tmp_path / "out", RATE_MINUTE)} == {2}


@pytest.mark.parametrize("hours", ["0h", "1", "h", "1w", "1.5h"])
def test_a_wrong_number_of_hours_is_named(hours: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["run", f"--last={hours}"])
    assert ended.value.code == 2
    assert "is not a number of hours or days such as 1h or 1d" in capsys.readouterr().err


@contextmanager
def of_production(spark: SparkSession) -> Iterator[None]:
    """Let Spark plan as it does for `quota-pipeline`: the tests' settings are for ten rows."""
    settings = {
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.shuffle.partitions": f"{16 * spark.sparkContext.defaultParallelism}",
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            spark.conf.set(name, str(former))


@pytest.mark.small
def test_a_chain_of_20_000_minutes_gives_them_back(
    spark: SparkSession, spark_command: Command, tmp_path: Path
):
    plan = Plan(3, 20_000, 200, "made-up", datetime(2026, 1, 1, tzinfo=UTC))
    lake = Lake(spark, str(tmp_path))
    lake.write(quotas(spark, plan), QUOTA_VERSION)
    lake.write(observations(spark, plan), OBSERVATION_MINUTE)
    made_up = lake.read(OBSERVATION_MINUTE)
    write_shape("parquet", made_up, str(tmp_path))
    options = ("--input", tmp_path / "parquet", "--quotas", tmp_path, "--out", tmp_path / "out")
    named = ("--cluster", plan.cluster, "--json")
    with of_production(spark):
        done = spark_command("run", "--format", "parquet", *options, *named)
    assert done.returncode == 0, done.stderr
    found = observation_minutes([Lake(spark, str(tmp_path / "out"))], Scope())
    provenance = ("source", "ingest_run_id")

    def by_row(frame: Any) -> list[Row]:
        return sorted(frame.drop(*provenance).collect(), key=str)

    assert by_row(found) == by_row(made_up)
    report = json.loads(done.stdout)
    daily = read_arrow(tmp_path / "out", UTILIZATION_DAILY).to_pylist()
    minutes = sum(row["minutes_present"] for row in daily if row["broker_id"] is not None)
    pooled = sum(sum(row["hist_n"]) for row in daily if row["broker_id"] is None)
    assert minutes == pooled == report["steps"]["utilization"]["rows_in"]
    assert report["findings"] > 0


def test_the_first_run_of_a_server_takes_its_newest_hour(spark: SparkSession, tmp_path: Path):
    source = "http://127.0.0.1:1"
    job = job_of(spark, "prometheus", source, tmp_path / "out", "--since-last", name="run")
    assert job.options.command._choose_hours(job, Rules(), job.lake())
    assert job.options.until - job.options.since == timedelta(hours=1)
    assert (job.options.until.minute, job.options.until.second) == (0, 0)
