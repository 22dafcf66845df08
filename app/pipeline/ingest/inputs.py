"""What ``--input`` names, and the files of a format: which there are, and how they are read."""

import csv
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from app.pipeline.errors import UsageError
from app.pipeline.folders import values_of
from app.pipeline.ingest.columns import Headers, columns_of, delimiter_of
from app.pipeline.ingest.labels import ANSWERS, EXPORT, MESSAGES, Series
from app.pipeline.ingest.metric_map import MetricMap
from app.pipeline.ingest.points import Rules
from app.pipeline.options import OF_HOUR, PATTERN

KAFKA: Final = "kafka-json"
PROMETHEUS: Final = "prometheus"

_LINES: Final = (".jsonl", ".ndjson", ".json", ".log", ".txt")
_HEAD_BYTES: Final = 65_536
_HOUR_OF_NAME: Final = re.compile(rf"(?:^|/){OF_HOUR}(\d{{8}}T\d{{2}})-[^/]*$")
_EMPTY_HOST: Final = re.compile(r"^(\w+:)///")
_READERS: Final = 8
_TRAILER: Final = 8
"""The last bytes of Parquet: the size of the footer, and a mark."""

_UNITS: Final = {"ms": Fraction(1_000), "us": Fraction(1), "ns": Fraction(1, 1_000)}


class Format(NamedTuple):
    """A format of files.

    Attributes:
        suffixes: Of the files to take from a folder, with or without ``.gz`` behind.
        tags: Whether names are tags of metrics unless the map says otherwise.
        series: How series with labels are found in JSON; null where points have columns.
    """

    suffixes: tuple[str, ...]
    tags: bool
    series: Series | None = None
    parquet: bool = False


FORMATS: Final[Mapping[str, Format]] = {
    "parquet": Format((".parquet",), tags=False, parquet=True),
    "prom-json": Format((".json", ".txt"), tags=True, series=ANSWERS),
    "vm-jsonl": Format(_LINES, tags=True, series=EXPORT),
    "csv": Format((".csv", ".tsv", ".txt"), tags=False),
    "adapter-json": Format(_LINES, tags=True, series=MESSAGES),
    KAFKA: Format((), tags=True, series=MESSAGES),
    PROMETHEUS: Format((), tags=True, series=ANSWERS),
    "collect": Format((".parquet",), tags=True, parquet=True),
}


class RowGroup(NamedTuple):
    """Rows of a file of Parquet.

    ``begin`` is the number of its first row in the file, from 1. Times are microseconds of the
    epoch; null where the footer does not say.
    """

    file: int
    path: str
    headers: Headers
    number: int
    begin: int
    rows: int
    oldest: int | None
    newest: int | None


