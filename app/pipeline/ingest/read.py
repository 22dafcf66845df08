"""The readers of all formats: DataFrames of points that are judged."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any, Final, NamedTuple, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampType

from app.pipeline.errors import PipelineError
from app.pipeline.ingest import labels
from app.pipeline.ingest.inputs import FORMATS, KAFKA, PROMETHEUS, FileGroup, Inputs, delimiter_of
from app.pipeline.ingest.judging import judge_columns, judge_lines
from app.pipeline.ingest.kafka_topic import read_topics
from app.pipeline.ingest.points import POINTS_DDL, UNREADABLE, Rules
from app.pipeline.ingest.prometheus import read_prometheus
from app.pipeline.ingest.texts import END_US, FIRST_US
from app.pipeline.spark import spark_failures

_BROKEN: Final = re.compile("FAILED_READ_FILE|InfrastructureError: .* cannot be read: ")
"""What Spark says of a file, and a task that reads one itself."""

_NO_ANSWER: Final = "no answer of query_range: no JSON, or data.result lacks series"
_LONGEST_TEXT: Final = 4096
_LATIN: Final = "ISO-8859-1"
_CSV: Final = {"escape": '"', "emptyValue": "", "nullValue": "", "columnNameOfCorruptRecord": "bad"}
_CELL: Final = r'(?:"(?:[^"]++|"")*+"|[^"{0}][^{0}]*+|)'

Done = TypeVar("Done")


class _Series(NamedTuple):
    """What Spark finds in JSON, and what makes rows of it."""

    ddl: str
    find: Callable[..., Any]


_MESSAGES: Final = _Series(labels.MESSAGE, labels.messages)
_ANSWERS: Final = _Series(labels.ANSWER, labels.answers)
_SERIES: Final[Mapping[str, _Series]] = {
    "adapter-json": _MESSAGES,
    KAFKA: _MESSAGES,
    "vm-jsonl": _Series(labels.EXPORT, labels.export),
    "prom-json": _ANSWERS,
    PROMETHEUS: _ANSWERS,
}


def read_points(session: SparkSession, inputs: Inputs, rules: Rules) -> DataFrame:
    """Return the points of the inputs, judged: the columns of ``POINTS_DDL``."""
    kind = inputs.kind
    numbers = {file.key: file.number for group in inputs.groups for file in group.files}
    numbers |= {name: number for number, name in enumerate(inputs.names)}
    frames = []
    for group in inputs.groups:
        if kind in _SERIES:
            lines = _lines(session, inputs, group).where(r"text rlike '\\S'")
            frames.append(_judged_series(lines, _SERIES[kind], rules, numbers))
            continue
        columns = (
            _columns_of_parquet(session, inputs, group, rules)
            if FORMATS[kind].parquet
            else _columns_of_csv(_lines(session, inputs, group), group)
        )
        task = partial(judge_columns, headers=group.headers, rules=rules, numbers=numbers)
        frames.append(columns.mapInArrow(task, POINTS_DDL))
    if inputs.ranges:
        topics = read_topics(session, inputs.ranges, inputs.settings)
        frames.append(_judged_series(topics, _SERIES[kind], rules, numbers))
    if inputs.queries:
        answers = read_prometheus(session, inputs.queries)
        frames.append(_judged_series(answers, _SERIES[kind], rules, numbers))
    if inputs.unreadable or not frames:
        frames.append(unreadable_points(session, inputs))
    return reduce(DataFrame.unionByName, frames)


def without_broken_files(session: SparkSession, inputs: Inputs, act: Callable[[], Done]) -> Done:
    """Act, and if a file turns out to be broken, do so again with what can be read of it.

    The files are then among the unreadable ones, with the reasons. Nobody knows how many rows they
    had. ``act`` must have no other effect until all are read.
    """
    with _small_batches(session, inputs.kind):
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
def _small_batches(session: SparkSession, kind: str) -> Iterator[None]:
    """Hand series to Python by a few megabytes for the block: each may have thousands of points.

    Spark weighs a batch of Arrow for each row then, which costs more than all else with small rows.
    """
    name, series = "spark.sql.execution.arrow.maxBytesPerBatch", _SERIES.get(kind, _MESSAGES)
    before = session.conf.get(name)
    session.conf.set(name, f"{before if series is _MESSAGES else 2**24}")
    try:
        yield
    finally:
        session.conf.set(name, f"{before}")


def _broken_files(session: SparkSession, inputs: Inputs) -> dict[int, str]:
    """Read each file by itself; return why some cannot be read, by number."""
    broken = {}
    for file in (file for group in inputs.groups for file in group.files):
        reader = session.read.parquet if FORMATS[inputs.kind].parquet else session.read.text
        try:
            with spark_failures():
                reader(file.path).write.format("noop").mode("overwrite").save()
        except PipelineError as error:
            broken[file.number] = str(error)
    return broken


def _lines(session: SparkSession, inputs: Inputs, group: FileGroup) -> DataFrame:
    """Return lines, or whole files where a document is one: source, line (null) and text."""
    reader = session.read.option("ignoreCorruptFiles", str(inputs.ignores_broken).lower())
    paths = [file.path for file in group.files]
    read = reader.text(paths, wholetext=inputs.kind == "prom-json")
    return read.selectExpr("_metadata.file_path source", "bigint(null) line", "value text")


def _judged_series(
    lines: DataFrame, series: _Series, rules: Rules, numbers: Mapping[str, int]
) -> DataFrame:
    """Parse and judge lines of JSON. What is no UTF-8 is none, nor is what has more behind it."""
    document = "if(is_valid_utf8(text), concat('{\"found\":[', text, ']}'), null)"
    strict = "map('allowSingleQuotes', 'false')"
    ddl = f"found array<struct<{series.ddl}>>"
    parsed = f"inline_outer(from_json({document}, '{ddl}', {strict}).found)"
    if series is _ANSWERS:
        found = lines.selectExpr("source", parsed).selectExpr("source", "data.result")
        # Of an empty answer there is no series.
        found = found.where("result is null or size(result) > 0").selectExpr(
            "source", "posexplode_outer(result) as (line, text)"
        )
        text = f"if(line is null, '{_NO_ANSWER}', text) text"
        found = found.selectExpr("source", "coalesce(bigint(line) + 1, 0) line", text)
    else:
        found = lines.selectExpr("source", "line", f"left(text, {_LONGEST_TEXT}) text", parsed)
    task = partial(judge_lines, find=series.find, rules=rules, numbers=numbers)
    return found.mapInArrow(task, POINTS_DDL)


def _columns_of_csv(lines: DataFrame, group: FileGroup) -> DataFrame:
    """Parse lines of CSV; those that are none, or have other cells than the header, have nulls."""
    header, columns = f"{group.head.alike}", group.head.columns
    delimiter, headers = delimiter_of(header), group.headers.read
    ddl = ", ".join(f"c{at} string" for at in range(len(columns)))
    options = {**_CSV, "sep": delimiter}
    cell = _CELL.format(delimiter)
    is_strict = sf.col("text").rlike(f"^{cell}(?:{delimiter}{cell})*+$")
    # Bytes become characters and bytes again: the parser would replace what is no UTF-8.
    latin = sf.decode(sf.col("text").cast("binary"), _LATIN)
    record = sf.when(is_strict, sf.from_csv(latin, f"{ddl}, bad string", options)).alias("record")
    records = lines.where(r"text rlike '\\S'").where(sf.col("text") != header)
    cells = {name: sf.encode(f"record.c{columns.index(name)}", _LATIN) for name in headers}
    is_fine = sf.col("record.bad").isNull()
    named = [
        sf.when(is_fine, cells[name].cast("string")).alias(f"source {at}")
        for at, name in enumerate(headers)
    ]
    raw = sf.left("text", sf.lit(_LONGEST_TEXT)).alias("text")
    return records.select("source", "line", "text", record).select("source", "line", raw, *named)


def unreadable_points(session: SparkSession, inputs: Inputs) -> DataFrame:
    """Return a point for each file that cannot be read, which says why."""
    rows = [
        {"file": number, "line": 0, "problem": UNREADABLE, "text": why}
        for number, why in inputs.unreadable.items()
    ]
    return session.createDataFrame(rows, POINTS_DDL)


def _columns_of_parquet(
    session: SparkSession, inputs: Inputs, group: FileGroup, rules: Rules
) -> DataFrame:
    """Return tidy rows: source, line, text (null) and the headers."""
    ts = f"{group.headers.columns['ts']}"
    reader = session.read.option("ignoreCorruptFiles", str(inputs.ignores_broken).lower())
    read = reader.parquet(*(file.path for file in group.files))
    if rules.has_period and isinstance(read.schema[ts].dataType, TimestampType):
        read = read.where(_is_of_period(read[f"`{ts}`"], rules))
    # Names of columns may differ in their case alone, or have dots.
    named = [
        read[f"`{header}`"].alias(f"source {at}") for at, header in enumerate(group.headers.read)
    ]
    origin = {
        "source": "_metadata.file_path",
        "line": "_metadata.row_index + 1",
        "text": "string(null)",
    }
    located = [sf.expr(what).alias(name) for name, what in origin.items()]
    return read.select(*located, *named)


def _is_of_period(ts: Column, rules: Rules) -> Column:
    """Tell whether a time is of the period, in a form that leaves out files and row groups."""
    since = FIRST_US if rules.since_us is None else rules.since_us
    until = END_US if rules.until_us is None else rules.until_us
    within = (ts >= sf.timestamp_micros(sf.lit(since))) & (ts < sf.timestamp_micros(sf.lit(until)))
    return within | ts.isNull()
