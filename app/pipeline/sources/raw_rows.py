"""Tidy Parquet whose types are plain, as rows that tasks judge by whole columns."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.pipeline.sources.codes import in_one_piece
from app.pipeline.sources.columns import FIELDS, Columns
from app.pipeline.sources.raw_points import Layout

_BROKER: Final = "broker_id"
_TIME: Final = pa.timestamp("us", "UTC")
_SECOND: Final = 1_000_000
_ROWS_AT_ONCE: Final = 1_000_000
_DAY_S: Final = 86_400


def raw_types(schema: pa.Schema, columns: Columns) -> Mapping[str, str] | None:
    """Return the types of a file's columns, by header; null where ``read_raw`` cannot read one."""
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


def read_raw(piece: Mapping[str, Any]) -> Iterator[pa.Table]:
    """Yield rows of a piece as ``raw_points`` takes them, about a million at a time.

    A line is a row of the file, from 1.

    Args:
        piece: ``file``, ``path``, ``columns``, ``types``, ``headers``, ``groups``, ``cluster``.

    Raises:
        OSError, pa.ArrowException: The file is broken.
    """
    groups, types = piece["groups"], piece["types"]
    texts = [header for header, kind in types.items() if kind == "string"]
    with pq.ParquetFile(piece["path"], read_dictionary=texts) as file:
        line = 1 + sum(file.metadata.row_group(number).num_rows for number in range(groups[0]))
        wanted = {"row_groups": groups, "columns": piece["headers"]}
        for batch in file.iter_batches(_ROWS_AT_ONCE, **wanted):
            yield _raw(pa.Table.from_batches([batch]), line, piece)
            line += batch.num_rows


def _raw(rows: pa.Table, line: int, piece: Mapping[str, Any]) -> pa.Table:
    columns = piece["columns"]
    told = {
        "broker" if field == _BROKER else field: _cells(rows, columns[field], field, piece)
        for field in FIELDS
    }
    number = pa.array(np.full(rows.num_rows, piece["file"], np.int32))
    return pa.table({"file": number, "line": pa.array(np.arange(rows.num_rows) + line), **told})


def _cells(rows: pa.Table, header: str | None, field: str, piece: Mapping[str, Any]) -> Any:
    if header is None:
        nothing = piece["cluster"] if field == "cluster_id" else ""
        same = pa.array(np.zeros(rows.num_rows, np.int32))
        return pa.DictionaryArray.from_arrays(same, pa.array([nothing]))
    column = rows[header]
    if field == "ts":
        return column.cast(_TIME)
    if piece["types"][header] == "int":
        numbers = in_one_piece(column).dictionary_encode()
        ids = numbers.dictionary.cast(pa.string())
        return pa.DictionaryArray.from_arrays(numbers.indices, ids)
    return column


def count_days(piece: Mapping[str, Any]) -> Mapping[int, int]:
    """Return how many rows of a piece are of each day since the epoch.

    Raises:
        OSError, pa.ArrowException: The file is broken.
    """
    header = piece["columns"]["ts"]
    with pq.ParquetFile(piece["path"]) as file:
        rows = file.read_row_groups(piece["groups"], columns=[header])
    micros = in_one_piece(rows[header].cast(_TIME)).drop_null().cast(pa.int64())
    days, counts = np.unique(micros.to_numpy() // (_DAY_S * _SECOND), return_counts=True)
    return dict(zip(days.tolist(), counts.tolist(), strict=True))
