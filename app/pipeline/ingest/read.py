"""The readers of all formats: DataFrames of points that are judged."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Final, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampType

from app.pipeline.errors import PipelineError
from app.pipeline.ingest.columns import Headers, records, tidy_rows
from app.pipeline.ingest.inputs import Inputs
from app.pipeline.ingest.labels import ANSWERS, MESSAGES, Series, SeriesLabels
from app.pipeline.ingest.points import LONGEST_TEXT, POINTS_DDL, Rows, Rules, judge_batches
from app.pipeline.ingest.texts import END_US, FIRST_US
from app.pipeline.lake import arrow_schema
from app.pipeline.spark import spark_failures

_BROKEN: Final = re.compile("FAILED_READ_FILE|InfrastructureError: .* cannot be read: ")
"""What Spark says of a file, and a task that reads one itself."""

LINES: Final = "source string, line bigint, text string"
_NO_ANSWER: Final = "no answer of query_range: no JSON, or data.result lacks series"

Done = TypeVar("Done")
Item = TypeVar("Item")


def read_points(session: SparkSession, inputs: Inputs, rules: Rules) -> DataFrame:
    """Return the points of the inputs, judged: the columns of ``POINTS_DDL``."""
    numbers = {key: number for number, key in enumerate(inputs.keys)}
    judge = partial(judge_batches, rules=rules, numbers=numbers, schema=arrow_schema(POINTS_DDL))
    frames = [
        found.mapInArrow(partial(judge, find=find), POINTS_DDL)
        for found, find in _readings(session, inputs, rules)
    ]
    if not frames:
        return session.createDataFrame([], POINTS_DDL)
    return reduce(DataFrame.unionByName, frames)


def _readings(
    session: SparkSession, inputs: Inputs, rules: Rules
) -> Iterator[tuple[DataFrame, Callable[[pa.Table], Rows]]]:
    """Yield what Spark reads, source and line and more, and what makes points of it."""
    series, texts = inputs.format.series, []
    for headers, files in inputs.groups:
        paths = [inputs.paths[number] for number in files]
        if inputs.format.parquet:
            read = _columns_of_parquet(session, inputs, paths, headers, rules)
            yield read, partial(tidy_rows, headers=headers)
        elif series is None:
            lines = _lines(session, inputs, paths).where(sf.col("text") != headers.line)
            yield lines, partial(records, headers=headers)
        else:
            texts.append(_lines(session, inputs, paths))
    if inputs.items:
        texts.append(in_tasks(session, inputs.items, inputs.read_item, LINES))
    if series is not None:
        find = partial(series.find, labels=SeriesLabels(rules.map))
        yield from ((_series_of(each, series), find) for each in texts)


def in_tasks(
    session: SparkSession,
    items: Sequence[Item],
    act: Callable[[Item], Iterable[pa.RecordBatch]],
    ddl: str,
) -> DataFrame:
    """Return what a function makes of each item, in a task of its own.

    Items and function are in no plan and no setting of Spark: they may have passwords.
    """
    numbers = session.range(0, len(items), 1, max(len(items), 1))
    return numbers.mapInArrow(partial(_act, items=items, act=act), ddl)


def _act(
    batches: Iterable[pa.RecordBatch],
    items: Sequence[Item],
    act: Callable[[Item], Iterable[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from act(items[number])


def without_broken_files(session: SparkSession, inputs: Inputs, act: Callable[[], Done]) -> Done:
    """Act, and if a file turns out to be broken, do so again with what can be read of it.

    The files are then among the unreadable ones, with the reasons. Nobody knows how many rows they
    had. ``act`` must have no other effect until all are read.
    """
    with _small_batches(session, inputs):
        try:
            return act()
        except (PySparkException, Py4JJavaError) as error:
            broken = _broken_files(session, inputs) if _BROKEN.search(str(error)) else {}
            if not broken:
                raise
        inputs.unreadable |= broken
        inputs.rows, inputs.ignores_broken = None, True
        return act()


@contextmanager
def _small_batches(session: SparkSession, inputs: Inputs) -> Iterator[None]:
    """Hand series to Python by a few megabytes for the block: each may have thousands of points.

    Spark weighs a batch of Arrow for each row then, which costs more than all else with small rows.
    """
    name = "spark.sql.execution.arrow.maxBytesPerBatch"
    before = session.conf.get(name)
    if inputs.format.series not in {None, MESSAGES}:
        session.conf.set(name, f"{2**24}")
    try:
        yield
    finally:
        session.conf.set(name, f"{before}")


def _broken_files(session: SparkSession, inputs: Inputs) -> dict[int, str]:
    """Read each file by itself; return why some cannot be read, by number."""
    broken = {}
    for number in (number for _, files in inputs.groups for number in files):
        reader = session.read.parquet if inputs.format.parquet else session.read.text
        try:
            with spark_failures():
                reader(inputs.paths[number]).write.format("noop").mode("overwrite").save()
        except PipelineError as error:
            broken[number] = str(error)
    return broken


def _lines(session: SparkSession, inputs: Inputs, paths: list[str]) -> DataFrame:
    """Return lines, or whole files where a document is one, but blank ones: ``LINES``."""
    reader = session.read.option("ignoreCorruptFiles", str(inputs.ignores_broken).lower())
    read = reader.text(paths, wholetext=inputs.format.series is ANSWERS)
    lines = read.selectExpr("_metadata.file_path source", "bigint(null) line", "value text")
    return lines.where(r"text rlike '\\S'")


def _series_of(lines: DataFrame, series: Series) -> DataFrame:
    """Parse lines of JSON. What is no UTF-8 is none, nor is what has more behind it."""
    document = "if(is_valid_utf8(text), concat('{\"found\":[', text, ']}'), null)"
    strict = "map('allowSingleQuotes', 'false')"
    ddl = f"found array<struct<{series.ddl}>>"
    parsed = f"inline_outer(from_json({document}, '{ddl}', {strict}).found)"
    if series is not ANSWERS:
        return lines.selectExpr("source", "line", f"left(text, {LONGEST_TEXT}) text", parsed)
    found = lines.selectExpr("source", parsed).selectExpr("source", "data.result")
    # Of an empty answer there is no series.
    found = found.where("result is null or size(result) > 0").selectExpr(
        "source", "posexplode_outer(result) as (line, text)"
    )
    text = f"if(line is null, '{_NO_ANSWER}', text) text"
    return found.selectExpr("source", "coalesce(bigint(line) + 1, 0) line", text)


def _columns_of_parquet(
    session: SparkSession, inputs: Inputs, paths: list[str], headers: Headers, rules: Rules
) -> DataFrame:
    """Return tidy rows: source, line and the headers."""
    reader = session.read.option("ignoreCorruptFiles", str(inputs.ignores_broken).lower())
    read, ts = reader.parquet(*paths), headers.columns.get("ts")
    if rules.has_period and ts and isinstance(read.schema[ts].dataType, TimestampType):
        read = read.where(_is_of_period(read[f"`{ts}`"], rules))
    # Names of columns may differ in their case alone, or have dots.
    named = [read[f"`{header}`"].alias(f"source {at}") for at, header in enumerate(headers.read)]
    origin = ("_metadata.file_path source", "_metadata.row_index + 1 line")
    return read.select(*map(sf.expr, origin), *named)


def _is_of_period(ts: Column, rules: Rules) -> Column:
    """Tell whether a time is of the period, in a form that leaves out files and row groups."""
    since = FIRST_US if rules.since_us is None else rules.since_us
    until = END_US if rules.until_us is None else rules.until_us
    within = (ts >= sf.timestamp_micros(sf.lit(since))) & (ts < sf.timestamp_micros(sf.lit(until)))
    return within | ts.isNull()
