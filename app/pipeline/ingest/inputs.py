"""What ``--input`` names: files of a format or offsets of a topic, and how they are read."""

import csv
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from app.pipeline.errors import UsageError
from app.pipeline.ingest.judging import Headers
from app.pipeline.ingest.kafka_topic import SCHEME, OffsetRange, Settings, offsets_of, topic_of
from app.pipeline.ingest.metric_map import MetricMap, columns_of
from app.pipeline.ingest.points import Rules
from app.pipeline.ingest.prometheus import RangeQuery, Server, queries_of
from app.pipeline.options import OF_HOUR, PATTERN

KAFKA: Final = "kafka-json"
PROMETHEUS: Final = "prometheus"

_LINES: Final = (".jsonl", ".ndjson", ".json", ".log", ".txt")
_HEAD_BYTES: Final = 65_536
_HOUR_OF_NAME: Final = re.compile(rf"(?:^|/){OF_HOUR}(\d{{8}}T\d{{2}})-[^/]*$")
_EMPTY_HOST: Final = re.compile(r"^(\w+:)///")
_CLUSTER: Final = "cluster_id="
_READERS: Final = 8
_TRAILER: Final = 8
"""The last bytes of Parquet: the size of the footer, and a mark."""

_UNITS: Final = {"ms": Fraction(1_000), "us": Fraction(1), "ns": Fraction(1, 1_000)}


@dataclass(frozen=True, slots=True)
class Format:
    """A format of files.

    Attributes:
        suffixes: Of the files to take from a folder, with or without ``.gz`` behind.
        tags: Whether names are tags of metrics unless the map says otherwise.
        labelled: Whether points are series with labels, in JSON.
    """

    suffixes: tuple[str, ...]
    tags: bool
    parquet: bool = False
    labelled: bool = False


FORMATS: Final[Mapping[str, Format]] = {
    "parquet": Format((".parquet",), tags=False, parquet=True),
    "prom-json": Format((".json", ".txt"), tags=True, labelled=True),
    "vm-jsonl": Format(_LINES, tags=True, labelled=True),
    "csv": Format((".csv", ".tsv", ".txt"), tags=False),
    "adapter-json": Format(_LINES, tags=True, labelled=True),
    KAFKA: Format((), tags=True, labelled=True),
    PROMETHEUS: Format((), tags=True, labelled=True),
    "collect": Format((".parquet",), tags=True, parquet=True),
}


class RowGroup(NamedTuple):
    """Rows of a file of Parquet.

    ``begin`` is the number of its first row in the file, from 1. Times are microseconds of the
    epoch; null where the footer does not say.
    """

    number: int
    begin: int
    rows: int
    oldest: int | None
    newest: int | None


