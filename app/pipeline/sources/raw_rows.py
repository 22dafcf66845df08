"""Tidy Parquet that Spark itself can read, as rows that tasks judge later by whole columns."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from app.pipeline.sources.columns import FIELDS, Columns
from app.pipeline.sources.raw_points import RAW_DDL, Layout

_PLAIN: Final = re.compile(r"[\w/.=+,:@-]+", re.ASCII)
"""Paths that are the same in a URI."""

_BROKER: Final = "broker_id"
_NAMES: Final = ("instance", "metric", "resource", "user", "client_id", "cluster_id")


def raw_types(schema: pa.Schema, columns: Columns, file: Path) -> Mapping[str, str] | None:
    """Return the types that Spark shall read a file's columns with, by header.

    Null where Spark would read the file otherwise than ``read_parquet`` does, or not at all:
    types that it lacks, headers that differ by case alone, paths that a URI spells otherwise.
    """
    alike = {name.lower() for name in schema.names}
    hidden = file.name.startswith(("_", "."))
    if len(alike) < len(schema.names) or hidden or not _PLAIN.fullmatch(str(file)):
        return None
    types: dict[str, str] = {}
    for field, header in columns.items():
        if header is None:
            continue
        kind = _type_of(field, schema.field(header).type)
        if kind is None or types.setdefault(header, kind) != kind:
            return None
    return types


def _type_of(field: str, kind: pa.DataType) -> str | None:
    if field == "ts":
        if not pa.types.is_timestamp(kind) or kind.unit not in ("us", "ms"):
            return None
        return {None: "timestamp_ntz", "UTC": "timestamp"}.get(kind.tz)
    if field == "value":
        return "double" if pa.types.is_float64(kind) else None
    if field == _BROKER and pa.types.is_int32(kind):
        return "int"
    return "string" if pa.types.is_string(kind) else None


def layouts_of(pieces: Sequence[Mapping[str, Any]]) -> Mapping[int, Layout]:
    """Return the layouts of files, by their numbers."""
    return {piece["file"]: _layout_of(piece) for piece in pieces}


def _layout_of(piece: Mapping[str, Any]) -> Layout:
    fields = {header: field for field, header in piece["columns"].items() if header is not None}
    told = [
        (header, "broker" if fields[header] == _BROKER else fields[header], _shown(piece, header))
        for header in piece["headers"]
    ]
    return Layout(told, piece["cluster"])


def _shown(piece: Mapping[str, Any], header: str) -> str:
    return {"int": "int", "timestamp_ntz": "naive"}.get(piece["types"][header], "")


def raw_rows(session: SparkSession, pieces: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return the rows of files: the columns of ``RAW_DDL``.

    Args:
        session: Reads them.
        pieces: One for each file: ``file``, ``path``, ``columns``, ``types``, ``headers``,
            ``cluster``.
    """
    alike: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for piece in pieces:
        alike[str((piece["columns"], piece["types"], piece["cluster"]))].append(piece)
    first, *others = [_read(session, group) for group in alike.values()]
    for another in others:
        first = first.unionByName(another)
    return first


def _read(session: SparkSession, pieces: Sequence[Mapping[str, Any]]) -> DataFrame:
    columns, types, cluster = (pieces[0][name] for name in ("columns", "types", "cluster"))
    ddl = ", ".join(f"`{_quoted(header)}` {kind}" for header, kind in types.items())
    frame = session.read.schema(ddl).parquet(*(piece["path"] for piece in pieces))
    told = {
        "broker" if field == _BROKER else field: _cell(columns[field], cluster, field)
        for field in FIELDS
    }
    place = sf.col("_metadata")
    rows = frame.select(
        place.getField("row_index").alias("row"),
        place.getField("file_path").alias("path"),
        *(column.alias(name) for name, column in told.items()),
    ).withColumn("line", sf.col("row") + 1)
    numbers = {piece["path"]: piece["file"] for piece in pieces}
    if len(numbers) == 1:
        numbered = rows.withColumn("file", sf.lit(pieces[0]["file"]))
    else:
        files = session.createDataFrame(list(numbers.items()), "path string, file int")
        local = sf.regexp_replace("path", "^file:/+", "/")
        numbered = rows.withColumn("path", local).join(sf.broadcast(files), "path")
    names = [part.split()[0] for part in RAW_DDL.replace("\n", " ").split(",")]
    return numbered.select(*names)


def _cell(header: str | None, cluster: str, field: str) -> Any:
    if header is None:
        return sf.lit(cluster if field == "cluster_id" else "")
    column = sf.col(f"`{_quoted(header)}`")
    if field == "ts":
        return column.cast("timestamp")
    return column.cast("string") if field == _BROKER else column


def _quoted(header: str) -> str:
    return header.replace("`", "``")
