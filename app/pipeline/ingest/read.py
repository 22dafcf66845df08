"""The readers of all formats: DataFrames of points that are judged."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Final, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType, TimestampType

from app.pipeline.errors import PipelineError
from app.pipeline.ingest.columns import Headers, cells, delimiter_of, tidy_rows
from app.pipeline.ingest.inputs import Inputs
from app.pipeline.ingest.labels import ANSWERS, MESSAGES, Series, SeriesLabels
from app.pipeline.ingest.points import LONGEST_TEXT, POINTS_DDL, Rows, Rules, judge_batches
from app.pipeline.ingest.texts import END_US, FIRST_US
from app.pipeline.lake import arrow_schema
from app.pipeline.spark import spark_failures

_BROKEN: Final = re.compile("FAILED_READ_FILE|InfrastructureError: .* cannot be read: ")
"""What Spark says of a file, and a task that reads one itself."""

_LATIN: Final = "ISO-8859-1"
_CSV: Final = {"escape": '"', "emptyValue": "", "nullValue": "", "columnNameOfCorruptRecord": "bad"}
_CELL: Final = r'(?:"(?:[^"]++|"")*+"|[^"{0}][^{0}]*+|)'

LINES: Final = "source string, line bigint, text string"
_NO_ANSWER: Final = "no answer of query_range: no JSON, or data.result lacks series"

Done = TypeVar("Done")


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
            yield _cells_of_csv(lines, headers), partial(cells, headers=headers)
        else:
            texts.append(_lines(session, inputs, paths))
    if inputs.items:
        texts.append(lines_of_items(session, inputs))
    if series is not None:
        find = partial(series.find, labels=SeriesLabels(rules.map))
        yield from ((_series_of(each, series), find) for each in texts)


class _ItemReader(DataSourceReader):
    """Reads each item in a task of its own."""

    def __init__(self, inputs: Inputs) -> None:
        self._items, self._read = inputs.items, inputs.read_item

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(len(self._items))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self._read(self._items[partition.value])


def lines_of_items(session: SparkSession, inputs: Inputs) -> DataFrame:
    """Return messages of topics or answers of servers: ``LINES``.

    Options belong to Spark's plans, so items, which may have passwords, are in the class.
    """
    reader = _ItemReader(inputs)

    class TopicsAndServers(DataSource):
        def schema(self) -> str:
            return LINES

        def reader(self, schema: StructType) -> DataSourceReader:
            del schema
            return reader

    session.dataSource.register(TopicsAndServers)
    return session.read.format(TopicsAndServers.name()).load()


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


def _cells_of_csv(lines: DataFrame, headers: Headers) -> DataFrame:
    """Parse lines of CSV: source, line, text and the headers.

    Lines that are no record, or have other cells than the header, have nulls.
    """
    delimiter = delimiter_of(headers.line)
    columns = ", ".join(f"c{at} string" for at in range(len(headers.names)))
    cell = _CELL.format(delimiter)
    is_strict = sf.col("text").rlike(f"^{cell}(?:{delimiter}{cell})*+$")
    # Bytes become characters and bytes again: the parser would replace what is no UTF-8.
    latin = sf.decode(sf.col("text").cast("binary"), _LATIN)
    record = sf.from_csv(latin, f"{columns}, bad string", {**_CSV, "sep": delimiter})
    read = lines.withColumn("record", sf.when(is_strict, record))
    of_header = {name: f"record.c{headers.names.index(name)}" for name in headers.read}
    named = [
        sf.when(sf.isnull("record.bad"), sf.encode(of, _LATIN).cast("string")).alias(f"source {at}")
        for at, of in enumerate(of_header.values())
    ]
    return read.select("source", "line", sf.left("text", sf.lit(LONGEST_TEXT)), *named)


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
