"""Small worlds of buckets, and the tables of the pipeline without Spark: in this process."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy
from pyspark.sql import DataFrame, SparkSession

from app.pipeline.lake import Lake
from app.pipeline.tables import (
    BUCKET_HOUR,
    RATE_MINUTE,
    REVISION,
    SERIES,
    SERIES_LIMIT,
    Table,
)
from app.pipeline.usage import buckets

DAY = datetime(2026, 11, 20, tzinfo=UTC)
Row = dict[str, Any]

ALICE = {
    "quota_user": "alice",
    "quota_user_default": False,
    "quota_client_id": "",
    "quota_client_default": False,
}
"""The entity of a limit."""


def at(minute: int) -> datetime:
    """Return a minute counted from the first day's midnight."""
    return DAY + timedelta(minutes=minute)


def minute(number: int, **columns: Any) -> Row:
    """Return a row of ``bucket_minute``, a quiet minute unless the arguments say otherwise."""
    rate = columns.get("rate_max", 10.0)
    row: Row = {
        "cluster_id": "c1",
        "dt": at(number).date(),
        "ts": at(number),
        "broker_id": 1,
        "key": "producer_byte_rate",
        "bucket_id": 7,
        "rate_avg": rate,
        "rate_max": rate,
        "throttle_ms_avg": None,
        "throttle_ms_max": None,
        "bytes_est": round(rate * 60),
        "limit": 100.0,
        "level": 3,
        "contributors": 1,
    }
    return row | columns


def bucket(**columns: Any) -> Row:
    """Return a row of ``dim_bucket``, the user alice's unless the arguments say otherwise."""
    row: Row = {
        "cluster_id": "c1",
        "dt": DAY.date(),
        "hour": 0,
        "bucket_id": 7,
        "key": "producer_byte_rate",
        "level": 3,
        "bucket_user": "alice",
        "bucket_client": "",
        **ALICE,
        "first_seen": DAY,
        "last_seen": DAY,
    }
    return row | columns


def observation(number: int, user: str, client_id: str, rate: float, **columns: Any) -> Row:
    """Return a row of ``observation_minute`` of one user and client-id."""
    row: Row = {
        "cluster_id": "c1",
        "dt": at(number).date(),
        "ts": at(number),
        "broker_id": 1,
        "key": "producer_byte_rate",
        "user": user,
        "client_id": client_id,
        "grain": "pair",
        "rate_avg": rate,
        "rate_max": rate,
        "samples": 2,
        "bytes_est": round(rate * 60),
        "source": "csv",
        "ingest_run_id": "r",
    }
    return row | columns


def version(key: str, value: float) -> Row:
    """Return a row of ``quota_version``, alice's from the first day on."""
    entity = {"user": "alice", "user_default": False, "client_id": "", "client_default": False}
    held = {"value": value, "valid_from": DAY, "valid_to": None, "origin": "snapshot"}
    return {"cluster_id": "c1", "key": key, **entity, **held}


_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "tinyint": pa.int8(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
}


def arrow_schema(table: Table) -> pa.Schema:
    fields = (column.split(maxsplit=1) for column in _items(table.ddl))
    return pa.schema([(name, _arrow_type(kind)) for name, kind in fields])


def _items(text: str) -> list[str]:
    """Cut at the commas that stand in no brackets."""
    items, depth = [""], 0
    for each in text.replace("\n", " "):
        depth += (each == "<") - (each == ">")
        if each == "," and not depth:
            items.append("")
        else:
            items[-1] += each
    return [item.strip() for item in items]


def _arrow_type(kind: str) -> pa.DataType:
    outer, _, inner = kind.strip().removesuffix(">").partition("<")
    if outer == "array":
        return pa.list_(_arrow_type(inner))
    if outer == "struct":
        fields = (item.split(":") for item in _items(inner))
        return pa.struct([(name.strip(), _arrow_type(each)) for name, each in fields])
    return _TYPES[outer]


def read_arrow(folder: Path, table: Table) -> pa.Table:
    """Return the rows of a table below a folder, in the order of its files.

    Of a table with revisions those of the newest of each day.
    """
    from pyarrow.dataset import dataset, partitioning  # noqa: PLC0415 - brings pandas along

    schema, base = arrow_schema(table), folder / table.name
    levels = folders_of(table)
    kinds = pa.schema([(name, pa.string()) for name in levels])
    flavor = partitioning(kinds, flavor="hive") if levels else None
    rows = [
        dataset([str(file)], format="parquet", partitioning=flavor, partition_base_dir=str(base))
        .to_table()
        .select(schema.names)
        .cast(schema)
        for file in sorted(base.rglob("*.parquet"))
        # What a run that was killed has staged counts as little as it does for Spark.
        if not any(level.startswith("_") for level in file.relative_to(base).parts)
        if not table.has_revisions or file.parent == max(file.parent.parent.glob(f"{REVISION}=*"))
    ]
    return pa.concat_tables(rows) if rows else schema.empty_table()


def folders_of(table: Table) -> list[str]:
    """Return the levels of folders below a table."""
    return [*table.partitions, *([REVISION] if table.has_revisions else ())]


def write_arrow(rows: pa.Table, table: Table, folder: Path) -> None:
    """Write the rows of a table below a folder, beside those that are there."""
    base = folder / table.name
    base.mkdir(parents=True, exist_ok=True)
    if table.partitions:
        if table.has_revisions:
            rows = rows.append_column(
                REVISION, pa.array(["20260101T000000000000Z-test"] * rows.num_rows)
            )
        pq.write_to_dataset(rows, base, partition_cols=folders_of(table))
    else:
        pq.write_table(rows, base / "part-00000.parquet")


