"""The readers of all formats: DataFrames of points that are judged."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, reduce
from typing import BinaryIO, Final, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampType

from app.pipeline.errors import PipelineError
from app.pipeline.ingest.inputs import FORMATS, GZIP, FileGroup, Inputs
from app.pipeline.ingest.kafka_topic import read_topics
from app.pipeline.ingest.metric_map import Columns, MetricMap
from app.pipeline.ingest.points import POINTS_DDL, Rules, judge, without_dictionaries
from app.pipeline.ingest.prometheus import read_prometheus
from app.pipeline.ingest.rows import END_US, FIRST_US, UNREADABLE, Rows
from app.pipeline.ingest.text_files import (
    SeriesLabels,
    read_adapter_lines,
    read_csv,
    read_export_lines,
    read_query_range,
)
from app.pipeline.ingest.texts import Texts
from app.pipeline.ingest.tidy_rows import headers_of, judge_rows, times_of
from app.pipeline.spark import spark_failures

_STREAMS: Final[Mapping[str, Callable[..., Iterator[pa.RecordBatch]]]] = {
    "prom-json": read_query_range,
    "vm-jsonl": read_export_lines,
    "adapter-json": read_adapter_lines,
}
_BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"


def read_points(session: SparkSession, inputs: Inputs, rules: Rules) -> DataFrame:
    """Return the points of the inputs, judged: the columns of ``POINTS_DDL``.

    Args:
        session: Reads.
        inputs: What.
        rules: How points are judged.
    """
    frames = [
        _read_parquet(session, group, rules)
        if FORMATS[inputs.kind].parquet
        else _read_text(session, inputs.kind, group, rules)
        for group in inputs.groups
    ]
    if inputs.ranges:
        messages = read_topics(session, inputs.ranges, inputs.settings, rules.map)
        frames.append(messages.mapInArrow(partial(_judge_batches, rules=rules), POINTS_DDL))
    if inputs.queries:
        answers = read_prometheus(session, inputs.queries, rules.map)
        frames.append(answers.mapInArrow(partial(_judge_batches, rules=rules), POINTS_DDL))
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
    parse = partial(
        _parse_files, kind=kind, numbers=numbers, columns=group.columns, names=rules.map
    )

    def judged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _judge_batches(parse(batches), rules)

    return content.mapInArrow(judged, POINTS_DDL)


def _judge_batches(batches: Iterable[pa.RecordBatch], rules: Rules) -> Iterator[pa.RecordBatch]:
    """Judge batches of the columns of ``ROWS_DDL``."""
    for batch in batches:
        texts = batch.column("text")
        points = judge(pa.Table.from_batches([batch]), rules, lambda at: texts.take(pa.array(at)))  # noqa: B023 - called at once
        yield from without_dictionaries(points).to_batches()


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


def read_times(session: SparkSession, inputs: Inputs, rules: Rules) -> DataFrame:
    """Return the times of the inputs, as the column ``ts`` of ``POINTS_DDL``."""
    if not FORMATS[inputs.kind].parquet:
        return read_points(session, inputs, rules).select("ts")
    frames = [_times_of_parquet(session, group) for group in inputs.groups]
    nothing = session.createDataFrame([], "ts bigint")
    return reduce(DataFrame.unionByName, frames, nothing)


def _times_of_parquet(session: SparkSession, group: FileGroup) -> DataFrame:
    read = session.read.option("ignoreCorruptFiles", "true")
    rows = read.parquet(*(file.path for file in group.files))
    header = (group.columns or {})["ts"]

    def times(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = times_of(pa.Table.from_batches([batch]).rename_columns([f"{header}"]), group)
            yield from pa.table({"ts": found}).to_batches()

    return rows.select(rows[f"`{header}`"].alias("ts")).mapInArrow(times, "ts bigint")


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


def broken_files(
    session: SparkSession, inputs: Inputs, rows_of_file: Mapping[int, int]
) -> dict[int, str]:
    """Read those files of Parquet again of which rows are missing, and return why, by number."""
    broken = {}
    for file in (file for group in inputs.groups for file in group.files):
        if rows_of_file.get(file.number, 0) < file.rows:
            try:
                with spark_failures():
                    again = session.read.parquet(file.path)
                    again.write.format("noop").mode("overwrite").save()
            except PipelineError as error:
                broken[file.number] = str(error)
    return broken


def _read_parquet(session: SparkSession, group: FileGroup, rules: Rules) -> DataFrame:
    """Read tidy rows.

    What is broken within a file is left out, and noticed since rows are missing. Of a period rows
    are missing anyway: then it ends the run.
    """
    columns = group.columns or {}
    reader = session.read.option("ignoreCorruptFiles", str(not rules.has_period).lower())
    read = reader.parquet(*(file.path for file in group.files))
    if rules.has_period and isinstance(read.schema[f"{columns['ts']}"].dataType, TimestampType):
        read = read.where(_is_of_period(read[f"`{columns['ts']}`"], rules))
    headers = headers_of(group)
    # Names of columns may differ in their case alone, or have dots.
    named = [read[f"`{header}`"].alias(f"source {at}") for at, header in enumerate(headers)]
    origin = (sf.col("_metadata.file_path"), sf.col("_metadata.row_index"))
    numbers = {file.key: file.number for file in group.files}

    def judged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch]).rename_columns([*headers, "file", "row"])
            files = Texts.of(rows["file"]).look_up(lambda path: numbers[path or ""], np.int64)
            positions = rows["row"].to_numpy()
            found = judge_rows(rows.select(headers), group, rules, files, positions)
            yield from without_dictionaries(found).to_batches()

    return read.select(*named, *origin).mapInArrow(judged, POINTS_DDL)


def _is_of_period(ts: Column, rules: Rules) -> Column:
    """Tell whether a time is of the period, in a form that leaves out files and row groups."""
    since = FIRST_US if rules.since_us is None else rules.since_us
    until = END_US if rules.until_us is None else rules.until_us
    within = (ts >= sf.timestamp_micros(sf.lit(since))) & (ts < sf.timestamp_micros(sf.lit(until)))
    return within | ts.isNull()