class Head(NamedTuple):
    """What a file says of itself: its kind, the header of a CSV, or the footer of Parquet."""

    alike: object
    columns: Sequence[str] = ()
    footer: pq.FileMetaData | None = None


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file.

    Its path is as Spark's readers take it, with what would be a pattern escaped, and its key as
    ``_metadata.file_path`` says it.
    """

    number: int
    path: str
    key: str
    row_groups: Sequence[RowGroup]


@dataclass(slots=True)
class FileGroup:
    """Files that are read alike; the head is that of the first."""

    head: Head
    headers: Headers
    files: list[InputFile] = field(default_factory=list)


@dataclass(slots=True)
class Inputs:
    """What a run reads.

    Attributes:
        names: Of the inputs, by their numbers: paths, partitions of a topic, or queries.
        unreadable: Why a file cannot be read, by its number.
        ranges: Of the topics, with the servers of each.
        cut_day: The last day of which retention has removed messages of a topic; null for none.
        read: What a run over them follows from: path, size and time of change of each file,
            the offsets of topics, or what servers are asked.
        firsts: The number of the first file of each ``--input``.
        rows: How many rows the footers of the files count; null where nobody counts.
        ignores_broken: Whether what is broken within a file is left out: it is unreadable by then.
    """

    kind: str
    names: list[str] = field(default_factory=list)
    groups: list[FileGroup] = field(default_factory=list)
    unreadable: dict[int, str] = field(default_factory=dict)
    ranges: list[tuple[str, OffsetRange]] = field(default_factory=list)
    settings: Settings = field(default_factory=dict)
    queries: list[tuple[Server, RangeQuery]] = field(default_factory=list)
    cut_day: date | None = None
    read: list[Any] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    rows: int | None = None
    ignores_broken: bool = False


def topic_inputs(
    uris: Iterable[str], settings: Settings, offsets: Sequence[OffsetRange] | None = None
) -> Inputs:
    """Ask for the offsets of topics, unless they are those of an earlier run.

    Raises:
        UsageError: A URI is wrong, or there is no such topic.
        InfrastructureError: The brokers do not answer.
    """
    inputs = Inputs(KAFKA, settings=settings)
    for uri in dict.fromkeys(uris):
        inputs.firsts.append(len(inputs.names))
        servers, topic = topic_of(uri)
        spans, cut_day = [item for item in offsets or () if item.topic == topic], None
        if offsets is None:
            spans, cut_day = offsets_of(topic, {**settings, "bootstrap.servers": servers})
        inputs.cut_day = max(filter(None, (inputs.cut_day, cut_day)), default=None)
        for item in spans:
            inputs.ranges.append((servers, item))
            inputs.read.append(item.as_json())
            inputs.names.append(f"{SCHEME}{servers}/{topic}/{item.partition}")
    return inputs


def server_inputs(servers: Iterable[Server], rules: Rules, step_ms: int) -> Inputs:
    """Ask servers which quota metrics they have; each metric and hour is an input.

    Raises:
        UsageError: The period lacks a beginning or an end, or a credential is no good.
        InfrastructureError: A server does not answer.
    """
    inputs = Inputs(PROMETHEUS)
    for server in dict.fromkeys(servers):
        inputs.firsts.append(len(inputs.names))
        for query in queries_of(server, rules.since_us, rules.until_us, step_ms):
            inputs.queries.append((server, query))
            inputs.names.append(f"{server.url} {query.name}")
            inputs.read.append([server.url, *asdict(query).values()])
    return inputs


Choice = Callable[[Iterable[str]], list[str]]
"""Which files to read, by their names."""


def file_inputs(
    session: SparkSession,
    uris: Iterable[str],
    kind: str,
    names: MetricMap,
    choose: Choice = list,
) -> Inputs:
    """Find the files of a format, and their columns; only headers and footers are read.

    Raises:
        UsageError: There is none, or one lacks a column.
    """
    inputs = Inputs(kind, rows=0 if FORMATS[kind].parquet else None)
    files, inputs.firsts = _chosen_files(session, uris, kind, choose)
    inputs.names, statuses = list(files), list(files.values())
    inputs.read = [
        (str(item.getPath()), item.getLen(), item.getModificationTime()) for item in statuses
    ]
    groups: dict[object, FileGroup] = {}
    with ThreadPoolExecutor(_READERS) as pool:
        heads = pool.map(lambda status: _head_of(session, kind, status), statuses)
        for number, (status, head) in enumerate(zip(statuses, heads, strict=True)):
            if isinstance(head, str):
                inputs.unreadable[number] = head
                continue
            path = status.getPath()
            folders = [item for item in path.toString().split("/") if item.startswith(_CLUSTER)]
            cluster = unquote(folders[-1].removeprefix(_CLUSTER)) if folders else ""
            like = (head.alike, cluster)
            if like not in groups:
                columns = head.columns and columns_of(head.columns, names, inputs.names[number])
                schema = head.footer and head.footer.schema.to_arrow_schema()
                groups[like] = FileGroup(head, Headers(columns or {}, cluster, schema))
            escaped = PATTERN.sub(r"\\\1", path.toString())
            key = _EMPTY_HOST.sub(r"\1/", path.toUri().toString())
            row_groups = list(_row_groups(head.footer, groups[like].headers))
            groups[like].files.append(InputFile(number, escaped, key, row_groups))
            if inputs.rows is not None:
                inputs.rows += sum(item.rows for item in row_groups)
    inputs.groups = list(groups.values())
    return inputs


def _chosen_files(
    session: SparkSession, uris: Iterable[str], kind: str, choose: Choice
) -> tuple[Mapping[str, Any], list[int]]:
    """Return the status of each file by its name, and the number of the first of each URI."""
    found: dict[str, Any] = {}
    begun = []
    for uri in uris:
        # Of a minute that is there twice that of the input counts that is named first.
        begun.append(len(found))
        for status in sorted(_files_of(session, uri, kind), key=_name):
            found.setdefault(_name(status), status)
    names = set(choose(found))
    is_chosen = [name in names for name in found]
    firsts = [sum(is_chosen[:first]) for first in begun]
    return {name: status for name, status in found.items() if name in names}, firsts


def hour_of_name(name: str) -> datetime | None:
    """Return the hour whose rows alone a file has, as its name says; null where it says none."""
    found = _HOUR_OF_NAME.search(name)
    return datetime.strptime(found[1], "%Y%m%dT%H").replace(tzinfo=UTC) if found else None


def of_period(rules: Rules) -> Choice:
    """Leave out files whose name says an hour outside of the period."""
    return lambda names: [
        name for name in names if (hour := hour_of_name(name)) is None or rules.has_hour(hour)
    ]


def of_newest_hour(now: datetime) -> Choice:
    """Take the files that may have the newest point: of those of an hour the newest hour's."""

    def choose(names: Iterable[str]) -> list[str]:
        hours = {name: hour_of_name(name) for name in names}
        newest = max((hour for hour in hours.values() if hour and hour <= now), default=None)
        return [name for name, hour in hours.items() if hour in {None, newest}]

    return choose