@dataclass(slots=True)
class Inputs:
    """What a run reads: files, or items of another kind, each of which a task reads.

    Attributes:
        names: Of the inputs, by their numbers: paths, partitions of a topic, or queries.
        sources: The number of the ``--input`` that each is of.
        keys: As ``_metadata.file_path`` says the path of a file; of others the name.
        paths: Of files as Spark's readers take them, with what would be a pattern escaped.
        groups: The headers of files that are read alike, and the numbers of these.
        row_groups: Of files of Parquet.
        unreadable: Why a file cannot be read, by its number.
        items: What is no file, with ``read_item``, which returns source, line and text of it.
        cut_day: The last day of which retention has removed messages of a topic; null for none.
        read: What a run over them follows from: path, size and time of change of each file,
            the offsets of topics, or what servers are asked.
        rows: How many rows the footers of the files count; null where nobody counts.
        ignores_broken: Whether what is broken within a file is left out: it is unreadable by then.
    """

    kind: str
    names: list[str] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    groups: list[tuple[Headers, list[int]]] = field(default_factory=list)
    row_groups: list[RowGroup] = field(default_factory=list)
    unreadable: dict[int, str] = field(default_factory=dict)
    items: list[Any] = field(default_factory=list)
    read_item: Callable[[Any], Iterable[pa.RecordBatch]] = list
    cut_day: date | None = None
    read: list[Any] = field(default_factory=list)
    rows: int | None = None
    ignores_broken: bool = False

    @property
    def format(self) -> Format:
        """What is read of them."""
        return FORMATS[self.kind]


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
    inputs, hadoop = Inputs(kind), _Hadoop(session)
    found: dict[str, tuple[int, Any]] = {}
    for number, uri in enumerate(uris):
        # Of a minute that is there twice that of the input counts that is named first.
        for status in sorted(hadoop.files(uri, kind), key=_name):
            found.setdefault(_name(status), (number, status))
    inputs.names = choose(found)
    inputs.sources = [found[name][0] for name in inputs.names]
    statuses = [found[name][1] for name in inputs.names]
    paths = [status.getPath() for status in statuses]
    inputs.read = [
        (str(path), item.getLen(), item.getModificationTime())
        for path, item in zip(paths, statuses, strict=True)
    ]
    inputs.paths = [PATTERN.sub(r"\\\1", path.toString()) for path in paths]
    inputs.keys = [_EMPTY_HOST.sub(r"\1/", path.toUri().toString()) for path in paths]
    groups: dict[object, tuple[Headers, list[int]]] = {}
    with ThreadPoolExecutor(_READERS) as pool:
        heads = pool.map(lambda status: _head_of(hadoop, kind, status), statuses)
        for number, (path, head) in enumerate(zip(paths, heads, strict=True)):
            if isinstance(head, str):
                inputs.unreadable[number] = head
                continue
            cluster = values_of(path.toString(), ["cluster_id"]).get("cluster_id", "")
            like = (head.alike, cluster)
            if like not in groups:
                columns = head.names and columns_of(head.names, names, inputs.names[number])
                schema = head.footer and head.footer.schema.to_arrow_schema()
                groups[like] = Headers(columns or {}, cluster, schema, head.names, head.line), []
            headers, files = groups[like]
            files.append(number)
            if head.footer is not None:
                here = unquote(urlsplit(inputs.keys[number]).path)
                inputs.row_groups += _row_groups(head.footer, number, here, headers)
    inputs.groups = list(groups.values())
    if FORMATS[kind].parquet:
        inputs.rows = sum(item.rows for item in inputs.row_groups)
    return inputs


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


class _Head(NamedTuple):
    """What a file says of itself: the header of a CSV, or the footer of Parquet.

    Files with an equal ``alike`` are read alike.
    """

    alike: object
    names: Sequence[str] = ()
    line: str = ""
    footer: pq.FileMetaData | None = None


def _head_of(hadoop: "_Hadoop", kind: str, status: Any) -> _Head | str:
    """Return what the head of a file says, or its foot, or why it cannot be read."""
    size = status.getLen()
    try:
        if not FORMATS[kind].parquet:
            begin = hadoop.read(status, 0, min(size, _HEAD_BYTES))
            return _head(kind, begin, is_gzip=status.getPath().getName().endswith(".gz"))
        end = hadoop.read(status, max(size - _HEAD_BYTES, 0), size)
        footer_bytes = int.from_bytes(end[-_TRAILER:-4], "little") + _TRAILER
        if len(end) < footer_bytes <= size:
            end = hadoop.read(status, size - footer_bytes, size)
        footer = pq.read_metadata(pa.BufferReader(end))
    except Py4JJavaError as error:
        return str(error.java_exception.getMessage())
    except (EOFError, ValueError, zlib.error, csv.Error, OSError, pa.ArrowException) as error:
        return str(error)
    schema = footer.schema.to_arrow_schema().remove_metadata()
    kinds = tuple(footer.schema.column(at).physical_type for at in range(footer.num_columns))
    return _Head((str(schema), kinds), schema.names, footer=footer)


