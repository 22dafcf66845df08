"""What ``--input`` names: files of a format or offsets of a topic, and how they are read."""

import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from app.pipeline.errors import UsageError
from app.pipeline.ingest.kafka_topic import SCHEME, OffsetRange, Settings, offsets_of, topic_of
from app.pipeline.ingest.metric_map import Columns, MetricMap, columns_of
from app.pipeline.ingest.points import Rules
from app.pipeline.ingest.prometheus import RangeQuery, Server, queries_of
from app.pipeline.ingest.text_files import GZIP, csv_header
from app.pipeline.ingest.tidy_rows import Headers
from app.pipeline.options import OF_HOUR, PATTERN

KAFKA: Final = "kafka-json"
PROMETHEUS: Final = "prometheus"

_LINES: Final = (".jsonl", ".ndjson", ".json", ".log", ".txt")
_HEADER_BYTES: Final = 65_536
_COLLECTED: Final = "collected"
_HOUR_OF_NAME: Final = re.compile(rf"(?:^|/){OF_HOUR}(\d{{8}}T\d{{2}})-[^/]*$")
_EMPTY_HOST: Final = re.compile(r"^(\w+:)///")
_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class Format:
    """A format of files.

    Attributes:
        suffixes: Of the files to take from a folder, with or without ``.gz`` behind.
        tags: Whether names are tags of metrics unless the map says otherwise.
        parquet: Whether it is Parquet.
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


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file.

    Attributes:
        number: Of the input.
        path: As Spark's readers take it: what would be a pattern is escaped.
        key: As ``_metadata.file_path`` says it.
        cluster: The cluster id of a folder partitioned by it; '' elsewhere.
        rows: How many its footer counts; 0 where it has none.
    """

    number: int
    path: str
    key: str
    cluster: str
    rows: int


@dataclass(slots=True)
class FileGroup:
    """Files of one input that are read alike.

    Attributes:
        first: The number of the first file of the input.
        cluster: The cluster id of their folder; '' elsewhere.
        files: Which.
        columns: Where the columns have headers, which is what.
        nanos: The headers of times in nanoseconds, which Spark reads as whole numbers.
    """

    first: int = 0
    cluster: str = ""
    files: list[InputFile] = field(default_factory=list)
    columns: Columns | None = None
    nanos: frozenset[str] = frozenset()

    @property
    def headers(self) -> Headers:
        """What tasks need of it."""
        return Headers(self.columns or {}, self.nanos, self.cluster)


@dataclass(slots=True)
class Inputs:
    """What a run reads.

    Attributes:
        kind: The format.
        names: Of the inputs, by their numbers: paths, partitions of a topic, or queries.
        groups: The files.
        unreadable: Why a file cannot be read, by its number.
        ranges: Of the topics, with the number of the input and the servers of each.
        settings: Of the Kafka client.
        queries: Of Prometheus' API, with the number of the input and the server of each.
        cut_day: The last day of which retention has removed messages of a topic; null for none.
        read: What a run over them follows from: path, size and time of change of each file,
            the offsets of topics, or what servers are asked.
        firsts: The number of the first file of each ``--input``.
        rows: How many rows the footers of the files count; null where they have none.
    """

    kind: str
    names: list[str] = field(default_factory=list)
    groups: list[FileGroup] = field(default_factory=list)
    unreadable: dict[int, str] = field(default_factory=dict)
    ranges: list[tuple[int, str, OffsetRange]] = field(default_factory=list)
    settings: Settings = field(default_factory=dict)
    queries: list[tuple[int, Server, RangeQuery]] = field(default_factory=list)
    cut_day: date | None = None
    read: list[Any] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    rows: int | None = None


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
            inputs.ranges.append((len(inputs.names), servers, item))
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
            inputs.queries.append((len(inputs.names), server, query))
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

    Args:
        session: Finds them.
        uris: Files, folders or patterns.
        kind: The format.
        names: What the columns are called.
        choose: Which of the files that are there.

    Raises:
        UsageError: There is none, or one lacks a column.
    """
    inputs = Inputs(kind, rows=0 if FORMATS[kind].parquet else None)
    files, inputs.firsts = _chosen_files(session, uris, kind, choose)
    inputs.names, statuses = list(files), list(files.values())
    inputs.read = [
        (str(item.getPath()), item.getLen(), item.getModificationTime()) for item in statuses
    ]
    head = _footer if FORMATS[kind].parquet else _header
    groups: dict[object, FileGroup] = {}
    with ThreadPoolExecutor(_READERS) as pool:
        heads = pool.map(lambda status: _attempt(head, session, kind, status), statuses)
        for number, (status, read) in enumerate(zip(statuses, heads, strict=True)):
            if isinstance(read, str):
                inputs.unreadable[number] = read
                continue
            alike, headers, nanos, rows = read
            file = _file(number, status, rows)
            first = max(item for item in inputs.firsts if item <= number)
            like = (alike, first, file.cluster)
            if like not in groups:
                columns = columns_of(headers, names, inputs.names[number]) if headers else None
                groups[like] = FileGroup(first, file.cluster, columns=columns, nanos=nanos)
            groups[like].files.append(file)
            inputs.rows = None if inputs.rows is None else inputs.rows + rows
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

    def choose(names: Iterable[str]) -> list[str]:
        hours = {name: hour_of_name(name) for name in names}
        return [name for name, hour in hours.items() if hour is None or rules.has_hour(hour)]

    return choose


def of_newest_hour(now: datetime) -> Choice:
    """Take the files that may have the newest point: of those of an hour the newest hour's."""

    def choose(names: Iterable[str]) -> list[str]:
        hours = {name: hour_of_name(name) for name in names}
        newest = max((hour for hour in hours.values() if hour and hour <= now), default=None)
        return [name for name, hour in hours.items() if hour in {None, newest}]

    return choose