def _head_of(session: SparkSession, kind: str, status: Any) -> Head | str:
    """Return what the head of a file says, or its foot, or why it cannot be read."""
    size = status.getLen()
    try:
        if not FORMATS[kind].parquet:
            begin = _bytes(session, status, 0, min(size, _HEAD_BYTES))
            return _head(kind, begin, is_gzip=status.getPath().getName().endswith(".gz"))
        end = _bytes(session, status, max(size - _HEAD_BYTES, 0), size)
        footer_bytes = int.from_bytes(end[-_TRAILER:-4], "little") + _TRAILER
        if len(end) < footer_bytes <= size:
            end = _bytes(session, status, size - footer_bytes, size)
        return _foot(pq.read_metadata(pa.BufferReader(end)))
    except Py4JJavaError as error:
        return str(error.java_exception.getMessage())
    except (EOFError, ValueError, zlib.error, csv.Error, OSError, pa.ArrowException) as error:
        return str(error)


def _bytes(session: SparkSession, status: Any, begin: int, end: int) -> bytes:
    path = status.getPath()
    stream = path.getFileSystem(_hadoop(session)).open(path)
    try:
        stream.seek(begin)
        return bytes(_jvm(session).org.apache.commons.io.IOUtils.toByteArray(stream, end - begin))
    finally:
        stream.close()


def _foot(footer: pq.FileMetaData) -> Head:
    schema = footer.schema.to_arrow_schema().remove_metadata()
    kinds = tuple(footer.schema.column(at).physical_type for at in range(footer.num_columns))
    return Head((str(schema), kinds), schema.names, footer)


