"""A write replaces whole partitions, and what is read and written may be one table."""

import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.folder_writer import write_here
from app.pipeline.folders import SPARK_ERRORS
from app.pipeline.lake import Lake, partitions_of, read_all, read_first, schema_of
from app.pipeline.results import Scope
from app.pipeline.tables import (
    DQ_RESULT,
    QUARANTINE,
    REVISION,
    TABLES,
    UTILIZATION_DAILY,
    UTILIZATION_HIST,
    Table,
)
from tests.testkit.bucket_worlds import frame
from tests.testkit.sizes import size

CLUSTER = "a/b=c%{é *"


def bins(spark: SparkSession, *rows: tuple[int, int]) -> DataFrame:
    """Return one count for each (day of November, bin)."""
    days = [(CLUSTER, date(2026, 11, day), 1, "k", 7, item, 1) for day, item in rows]
    return spark.createDataFrame(days, schema_of(UTILIZATION_HIST))


def days(*numbers: int) -> list[dict[str, str]]:
    return [{"cluster_id": CLUSTER, "dt": f"2026-11-{day:02}"} for day in numbers]


def stored(lake: Lake) -> set[tuple[str, int, int]]:
    rows = lake.read(UTILIZATION_HIST).collect()
    return {(row.cluster_id, row.dt.day, row.bin) for row in rows}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark write folders, as those that are not of this machine."""
    monkeypatch.setattr("app.pipeline.lake.folder_of_tasks", lambda *_: None)


@pytest.fixture(params=["here", "elsewhere"])
def lake(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    """Return one whose folders the tasks write themselves, or Spark does."""
    if request.param == "elsewhere":
        request.getfixturevalue("elsewhere")
    return Lake(spark, f"{tmp_path / 'a b'}/")


@pytest.mark.small
def test_a_write_replaces_its_partitions_and_no_other(spark: SparkSession, lake: Lake):
    assert lake.write(bins(spark, (1, 10), (2, 20)), UTILIZATION_HIST) == 2
    assert lake.write(bins(spark, (2, 21), (2, 22), (3, 30)), UTILIZATION_HIST) == 3
    rows = {(1, 10), (2, 21), (2, 22), (3, 30)}
    assert stored(lake) == {(CLUSTER, *row) for row in rows}
    assert lake.partitions(UTILIZATION_HIST) == days(1, 2, 3)


def test_a_partition_that_a_run_is_about_and_finds_empty_ends_empty(
    spark: SparkSession, lake: Lake
):
    lake.write(bins(spark, (1, 10), (2, 20), (3, 30)), UTILIZATION_HIST)
    assert lake.write(bins(spark, (1, 11)), UTILIZATION_HIST, days(1, 2, 4)) == 1
    assert stored(lake) == {(CLUSTER, 1, 11), (CLUSTER, 3, 30)}
    assert lake.write(bins(spark), UTILIZATION_HIST, days(1, 2)) == 0
    assert stored(lake) == {(CLUSTER, 3, 30)}


def test_rows_may_be_read_from_the_partitions_that_they_replace(spark: SparkSession, lake: Lake):
    lake.write(bins(spark, (1, 10), (2, 20)), UTILIZATION_HIST)
    more = lake.read(UTILIZATION_HIST).withColumn("bin", sf.col("bin") + 1)
    lake.write(more.where("bin > 11"), UTILIZATION_HIST, days(1, 2))
    assert stored(lake) == {(CLUSTER, 2, 21)}


def test_a_partition_is_read_without_a_look_at_the_others(spark: SparkSession, lake: Lake):
    lake.write(bins(spark, (1, 10), (2, 20)), UTILIZATION_HIST)
    (other,) = Path(lake.name).rglob("dt=2026-11-01/*.parquet")
    other.write_bytes(b"no Parquet")
    found = lake.read_in(UTILIZATION_HIST, days(2)).collect()
    assert [(row.cluster_id, row.bin) for row in found] == [(CLUSTER, 20)]
    assert lake.read_in(UTILIZATION_HIST, days(9)).collect() == []
    assert lake.read_in(QUARANTINE, days(2)).collect() == []


def test_hours_are_partitions_too(spark: SparkSession, lake: Lake):
    hours = [{**day, "hour": hour} for day in days(1, 2) for hour in ("9", "10")]
    rows = [
        (CLUSTER, date(2026, 11, day), hour, "rows", 1.0, 0.0, True, "")
        for day in (1, 2)
        for hour in (9, 10)
    ]
    lake.write(spark.createDataFrame(rows, schema_of(DQ_RESULT)), DQ_RESULT)
    assert lake.partitions(DQ_RESULT) == hours
    assert lake.partitions(DQ_RESULT, hours[1:2]) == hours[1:2]
    ten = {name: hours[1][name] for name in ("dt", "hour")}
    assert lake.partitions(DQ_RESULT, [ten]) == hours[1:2], "of any cluster"
    assert lake.partitions(DQ_RESULT, [{"cluster_id": CLUSTER}]) == hours
    assert lake.partitions(DQ_RESULT, [{"cluster_id": "another"}]) == []
    lake.write(spark.createDataFrame(rows[:1], schema_of(DQ_RESULT)), DQ_RESULT, hours[:2])
    assert [(row.dt.day, row.hour) for row in lake.read_in(DQ_RESULT, days(1)).collect()] == [
        (1, 9)
    ]
    assert len(lake.read_in(DQ_RESULT, [{"cluster_id": CLUSTER}]).collect()) == 3
    assert lake.read_in(DQ_RESULT, [hours[0], hours[3]]).count() == 2


def test_hours_that_are_not_asked_for_are_not_listed(spark: SparkSession, lake: Lake):
    rows = [(CLUSTER, date(2026, 11, 1), hour, "rows", 1.0, 0.0, True, "") for hour in range(3)]
    lake.write(spark.createDataFrame(rows, schema_of(DQ_RESULT)), DQ_RESULT)
    (other,) = Path(lake.name).rglob("hour=0/*.parquet")
    other.parent.rename(other.parent.with_name("hour=no number"))
    for cluster in (CLUSTER, None):
        scope = Scope(cluster, *(datetime(2026, 11, 1, hour, tzinfo=UTC) for hour in (1, 2)))
        assert scope.hours([lake], DQ_RESULT) == [{**days(1)[0], "hour": "1"}]


def peaks(spark: SparkSession, *rows: tuple[int, float]) -> DataFrame:
    """Return a row for each (day of November, peak), of a table with revisions."""
    found = [
        {"cluster_id": CLUSTER, "dt": date(2026, 11, day), "key": "k", "bucket_id": 7, "peak": peak}
        for day, peak in rows
    ]
    return frame(spark, UTILIZATION_DAILY, found)


def stored_peaks(lake: Lake, *numbers: int) -> set[tuple[int, float]]:
    rows = lake.read_in(UTILIZATION_DAILY, days(*numbers)) if numbers else None
    rows = lake.read(UTILIZATION_DAILY) if rows is None else rows
    return {(row.dt.day, row.peak) for row in rows.collect()}


def revisions(lake: Lake) -> list[int]:
    """Return of how many revisions there are files, by day."""
    folders = Path(lake.name, UTILIZATION_DAILY.name).rglob("revision=*")
    by_day = Counter(folder.parent.name for folder in folders)
    return [by_day[day] for day in sorted(by_day)]


@pytest.mark.small
def test_a_day_is_of_the_newest_revision(spark: SparkSession, lake: Lake, tmp_path: Path):
    """As where a run was killed once it had written, and before it removed what was there."""
    lake.write(peaks(spark, (1, 1.0), (2, 2.0)), UTILIZATION_DAILY)
    table = Path(lake.name, UTILIZATION_DAILY.name)
    copytree(table, tmp_path / "former")
    lake.write(peaks(spark, (1, 1.5)), UTILIZATION_DAILY, days(1, 2))
    assert revisions(lake) == [1, 1]
    copytree(tmp_path / "former", table, dirs_exist_ok=True)
    assert revisions(lake) == [2, 2]
    assert stored_peaks(lake) == {(1, 1.5)}
    assert stored_peaks(lake, 1, 2) == {(1, 1.5)}
    assert lake.partitions(UTILIZATION_DAILY) == days(1, 2)
    lake.write(peaks(spark, (2, 2.5)), UTILIZATION_DAILY, days(2))
    assert revisions(lake) == [2, 1]
    assert stored_peaks(lake) == {(1, 1.5), (2, 2.5)}


def test_a_revision_that_is_named_first_is_older(spark: SparkSession, lake: Lake):
    """Of two runs at once that which listed the hours first may lack those of the other."""
    first, second = (lake.next_revision(UTILIZATION_DAILY, days(1)) for _ in range(2))
    for peak, revision in ((2.0, second), (1.0, first)):
        lake.write(peaks(spark, (1, peak)), UTILIZATION_DAILY, days(1), revision=revision)
    assert stored_peaks(lake) == {(1, 2.0)}
    assert revisions(lake) == [2]


def test_a_revision_is_newer_than_those_of_a_clock_that_is_fast(spark: SparkSession, lake: Lake):
    fast = "29991231T235959999999Z-other"
    lake.write(peaks(spark, (1, 1.0)), UTILIZATION_DAILY, days(1), revision=fast)
    lake.write(peaks(spark, (1, 2.0)), UTILIZATION_DAILY)
    assert stored_peaks(lake) == {(1, 2.0)}
    assert revisions(lake) == [1]


def test_a_day_without_rows_hides_what_others_still_write(spark: SparkSession, lake: Lake):
    lake.write(peaks(spark, (1, 1.0)), UTILIZATION_DAILY)
    assert lake.write(peaks(spark), UTILIZATION_DAILY, days(1, 2)) == 0
    assert stored_peaks(lake) == set()
    assert revisions(lake) == [1], "of a day that never had rows there is nothing"


def test_runs_that_write_a_day_at_once_share_no_folder(spark: SparkSession, lake: Lake):
    numbers = range(4)

    def write(number: int) -> int:
        return lake.write(peaks(spark, (1, number), (2, number)), UTILIZATION_DAILY)

    with ThreadPoolExecutor(len(numbers)) as pool:
        assert list(pool.map(write, numbers)) == [2] * len(numbers)
    found = stored_peaks(lake)
    assert sorted(day for day, _ in found) == [1, 2]
    assert {peak for _, peak in found} <= set(numbers)
    assert len(lake.partitions(UTILIZATION_DAILY)) == 2
    assert lake.write(peaks(spark, (1, 9.0), (2, 9.0)), UTILIZATION_DAILY) == 2
    assert revisions(lake) == [1, 1], "the next run removes what was left"


def test_a_table_of_an_earlier_version_is_named(spark: SparkSession, lake: Lake):
    rows = peaks(spark, (1, 1.0))
    rows.write.partitionBy(*UTILIZATION_DAILY.partitions).parquet(lake.address(UTILIZATION_DAILY))
    lake.write(peaks(spark, (2, 2.0)), UTILIZATION_DAILY)
    with pytest.raises(UsageError, match="folders of an earlier version: name another --out"):
        stored_peaks(lake)


def test_a_table_of_no_rows_is_a_table(spark: SparkSession, lake: Lake):
    assert not lake.has(UTILIZATION_HIST)
    lake.write(bins(spark), UTILIZATION_HIST)
    assert lake.has(UTILIZATION_HIST)
    assert stored(lake) == set()
    assert lake.partitions(UTILIZATION_HIST) == []


def test_a_path_and_a_uri_name_the_same_tables(spark: SparkSession, tmp_path: Path):
    Lake(spark, tmp_path.as_uri()).write(bins(spark, (1, 10)), UTILIZATION_HIST)
    path, uri = Lake(spark, str(tmp_path)), Lake(spark, tmp_path.as_uri())
    assert stored(path) == stored(uri) == {(CLUSTER, 1, 10)}
    assert len(read_all([path, uri], UTILIZATION_HIST).collect()) == 2
    assert len(read_first([path, uri], UTILIZATION_HIST, days(1)).collect()) == 1
    assert partitions_of([path, uri], UTILIZATION_HIST) == days(1)


def test_a_missing_table_is_named(lake: Lake):
    with pytest.raises(UsageError, match=r"^There is no table utilization_hist in .+\.$"):
        lake.read(UTILIZATION_HIST)
    with pytest.raises(UsageError, match="in any --input"):
        read_all([], UTILIZATION_HIST)


@pytest.mark.small
@pytest.mark.usefixtures("elsewhere")
def test_rows_that_are_not_where_they_are_read_are_no_success(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    """As on workers whose disks are their own: each wrote, and the driver sees nothing."""
    monkeypatch.setattr(lake, "_folders", lambda table, _within: lake.nothing(table))
    with pytest.raises(InfrastructureError, match=r"2 rows .+ were written and 0 are in") as failed:
        lake.write(bins(spark, (1, 10), (2, 20)), UTILIZATION_HIST)
    assert failed.value.exit_code == 5


def test_a_reader_finds_a_partition_while_it_is_replaced(tmp_path: Path):
    columns = StructType().add("cluster_id", "string").add("n", "integer")
    table = Table("rows", "", ("cluster_id",), ("n",))
    rows = pa.table({"cluster_id": ["c"], "n": pa.array([1], pa.int32())})
    folder, done = tmp_path / "rows", threading.Event()
    write_here(rows, columns, table, folder, "")

    def look() -> list[bool]:
        found = []
        while not done.is_set():
            found.append((folder / "cluster_id=c").exists())
        return found

    with ThreadPoolExecutor() as pool:
        looks = pool.submit(look)
        for _ in range(300):
            write_here(rows, columns, table, folder, "")
        done.set()
        assert looks.result() == [True] * len(looks.result())
    assert len([*folder.rglob("part-*")]) == 1


@pytest.mark.parametrize("is_lost", [False, True], ids=["all there", "a day lost"])
@pytest.mark.small
@pytest.mark.usefixtures("elsewhere")
def test_a_day_that_a_newer_run_has_replaced_is_not_lost(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, is_lost: bool
):
    """The newer run writes the first day and removes this revision before its rows are counted."""
    own, count = lake.next_revision(UTILIZATION_DAILY, days(1, 2)), lake._found

    def count_late(*arguments: Any) -> Mapping[tuple[str, ...], int]:
        Lake(spark, lake.name).write(peaks(spark, (1, 9.0)), UTILIZATION_DAILY)
        assert revisions(lake) == [1, 1]
        if is_lost:
            (lost,) = Path(lake.name).rglob(f"dt=2026-11-02/{REVISION}={own}")
            rmtree(lost)
        return count(*arguments)

    monkeypatch.setattr(lake, "_found", count_late)
    rows = peaks(spark, (1, 1.0), (2, 2.0), (2, 3.0))
    write = partial(lake.write, rows, UTILIZATION_DAILY, days(1, 2), revision=own)
    if is_lost:
        with pytest.raises(InfrastructureError, match=r"3 rows .+ were written and 0 are in"):
            write()
    else:
        assert write() == 3
        assert stored_peaks(lake) == {(1, 9.0), (2, 2.0), (2, 3.0)}


def test_both_writers_name_folders_and_write_files_alike(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = spark.createDataFrame(
        [("\x01\x7f\"#%'*/:=?\\{[]^} é<>|", 3, 7, ["a", None], None), ("b", 4, None, [], 2.5)],
        "cluster_id string, run_id tinyint, n int, names array<string>, rate double",
    )
    table = Table("rows", "", ("cluster_id", "run_id"), ("n",))
    here, there = tmp_path / "here" / table.name, tmp_path / "there" / table.name
    assert sum(write_here(rows, rows.schema, table, here, "").values()) == 2
    rows.write.partitionBy(*table.partitions).parquet(str(there))
    folders = [
        sorted(str(file.parent.relative_to(of)) for file in of.rglob("part-*"))
        for of in (here, there)
    ]
    assert folders[0] == folders[1]
    reader = spark.read.schema(rows.schema)
    found = [reader.parquet(str(of)).select(*rows.columns).collect() for of in (here, there)]
    assert sorted(found[0], key=str) == sorted(found[1], key=str) == sorted(rows.collect(), key=str)
    schemas = [pq.read_schema(next(of.rglob("part-*"))).remove_metadata() for of in (here, there)]
    assert schemas[0] == schemas[1]
    assert not list(here.glob("_*")), "what was staged is gone"


def test_a_write_that_fails_leaves_the_former_rows(spark: SparkSession, lake: Lake):
    lake.write(bins(spark, (1, 10)), UTILIZATION_HIST)
    late = sf.when(sf.col("bin") < 99, sf.col("bin")).otherwise(sf.raise_error(sf.lit("broken")))
    with pytest.raises(SPARK_ERRORS, match="broken"):
        lake.write(bins(spark, (1, 11), (2, 99)).withColumn("bin", late), UTILIZATION_HIST)
    assert stored(lake) == {(CLUSTER, 1, 10)}


def test_a_catalog_says_which_tables_it_has(spark: SparkSession):
    catalog = Lake(spark, "spark_catalog.default", catalog=True)
    assert not catalog.has(UTILIZATION_HIST)
    with pytest.raises(UsageError, match=r"in spark_catalog\.default"):
        catalog.read(UTILIZATION_HIST)


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_a_table_is_laid_out_by_columns_that_it_has(table: Table):
    columns = {*table.order, *table.partitions}
    assert columns <= set(schema_of(table).fieldNames())


def test_a_row_group_ends_after_a_million_rows(spark: SparkSession, tmp_path: Path):
    rows = spark.range(0, size(1_000_001, 2_100_000), 1, 1).selectExpr("'the same name' as name")
    rows.write.parquet(str(tmp_path / "rows"))
    (file,) = (tmp_path / "rows").glob("part-*.parquet")
    footer = pq.read_metadata(file)
    sizes = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    assert sizes == size([1_000_000, 1], [1_000_000, 1_000_000, 100_000])