def _row_groups(
    footer: pq.FileMetaData, file: int, path: str, headers: Headers
) -> Iterator[RowGroup]:
    """Yield what a footer says of rows, and of their times where these are timestamps."""
    paths = [footer.schema.column(at).path for at in range(footer.num_columns)]
    ts, unit, begin = headers.columns.get("ts"), None, 1
    kind = footer.schema.to_arrow_schema().field(ts).type if ts in paths else None
    if kind is not None and pa.types.is_timestamp(kind):
        unit = _UNITS.get(kind.unit)
    for number in range(footer.num_row_groups):
        stated, times = footer.row_group(number), [None, None]
        statistics = stated.column(paths.index(ts)).statistics if unit else None
        if statistics is not None and statistics.has_min_max:
            times = [raw * unit // 1 for raw in (statistics.min_raw, statistics.max_raw)]
        yield RowGroup(file, path, headers, number, begin, stated.num_rows, *times)
        begin += stated.num_rows


def _head(kind: str, begin: bytes, *, is_gzip: bool) -> _Head:
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
        return _Head(kind)
    lines = re.split(r"\r\n?|\n", begin.decode("utf-8-sig", "surrogateescape"))
    text = next((line for line in lines if line.strip()), "")
    cells = next(csv.reader([text], strict=True, delimiter=delimiter_of(text)), [])
    if not cells or not all(name.isprintable() for name in cells):
        message = "no header"
        raise ValueError(message)
    return _Head(text, cells, text)


def _name(status: Any) -> str:
    """Return what people call a file: one of this machine by its path."""
    return str(status.getPath().toString()).removeprefix("file:")


class _Hadoop:
    """Files of any file system: the driver's JVM alone lists them all."""

    def __init__(self, session: SparkSession) -> None:
        """Find the JVM.

        Raises:
            UsageError: The session is Spark Connect's, which has none.
        """
        try:
            jvm: Any = session._jvm  # noqa: SLF001
        except AttributeError as error:
            message = (
                "Files are listed with Hadoop, which Spark Connect does not offer. Run this job "
                "with spark-submit or another --master; topics, and the jobs after it, need no "
                "files."
            )
            raise UsageError(message) from error
        self._settings = session._jsc.hadoopConfiguration()  # noqa: SLF001
        self._path = jvm.org.apache.hadoop.fs.Path
        self._bytes_of = jvm.org.apache.commons.io.IOUtils.toByteArray

    def read(self, status: Any, begin: int, end: int) -> bytes:
        """Return some bytes of a file."""
        path = status.getPath()
        stream = path.getFileSystem(self._settings).open(path)
        try:
            stream.seek(begin)
            return bytes(self._bytes_of(stream, end - begin))
        finally:
            stream.close()

    def files(self, uri: str, kind: str) -> Iterator[Any]:
        """Yield the status of each file that a URI or its pattern names, in folders those below.

        Raises:
            UsageError: There is none, or a pattern leads out of the folder in front of it.
        """
        path = self._path(uri)
        system = path.getFileSystem(self._settings)
        found = [system.getFileStatus(path)] if system.exists(path) else system.globStatus(path)
        if pattern := PATTERN.search(uri):
            front = uri[: pattern.start()].rpartition("/")[0]
            folder = self._path(front or ("/" if uri[0] == "/" else "."))
            below = f"{system.makeQualified(folder).toString().rstrip('/')}/"
            # `..` is gone from names by now, as `{../,}` would be.
            if not all(status.getPath().toString().startswith(below) for status in found or ()):
                message = (
                    f"--input {uri} is a pattern that leaves the folder in front of it, {front}."
                )
                raise UsageError(message)
        if not found:
            message = f"--input {uri} does not exist."
            raise UsageError(message)
        for status in found:
            yield from self._below(system, status, kind) if status.isDirectory() else [status]

    def _below(self, system: Any, folder: Any, kind: str) -> list[Any]:
        # `synth` and the collector put a folder of the shape beside others.
        above = folder.getPath()
        for name in (kind, "collected") if kind == "collect" else (kind,):
            below = self._path(above, name)
            above = below if system.exists(below) else above
        suffixes = FORMATS[kind].suffixes
        statuses, files = system.listFiles(above, True), []
        while statuses.hasNext():
            status = statuses.next()
            path = status.getPath().toString().removeprefix(above.toString()).strip("/")
            is_hidden = any(name.startswith(("_", ".")) for name in path.split("/"))
            if path.removesuffix(".gz").endswith(suffixes) and not is_hidden:
                files.append(status)
        if not files:
            message = (
                f"--input {_name(folder)} holds no {kind} file: none ends in {', '.join(suffixes)}."
            )
            raise UsageError(message)
        return files
