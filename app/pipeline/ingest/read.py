"""The readers of all formats: DataFrames of what stands in the input, not yet judged."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, reduce
from typing import BinaryIO, Final, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DoubleType, LongType, NumericType, TimestampNTZType, TimestampType

from app.pipeline.errors import PipelineError
from app.pipeline.ingest.inputs import FORMATS, GZIP, FileGroup, Inputs
from app.pipeline.ingest.kafka_topic import read_topics
from app.pipeline.ingest.metric_map import Columns, MetricMap
from app.pipeline.ingest.points import POINTS_DDL, Rules, arrow_udf, judge
from app.pipeline.ingest.prometheus import read_prometheus
from app.pipeline.ingest.rows import (
    END_US,
    FIRST_US,
    ROWS_DDL,
    UNREADABLE,
    Rows,
    number_of,
    time_of,
)
from app.pipeline.ingest.text_files import (
    SeriesLabels,
    read_adapter_lines,
    read_csv,
    read_export_lines,
    read_query_range,
)
from app.pipeline.spark import spark_failures

_STREAMS: Final[Mapping[str, Callable[..., Iterator[pa.RecordBatch]]]] = {
    "prom-json": read_query_range,
    "vm-jsonl": read_export_lines,
    "adapter-json": read_adapter_lines,
}
_LABELS: Final = {"cluster": "cluster_id", "broker": "broker_id"} | {
    name: name for name in ("instance", "metric", "resource", "user", "client_id")
}
_NANOS: Final = 1000
_BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"


def read_points(
    session: SparkSession,
    inputs: Inputs,
    rules: Rules,
    *,
    traced: bool = False,
    is_fine: bool = False,
) -> DataFrame:
    """Return the points of the inputs, judged: the columns of ``POINTS_DDL``.

    Args:
        session: Reads.
        inputs: What.
        rules: How points are judged.
        traced: Whether points of Parquet have their file and row; else the first file of their
            input, which costs less.
        is_fine: Whether points of Parquet that cannot be used are left out, which costs less.
    """
    frames = [
        _read_parquet(session, group, rules, traced=traced, is_fine=is_fine)
        if FORMATS[inputs.kind].parquet
        else _read_text(session, inputs.kind, group, rules)
        for group in inputs.groups
    ]
    if inputs.ranges:
        messages = read_topics(session, inputs.ranges, inputs.settings, rules.map)
        frames.append(_judge_rows(messages, rules))
    if inputs.queries:
        answers = read_prometheus(session, inputs.queries, rules.map)
        frames.append(_judge_rows(answers, rules))
    if inputs.unreadable or not frames:
        frames.append(unreadable_points(session, inputs.unreadable))
    return reduce(DataFrame.unionByName, frames)


@contextmanager
def small_batches(session: SparkSession, kind: str) -> Iterator[None]:
    """Hand the contents of files of text to Python by a few for the block, in which they are read.

    Spark weighs a batch of Arrow for each row then. Where rows are small that takes longer than all
    else, so it is for these alone.
    """
    if FORMATS[kind].parquet or not FORMATS[kind].suffixes:
        yield
        return
    before = session.conf.get(_BATCH_BYTES)
    session.conf.set(_BATCH_BYTES, str(2**26))
    try:
        yield
    finally:
        session.conf.set(_BATCH_BYTES, str(before))


def _read_text(session: SparkSession, kind: str, group: FileGroup, rules: Rules) -> DataFrame:
    paths = [file.path for file in group.files]
    content = session.read.format("binaryFile").load(paths).select("_metadata.file_path", "content")
    numbers = {file.key: file.number for file in group.files}
    task = partial(_parse_files, kind=kind, numbers=numbers, columns=group.columns, names=rules.map)
    return _judge_rows(content.mapInArrow(task, ROWS_DDL), rules)


def _judge_rows(rows: DataFrame, rules: Rules) -> DataFrame:
    return judge(rows, rules, sf.col("text"))


def _parse_files(
    batches: Iterable[pa.RecordBatch],
    *,
    kind: str,
    numbers: Mapping[str, int],
    columns: Columns | None,
    names: MetricMap,
) -> Iterator[pa.RecordBatch]:
    """Read the points of whole files: records and documents span any split of them.

    Args:
        batches: Path and content of each file.
        kind: The format.
        numbers: Of the files, by their paths.
        columns: Which column is what, in a CSV.
        names: Which label is what, in JSON.
    """
    read: Callable[[BinaryIO, Rows], Iterator[pa.RecordBatch]] = (
        partial(_STREAMS[kind], names=SeriesLabels(names))
        if columns is None
        else partial(read_csv, columns=columns)
    )
    for batch in batches:
        for path, item in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            content = item.as_py()
            rows, stream = Rows(numbers[path]), cast("BinaryIO", io.BytesIO(content))
            if content.startswith(GZIP):
                stream = cast("BinaryIO", gzip.GzipFile(fileobj=stream))
            try:
                yield from read(stream, rows)
            except (OSError, EOFError, zlib.error) as error:
                rows.reject(0, UNREADABLE, str(error))
            yield from rows.batches(last=True)


def unreadable_points(session: SparkSession, unreadable: Mapping[int, str]) -> DataFrame:
    """Return a point for each file that cannot be read, which says why.

    Args:
        session: Makes them.
        unreadable: The reasons, by the numbers of the inputs.
    """
    rows = [
        {"file": number, "line": 0, "position": 0, "problem": UNREADABLE, "text": why}
        for number, why in unreadable.items()
    ]
    return session.createDataFrame(rows, POINTS_DDL)


def broken_files(points: DataFrame, inputs: Inputs) -> dict[int, str]:
    """Read those files of Parquet again of which rows are missing, and return why, by number."""
    # What is wrong with a point takes all columns to say, so that all are read.
    found: dict[int, int] = {}
    for row in points.groupBy("file", "problem").agg(sf.count(sf.lit(1)).alias("rows")).collect():
        found[row.file] = found.get(row.file, 0) + row.rows
    broken = {}
    for file in (file for group in inputs.groups for file in group.files):
        if found.get(file.number, 0) < file.rows:
            try:
                with spark_failures():
                    again = points.sparkSession.read.parquet(file.path)
                    again.write.format("noop").mode("overwrite").save()
            except PipelineError as error:
                broken[file.number] = str(error)
    return broken


def _read_parquet(
    session: SparkSession, group: FileGroup, rules: Rules, *, traced: bool, is_fine: bool
) -> DataFrame:
    """Read tidy rows; a line is a row of the file, from 1.

    What is broken within a file is left out, and noticed since rows are missing. Of a period rows
    are missing anyway: then it ends the run.
    """
    columns = group.columns or {}
    reader = session.read.option("ignoreCorruptFiles", str(not rules.has_period).lower())
    read = reader.parquet(*(file.path for file in group.files))
    if rules.has_period and isinstance(read.schema[f"{columns['ts']}"].dataType, TimestampType):
        read = read.where(_is_of_period(read[f"`{columns['ts']}`"], rules))
    headers = sorted({header for header in columns.values() if header is not None})
    source: dict[str | None, str] = {header: f"source {at}" for at, header in enumerate(headers)}
    named = [read[f"`{header}`"].alias(name) for header, name in source.items()]
    if traced:
        numbers = session.createDataFrame(
            [(file.key, file.number) for file in group.files], "path string, file int"
        )
        path = sf.col("_metadata.file_path").alias("path")
        position = sf.col("_metadata.row_index").alias("position")
        rows = read.select(*named, path, position).join(sf.broadcast(numbers), "path")
    else:
        nowhere = sf.lit(0).cast("bigint").alias("position")
        rows = read.select(*named, sf.lit(group.first).alias("file"), nowhere)

    def column(field: str) -> Column | None:
        header = columns.get(field)
        return None if header is None else rows[f"`{source[header]}`"]

    labels = {name: _text(column(field)) for name, field in _LABELS.items()}
    if columns.get("cluster_id") is None:
        labels["cluster"] = sf.lit(group.cluster)
    broker = source.get(columns.get("broker_id"))
    if broker and isinstance(rows.schema[broker].dataType, NumericType):
        # To write each as text and to read it again would take long.
        labels["broker"] = rows[f"`{broker}`"]
    raw = rows.withColumns(
        {
            "line": sf.col("position") + 1,
            "ts": _time(rows, source.get(columns["ts"]), nanos=columns["ts"] in group.nanos),
            "value": _number(rows, source.get(columns["value"])),
            **labels,
        }
    )
    text = sf.to_json(
        sf.struct(*(sf.col(f"`{name}`").alias(str(header)) for header, name in source.items())),
        {"ignoreNullFields": "false"},
    )
    return judge(raw, rules, text, is_fine=is_fine)


def _is_of_period(ts: Column, rules: Rules) -> Column:
    """Tell whether a time is of the period, in a form that leaves out files and row groups."""
    since = FIRST_US if rules.since_us is None else rules.since_us
    until = END_US if rules.until_us is None else rules.until_us
    within = (ts >= sf.timestamp_micros(sf.lit(since))) & (ts < sf.timestamp_micros(sf.lit(until)))
    return within | ts.isNull()


def _text(column: Column | None) -> Column:
    return sf.lit("") if column is None else sf.coalesce(column.cast("string"), sf.lit(""))


def _time(rows: DataFrame, name: str | None, *, nanos: bool) -> Column:
    """Return microseconds of the epoch; without a zone a time is UTC."""
    if name is None:
        return sf.lit(None).cast("bigint")
    kind, column = rows.schema[name].dataType, rows[f"`{name}`"]
    if nanos:
        return sf.expr(f"`{name}` div {_NANOS}")
    if isinstance(kind, TimestampType | TimestampNTZType):
        return sf.unix_micros(column.cast("timestamp"))
    return _read_times(_decoded(column))


def _number(rows: DataFrame, name: str | None) -> Column:
    if name is None:
        return sf.lit(None).cast("double")
    kind, column = rows.schema[name].dataType, rows[f"`{name}`"]
    if isinstance(kind, NumericType):
        return column.cast("double")
    return _read_numbers(_decoded(column))


def _decoded(column: Column) -> Column:
    text = column.cast("string")
    return sf.when(sf.is_valid_utf8(text), text)


@arrow_udf(LongType())
def _read_times(texts: pa.Array) -> pa.Array:
    return pa.array([time_of(text) for text in texts.to_pylist()], pa.int64())


@arrow_udf(DoubleType())
def _read_numbers(texts: pa.Array) -> pa.Array:
    return pa.array([number_of(text) for text in texts.to_pylist()], pa.float64())
