"""What ``--input`` names: the files or offsets, cut into pieces for tasks, none read yet."""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from app.pipeline.errors import UsageError
from app.pipeline.folders import files_below, places_of
from app.pipeline.sources.columns import columns_of
from app.pipeline.sources.csv_files import csv_header
from app.pipeline.sources.formats import FORMATS, Piece, open_stream
from app.pipeline.sources.kafka_topic import (
    SCHEME,
    OffsetRange,
    Settings,
    cut,
    offsets_of,
    topic_of,
)
from app.pipeline.sources.metric_map import MetricMap
from app.pipeline.sources.raw_rows import raw_types

_ROWS_OF_PIECE: Final = 1_000_000
_BYTES_OF_POINT: Final = 100
_COLLECTED: Final = "collected"


@dataclass(slots=True)
class Inputs:
    """What a run reads.

    Attributes:
        names: Of the inputs, by their numbers: paths, or partitions of a topic.
        pieces: What tasks read.
        ranges: Of the topics.
        settings: Of the Kafka client.
        points: About how many there are; the same for the same inputs.
    """

    names: list[str] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    ranges: list[OffsetRange] = field(default_factory=list)
    settings: Settings = field(default_factory=dict)
    points: int = 0


def topic_inputs(uris: Iterable[str], settings: Settings) -> Inputs:
    """Ask for the offsets of topics.

    Raises:
        UsageError: A URI is wrong, or there is no such topic.
        InfrastructureError: The brokers do not answer.
    """
    inputs = Inputs(settings=settings)
    for uri in sorted(set(uris)):
        servers, topic = topic_of(uri)
        for item in offsets_of(topic, {**settings, "bootstrap.servers": servers}):
            piece = {"file": len(inputs.names), "servers": servers}
            inputs.names.append(f"{SCHEME}{servers}/{topic}/{item.partition}")
            inputs.ranges.append(item)
            inputs.points += item.end - item.first
            inputs.pieces += [{**piece, "range": asdict(part)} for part in cut(item)]
    return inputs


def file_inputs(uris: Iterable[str], kind: str, told: MetricMap) -> Inputs:
    """Find the files of a format, and their columns.

    Raises:
        UsageError: There is none, or one lacks a column.
    """
    inputs = Inputs()
    files = sorted({file for uri in uris for file in _files_of(uri, kind)})
    for number, file in enumerate(files):
        inputs.names.append(str(file))
        try:
            pieces = list(_pieces_of(file, kind, told))
        except (OSError, EOFError, ValueError, zlib.error, pa.ArrowException) as error:
            pieces = [{"unreadable": str(error)}]
        inputs.pieces += [{"file": number, **piece} for piece in pieces]
        inputs.points += sum(piece.get("rows", 0) for piece in pieces) or _points_of(file)
    return inputs


def _points_of(file: Path) -> int:
    return file.stat().st_size // _BYTES_OF_POINT if file.exists() else 0


def _files_of(uri: str, kind: str) -> list[Path]:
    found = places_of(uri)
    if not found:
        message = f"--input {uri} does not exist."
        raise UsageError(message)
    return [
        file
        for result in found
        for file in (_files_in(result, kind) if result.is_dir() else [result])
    ]


def _files_in(folder: Path, kind: str) -> list[Path]:
    place = _inner(folder, kind)
    suffixes = FORMATS[kind].suffixes
    files = [
        file for file in files_below(place) if file.name.removesuffix(".gz").endswith(suffixes)
    ]
    if not files:
        message = f"--input {folder} holds no {kind} file: none ends in {', '.join(suffixes)}."
        raise UsageError(message)
    return files


def _inner(folder: Path, kind: str) -> Path:
    """Return the folder of the shape, where ``synth`` or the collector put others beside it."""
    shape = folder / kind if (folder / kind).is_dir() else folder
    collected = shape / _COLLECTED
    return collected if kind == "collect" and collected.is_dir() else shape


def _pieces_of(file: Path, kind: str, told: MetricMap) -> Iterator[Piece]:
    piece: Piece = {"format": kind, "path": str(file)}
    if not FORMATS[kind].columnar:
        with open_stream(file):
            yield piece
    elif kind == "csv":
        with open_stream(file) as stream:
            yield {**piece, "columns": columns_of(csv_header(stream), told, str(file))}
    else:
        yield from _parquet_pieces(file, told, piece)


def _parquet_pieces(file: Path, told: MetricMap, piece: Piece) -> Iterator[Piece]:
    with pq.ParquetFile(file) as opened:
        schema, footer = opened.schema_arrow, opened.metadata
    columns = columns_of(schema.names, told, str(file))
    used = {header for header in columns.values() if header is not None}
    shared = {
        **piece,
        "columns": columns,
        "types": raw_types(schema, columns),
        "headers": sorted(used),
        "cluster": _cluster_of(file),
    }
    groups: list[int] = []
    rows = 0
    for group in range(footer.num_row_groups):
        groups.append(group)
        rows += footer.row_group(group).num_rows
        if rows >= _ROWS_OF_PIECE or group == footer.num_row_groups - 1:
            yield {**shared, "groups": groups, "rows": rows}
            groups, rows = [], 0


def _cluster_of(file: Path) -> str:
    """Return the cluster id of a folder partitioned by it; '' elsewhere."""
    named = [part for part in file.parts if part.startswith("cluster_id=")]
    return unquote(named[-1].removeprefix("cluster_id=")) if named else ""
