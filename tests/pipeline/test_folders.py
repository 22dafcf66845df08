"""Results are replaced by whole partitions, all at once or not at all."""

import threading
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from app.pipeline.arrow_storage import arrow_schema, write_arrow
from app.pipeline.errors import UsageError
from app.pipeline.folders import RunFolder, finish_publication, local_folder, write_table
from app.pipeline.lake import Lake, schema_of
from app.pipeline.tables import QUOTA_VERSION, TABLES, UTILIZATION_HIST, Table

CLUSTER = "a/b=c%"
DEADLINE_S = 30


def bins(spark: SparkSession, *rows: tuple[int, int]) -> DataFrame:
    """Return one count for each (day of November, bin)."""
    days = [(CLUSTER, date(2026, 11, day), 1, "k", 7, item, 1) for day, item in rows]
    return spark.createDataFrame(days, schema_of(UTILIZATION_HIST))


def publish(frame: DataFrame, folder: Path, run_id: str, *replaces: str) -> None:
    run = RunFolder(folder, run_id)
    partitions = [{"cluster_id": CLUSTER, "dt": day} for day in replaces]
    write_table(frame, UTILIZATION_HIST, run, replaces=partitions)
    run.publish()


def stored(spark: SparkSession, folder: Path) -> set[tuple[str, int, int]]:
    rows = Lake(spark, str(folder)).read(UTILIZATION_HIST).collect()
    return {(row.cluster_id, row.dt.day, row.bin) for row in rows}


def test_a_run_replaces_its_days_and_no_other(spark: SparkSession, tmp_path: Path):
    publish(bins(spark, (1, 10), (2, 20)), tmp_path, "first")
    publish(bins(spark, (2, 21), (3, 30)), tmp_path, "second")
    assert stored(spark, tmp_path) == {(CLUSTER, 1, 10), (CLUSTER, 2, 21), (CLUSTER, 3, 30)}


def test_a_day_that_a_run_is_about_and_finds_empty_ends_empty(spark: SparkSession, tmp_path: Path):
    publish(bins(spark, (1, 10), (2, 20)), tmp_path, "first")
    publish(bins(spark, (1, 11)), tmp_path, "second", "2026-11-01", "2026-11-02")
    assert stored(spark, tmp_path) == {(CLUSTER, 1, 11)}


def test_nothing_changes_before_the_publication(spark: SparkSession, tmp_path: Path):
    publish(bins(spark, (1, 10)), tmp_path, "first")
    run = RunFolder(tmp_path, "second")
    write_table(bins(spark, (1, 11)), UTILIZATION_HIST, run)
    assert stored(spark, tmp_path) == {(CLUSTER, 1, 10)}
    run.discard()
    assert stored(spark, tmp_path) == {(CLUSTER, 1, 10)}


def test_runs_of_one_folder_take_turns(spark: SparkSession, tmp_path: Path):
    first = RunFolder(tmp_path, "same")
    write_table(bins(spark, (1, 10)), UTILIZATION_HIST, first)
    waiting = threading.Event()

    def run_again() -> None:
        run = RunFolder(tmp_path, "same", lambda _line: waiting.set())
        write_table(bins(spark, (1, 11)), UTILIZATION_HIST, run)
        run.publish()

    second = threading.Thread(target=run_again, daemon=True)
    second.start()
    assert waiting.wait(DEADLINE_S)
    first.publish()
    assert stored(spark, tmp_path) == {(CLUSTER, 1, 10)}
    first.discard()
    del first
    second.join(DEADLINE_S)
    assert stored(spark, tmp_path) == {(CLUSTER, 1, 11)}


def test_what_killed_runs_left_aside_is_forgotten(spark: SparkSession, tmp_path: Path):
    run = RunFolder(tmp_path, "killed")
    write_table(bins(spark, (1, 10)), UTILIZATION_HIST, run)
    del run
    following = RunFolder(tmp_path, "next")
    assert not list(tmp_path.rglob("*.parquet"))
    following.discard()
    RunFolder(tmp_path, "one more").discard()


def test_a_publication_that_was_cut_off_can_be_finished(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    publish(bins(spark, (1, 10), (2, 20)), tmp_path, "first")
    run = RunFolder(tmp_path, "second")
    write_table(bins(spark, (1, 11), (2, 21)), UTILIZATION_HIST, run)
    moved: list[Path] = []
    rename = Path.rename

    def cut_off(self: Path, target: Path) -> Path:
        if moved:
            raise KeyboardInterrupt
        moved.append(self)
        return rename(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", cut_off)
        with pytest.raises(KeyboardInterrupt):
            run.publish()
    finish_publication(tmp_path)
    assert stored(spark, tmp_path) == {(CLUSTER, 1, 11), (CLUSTER, 2, 21)}
    assert not list((tmp_path / "_runs").iterdir())


def test_a_table_of_no_rows_can_be_read(spark: SparkSession, tmp_path: Path):
    publish(bins(spark), tmp_path, "first")
    assert stored(spark, tmp_path) == set()


def test_what_is_written_without_spark_reads_the_same(spark: SparkSession, tmp_path: Path):
    at = datetime.fromisoformat("2026-11-21T01:02:03.456789")
    row = (CLUSTER, "alice", False, "", False, "key", 1.5, at, None, "audit", 7, "0192")
    rows = pa.Table.from_pylist(
        [dict(zip(arrow_schema(QUOTA_VERSION).names, row, strict=True))],
        schema=arrow_schema(QUOTA_VERSION),
    )
    run = RunFolder(tmp_path, "one")
    write_arrow(rows, QUOTA_VERSION, run)
    run.publish()
    assert [tuple(item) for item in Lake(spark, str(tmp_path)).read(QUOTA_VERSION).collect()] == [
        row
    ]


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_both_writers_know_the_same_columns(table: Table):
    assert arrow_schema(table).names == schema_of(table).fieldNames()
    assert set(table.order) | set(table.partitions) | set(table.key) <= set(
        schema_of(table).fieldNames()
    )


def test_a_missing_table_is_named(spark: SparkSession, tmp_path: Path):
    with pytest.raises(UsageError, match=r"^There is no table utilization_hist in .+\.$"):
        Lake(spark, str(tmp_path)).read(UTILIZATION_HIST)


def test_a_folder_that_cannot_be_mounted_is_refused():
    assert local_folder("file:///data/a%20b") == Path("/data/a b")
    with pytest.raises(UsageError, match="mount it"):
        local_folder("s3a://bucket/data")