def _row_groups(footer: pq.FileMetaData | None, headers: Headers) -> Iterator[RowGroup]:
    """Yield what a footer says of rows, and of their times where these are timestamps."""
    if footer is None or headers.schema is None:
        return
    paths = [footer.schema.column(at).path for at in range(footer.num_columns)]
    ts, unit, begin = headers.columns["ts"], None, 1
    if ts in paths and pa.types.is_timestamp(kind := headers.schema.field(ts).type):
        unit = _UNITS.get(kind.unit)
    for number in range(footer.num_row_groups):
        stated, times = footer.row_group(number), [None, None]
        statistics = stated.column(paths.index(ts)).statistics if unit else None
        if statistics is not None and statistics.has_min_max:
            times = [raw * unit // 1 for raw in (statistics.min_raw, statistics.max_raw)]
        yield RowGroup(number, begin, stated.num_rows, *times)
        begin += stated.num_rows


def _head(kind: str, begin: bytes, *, is_gzip: bool) -> Head:
    """Read the beginning: what is broken from there on is not even tried.

    Raises:
        ValueError: It has none that can be read.
    """
    if not begin and kind not in ("vm-jsonl", "adapter-json"):
        message = "the file is empty"
        raise ValueError(message)
    if begin.startswith(b"\x1f\x8b"):
        if not is_gzip:
            message = "it is compressed by gzip, and its name does not end in .gz"
            raise ValueError(message)
        begin = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(begin)
    if kind != "csv":
        return Head(kind)
    lines = re.split(r"\r\n?|\n", begin.decode("utf-8-sig", "surrogateescape"))
    text = next((line for line in lines if line.strip()), "")
    cells = next(csv.reader([text], strict=True, delimiter=delimiter_of(text)), [])
    if not cells or not all(name.isprintable() for name in cells):
        message = "no header"
        raise ValueError(message)
    return Head(text, cells)


def delimiter_of(header: str) -> str:
    """Return what separates the cells: a tab in the header says that tabs do."""
    return "\t" if "\t" in header else ","


def _files_of(session: SparkSession, uri: str, kind: str) -> Iterator[Any]:
    """Yield the status of each file that a URI or its pattern names, in folders those below.

    Raises:
        UsageError: There is none, or a pattern leads out of the folder in front of it.
    """
    path = _jvm(session).org.apache.hadoop.fs.Path(uri)
    system = path.getFileSystem(_hadoop(session))
    pattern = PATTERN.search(uri)
    front = uri[: pattern.start()].rpartition("/")[0] if pattern else uri
    found = [system.getFileStatus(path)] if system.exists(path) else system.globStatus(path)
    if pattern:
        folder = _jvm(session).org.apache.hadoop.fs.Path(front or ("/" if uri[0] == "/" else "."))
        below = f"{system.makeQualified(folder).toString().rstrip('/')}/"
        # `..` is gone from names by now, as `{../,}` would be.
        if not all(status.getPath().toString().startswith(below) for status in found or ()):
            message = f"--input {uri} is a pattern that leaves the folder in front of it, {front}."
            raise UsageError(message)
    if not found:
        message = f"--input {uri} does not exist."
        raise UsageError(message)
    for status in found:
        if status.isDirectory():
            yield from _files_in(session, system, status, kind)
        else:
            yield status


def _files_in(session: SparkSession, system: Any, folder: Any, kind: str) -> list[Any]:
    above = _inner(session, system, folder.getPath(), kind)
    depth = len(above.toString())
    suffixes = FORMATS[kind].suffixes
    statuses = system.listFiles(above, True)
    files = []
    while statuses.hasNext():
        status = statuses.next()
        names = status.getPath().toString()[depth:].strip("/").split("/")
        if names[-1].removesuffix(".gz").endswith(suffixes) and not any(
            name.startswith(("_", ".")) for name in names
        ):
            files.append(status)
    if not files:
        message = (
            f"--input {_name(folder)} holds no {kind} file: none ends in {', '.join(suffixes)}."
        )
        raise UsageError(message)
    return files


def _inner(session: SparkSession, system: Any, folder: Any, kind: str) -> Any:
    """Return the folder of the shape, where ``synth`` or the collector put others beside it."""
    names = (kind, "collected") if kind == "collect" else (kind,)
    for name in names:
        below = _jvm(session).org.apache.hadoop.fs.Path(folder, name)
        folder = below if system.exists(below) else folder
    return folder


def _name(status: Any) -> str:
    """Return what people call a file: one of this machine by its path."""
    return str(status.getPath().toString()).removeprefix("file:")


def _jvm(session: SparkSession) -> Any:
    """Return the driver's JVM, the only one that lists files of any file system.

    Raises:
        UsageError: The session is Spark Connect's, which has none.
    """
    try:
        return session._jvm  # noqa: SLF001
    except AttributeError as error:
        message = (
            "Files are listed with Hadoop, which Spark Connect does not offer. Run this job with "
            "spark-submit or another --master; topics, and the jobs after it, need no files."
        )
        raise UsageError(message) from error


def _hadoop(session: SparkSession) -> Any:
    return session._jsc.hadoopConfiguration()  # noqa: SLF001