def arrow(table: Table, rows: Iterable[Row]) -> pa.Table:
    """Return rows as a table; columns that a row lacks are null."""
    return pa.Table.from_pylist(list(rows), schema=arrow_schema(table))


def frame(spark: SparkSession, table: Table, rows: Iterable[Row]) -> DataFrame:
    return spark.createDataFrame(arrow(table, rows))


def publish(folder: Path, tables: Mapping[Table, Sequence[Row]]) -> Path:
    """Write tables to a folder as a job would, and return it."""
    for table, rows in tables.items():
        write_arrow(arrow(table, rows), table, folder)
    return folder


def facts_of_minutes(minutes: Iterable[Row]) -> dict[Table, list[Row]]:
    """Return the series, their minutes and limits that make these rows of ``bucket_minute``."""
    series: dict[Any, Row] = {}
    limits: dict[Any, Row] = {}
    rates: list[Row] = []
    for row in minutes:
        owner = (row["cluster_id"], row["key"], row["bucket_id"])
        of_hour = {"cluster_id": row["cluster_id"], "dt": row["ts"].date(), "hour": row["ts"].hour}
        named = {**of_hour, "series_id": series_id_of(*owner)}
        series[owner, row["ts"].replace(minute=0)] = {
            **named,
            "key": row["key"],
            "user": f"{row['bucket_id']}",
            "client_id": "",
            "grain": "bucket",
            "first_seen": row["ts"],
            "last_seen": row["ts"],
        }
        limits[owner, row["ts"]] = {
            **named,
            "valid_from": row["ts"],
            "valid_to": row["ts"] + timedelta(minutes=1),
            **{name: row[name] for name in ("bucket_id", "level", "limit")},
        }
        measured = ("broker_id", "ts", "rate_avg", "rate_max", "throttle_ms_avg", "throttle_ms_max")
        rates.append({**named, **{name: row[name] for name in measured}, "samples": 1})
    return {SERIES: [*series.values()], RATE_MINUTE: rates, SERIES_LIMIT: [*limits.values()]}


def facts_of_observations(observations: Iterable[Row]) -> dict[Table, list[Row]]:
    """Return the series and their minutes of rows of ``observation_minute``."""
    series: dict[Any, Row] = {}
    rates: list[Row] = []
    for row in observations:
        names = {name: row.get(name) or "" for name in ("key", "user", "client_id", "grain")}
        of_hour = {"cluster_id": row["cluster_id"], "dt": row["ts"].date(), "hour": row["ts"].hour}
        named = {**of_hour, "series_id": series_id_of(row["cluster_id"], *names.values())}
        found = series.setdefault(
            tuple(named.values()),
            {
                **named,
                **names,
                "first_seen": row["ts"],
                "last_seen": row["ts"],
                "source": row.get("source"),
                "ingest_run_id": row.get("ingest_run_id"),
            },
        )
        found["first_seen"] = min(found["first_seen"], row["ts"])
        found["last_seen"] = max(found["last_seen"], row["ts"])
        measured = ("broker_id", "ts", "rate_avg", "rate_max", "throttle_ms_avg", "throttle_ms_max")
        rates.append({**named, **{name: row.get(name) for name in measured}})
        rates[-1]["samples"] = row.get("samples", 1)
    return {SERIES: [*series.values()], RATE_MINUTE: rates}


def series_id_of(*names: Any) -> int:
    """Return an id of a series for tests: any number of 63 bits that its names make."""
    digest = hashlib.sha256(repr(names).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def hours_of(minutes: Iterable[Row]) -> pa.Table:
    """Return ``bucket_hour`` of rows of ``bucket_minute``."""
    facts = {table: arrow(table, rows) for table, rows in facts_of_minutes(minutes).items()}
    rates = facts[RATE_MINUTE]
    found = rates.select(RATE_MINUTE.partitions).group_by(RATE_MINUTE.partitions).aggregate([])
    hours = [arrow(BUCKET_HOUR, ())]
    for hour in found.to_pylist():
        same = [pc.field(name) == value for name, value in hour.items()]
        own = (facts[table].filter(same[0] & same[1] & same[2]) for table in _FACTS)
        rows = buckets.hours_of(buckets.sum_members(*own))
        hours.append(rows.select(BUCKET_HOUR.columns).cast(hours[0].schema))
    return pa.concat_tables(hours)


_FACTS = (RATE_MINUTE, SERIES, SERIES_LIMIT)


def write_hours(lake: Lake, minutes: Iterable[Row]) -> None:
    """Write ``bucket_hour`` of rows of ``bucket_minute``."""
    lake.write(hours_of(minutes), BUCKET_HOUR)


def rows_of(result: DataFrame) -> list[Row]:
    """Return the rows of a small result; its times are aware."""
    rows: list[Row] = result.toArrow().to_pylist()
    return rows


def drawn(strategy: SearchStrategy[Any], number: int) -> list[Any]:
    """Draw examples without judging them, so that one Spark job can judge them all."""
    examples: list[Any] = []

    def collect(example: Any) -> None:
        examples.append(example)

    test: Callable[[], None] = settings(
        max_examples=number, database=None, derandomize=True, deadline=None, phases=[Phase.generate]
    )(given(strategy)(collect))
    test()
    return examples
