"""The readers of all formats: DataFrames of points that are judged."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial, reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampType

from app.pipeline.errors import PipelineError
from app.pipeline.ingest import judging
from app.pipeline.ingest.inputs import FORMATS, FileGroup, Inputs
from app.pipeline.ingest.judging import judge_batches, judge_files, judge_tidy
from app.pipeline.ingest.kafka_topic import read_topics
from app.pipeline.ingest.points import POINTS_DDL, Rules
from app.pipeline.ingest.prometheus import read_prometheus
from app.pipeline.ingest.rows import END_US, FIRST_US, UNREADABLE
from app.pipeline.spark import spark_failures

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
        frames.append(messages.mapInArrow(partial(judge_batches, rules=rules), POINTS_DDL))
    if inputs.queries:
        answers = read_prometheus(session, inputs.queries, rules.map)
        frames.append(answers.mapInArrow(partial(judge_batches, rules=rules), POINTS_DDL))
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
    task = partial(judge_files, kind=kind, numbers=numbers, columns=group.columns, rules=rules)
    return content.mapInArrow(task, POINTS_DDL)


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
    times = rows.select(rows[f"`{group.headers.columns['ts']}`"].alias("ts"))
    return times.mapInArrow(partial(judging.read_times, headers=group.headers), "ts bigint")


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
    headers = group.headers
    # Names of columns may differ in their case alone, or have dots.
    named = [read[f"`{header}`"].alias(f"source {at}") for at, header in enumerate(headers.read)]
    origin = (sf.col("_metadata.file_path"), sf.col("_metadata.row_index"))
    numbers = {file.key: file.number for file in group.files}
    task = partial(judge_tidy, headers=headers, rules=rules, numbers=numbers)
    return read.select(*named, *origin).mapInArrow(task, POINTS_DDL)


def _is_of_period(ts: Column, rules: Rules) -> Column:
    """Tell whether a time is of the period, in a form that leaves out files and row groups."""
    since = FIRST_US if rules.since_us is None else rules.since_us
    until = END_US if rules.until_us is None else rules.until_us
    within = (ts >= sf.timestamp_micros(sf.lit(since))) & (ts < sf.timestamp_micros(sf.lit(until)))
    return within | ts.isNull()