Head = tuple[object, Sequence[str], frozenset[str], int]
"""What is the same for files that are read alike; headers, those of nanoseconds, rows."""


def _attempt(head: Any, session: SparkSession, kind: str, status: Any) -> Head | str:
    """Return what the head of a file says, or why it cannot be read."""
    try:
        read: Head = head(session, kind, status)
    except Py4JJavaError as error:
        return str(error.java_exception.getMessage())
    except (EOFError, ValueError, zlib.error) as error:
        return str(error)
    return read


def _footer(session: SparkSession, _kind: str, status: Any) -> Head:
    parquet, hadoop = _jvm(session).org.apache.parquet.hadoop, _hadoop(session)
    file = parquet.util.HadoopInputFile.fromStatus(status, hadoop)
    reader = parquet.ParquetFileReader.open(file)
    try:
        schema, rows = reader.getFileMetaData().getSchema(), int(reader.getRecordCount())
    finally:
        reader.close()
    text = str(schema)
    headers = [schema.getFieldName(number) for number in range(schema.getFieldCount())]
    nanos = frozenset(header for header in headers if f" {header} (TIMESTAMP(NANOS" in text)
    return text, headers, nanos, rows


def _header(session: SparkSession, kind: str, status: Any) -> Head:
    """Read the beginning: what is broken from there on is not even tried."""
    with_lines = kind in ("vm-jsonl", "adapter-json")
    if not status.getLen() and not with_lines:
        message = "the file is empty"
        raise ValueError(message)
    if kind != "csv":
        return kind, (), frozenset(), 0
    path = status.getPath()
    stream = path.getFileSystem(_hadoop(session)).open(path)
    try:
        size = min(_HEADER_BYTES, status.getLen())
        begin = bytes(_jvm(session).org.apache.commons.io.IOUtils.toByteArray(stream, size))
    finally:
        stream.close()
    if begin.startswith(GZIP):
        begin = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(begin)
    headers = csv_header(io.BytesIO(begin))
    return tuple(headers), headers, frozenset(), 0


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
    names = (kind, _COLLECTED) if kind == "collect" else (kind,)
    for name in names:
        below = _jvm(session).org.apache.hadoop.fs.Path(folder, name)
        folder = below if system.exists(below) else folder
    return folder


def _file(number: int, status: Any, rows: int) -> InputFile:
    path = status.getPath()
    named = [item for item in path.toString().split("/") if item.startswith("cluster_id=")]
    return InputFile(
        number=number,
        path=PATTERN.sub(r"\\\1", path.toString()),
        key=_EMPTY_HOST.sub(r"\1/", path.toUri().toString()),
        cluster=unquote(named[-1].removeprefix("cluster_id=")) if named else "",
        rows=rows,
    )


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
