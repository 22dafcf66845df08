"""The formats of metrics: what their files are called, and how each is read."""

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

from app.pipeline.sources.csv_files import read_csv
from app.pipeline.sources.json_lines import read_adapter_lines, read_export_lines
from app.pipeline.sources.kafka_topic import OffsetRange, read_topic
from app.pipeline.sources.parquet_files import read_parquet
from app.pipeline.sources.points import UNREADABLE, Points
from app.pipeline.sources.series import read_query_range

KAFKA: Final = "kafka-json"

_LINES: Final = (".jsonl", ".ndjson", ".json", ".log", ".txt")


@dataclass(frozen=True, slots=True)
class Format:
    """A format of files.

    Attributes:
        suffixes: Of the files to take from a folder, with or without ``.gz`` behind.
        tags: Whether names are tags of metrics unless the map says otherwise.
        columnar: Whether the columns have headers.
    """

    suffixes: tuple[str, ...]
    tags: bool
    columnar: bool = False


FORMATS: Final[Mapping[str, Format]] = {
    "parquet": Format((".parquet",), tags=False, columnar=True),
    "prom-json": Format((".json",), tags=True),
    "vm-jsonl": Format(_LINES, tags=True),
    "csv": Format((".csv", ".tsv", ".txt"), tags=False, columnar=True),
    "adapter-json": Format(_LINES, tags=True),
    KAFKA: Format((), tags=True),
    "collect": Format((".parquet",), tags=True, columnar=True),
}

_STREAMS: Final[Mapping[str, Callable[[BinaryIO, Points], Iterator[pa.RecordBatch]]]] = {
    "prom-json": read_query_range,
    "vm-jsonl": read_export_lines,
    "adapter-json": read_adapter_lines,
}

Piece = Mapping[str, Any]
"""What one task reads. ``file``: the number of the input; then ``unreadable``: why, or
``format`` with ``path``, ``columns``, ``groups``, ``rows``, ``types`` (of ``raw_types``),
``headers`` and ``cluster`` as the format needs them, or ``servers`` and ``range``."""


def read_piece(
    piece: Piece, settings: Mapping[str, str], points: Points
) -> Iterator[pa.RecordBatch]:
    """Read a piece; a file that cannot be read is one row that says why."""
    try:
        yield from _read(piece, settings, points)
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        points.reject(0, UNREADABLE, str(error))
    yield from points.batches(last=True)


def _read(piece: Piece, settings: Mapping[str, str], points: Points) -> Iterator[pa.RecordBatch]:
    if "unreadable" in piece:
        points.reject(0, UNREADABLE, piece["unreadable"])
    elif "range" in piece:
        reached = {**settings, "bootstrap.servers": piece["servers"]}
        yield from read_topic(OffsetRange(**piece["range"]), reached, points)
    elif "groups" in piece:
        yield from read_parquet(piece, points)
    else:
        with open_stream(Path(piece["path"])) as stream:
            if "columns" in piece:
                yield from read_csv(stream, piece["columns"], points)
            else:
                yield from _STREAMS[piece["format"]](stream, points)


def open_stream(path: Path) -> BinaryIO:
    """Open a file, through gzip where it is that."""
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return cast("BinaryIO", gzip.GzipFile(path)) if zipped else path.open("rb")
