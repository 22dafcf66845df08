"""Parquet that tasks write themselves, whole columns at a time, in the layout of a table."""

from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from app.pipeline.arrow_storage import arrow_schema
from app.pipeline.folders import partition_place
from app.pipeline.tables import SCHEMA_VERSION, Table

_EPOCH: Final = date(1970, 1, 1)
_VERSION: Final = b"schema_version"
_MOST_DICTIONARY: Final = 8 * 2**20
"""Bytes; names repeat, and a dictionary that overflows would double the size of the file."""


def write_day(  # noqa: PLR0913 - what, where and how
    rows: pa.Table,
    table: Table,
    place: str,
    day: tuple[str, int],
    number: int,
    *,
    marks: Mapping[bytes, bytes] | None = None,
) -> None:
    """Write one file of a partition; a second try of the same task replaces it.

    Args:
        rows: In the order of the table; columns that it lacks are null. Texts may be encoded by
            dictionaries.
        table: The layout, by cluster and day.
        place: The folder of the table.
        day: Cluster, and day since the epoch.
        number: Of the task: each writes one file for a partition.
        marks: What the footer shall say beside the version.
    """
    cluster, since_epoch = day
    partition = {"cluster_id": cluster, "dt": str(_EPOCH + timedelta(days=since_epoch))}
    folder = Path(place) / partition_place(table, partition)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"part-{number:05d}.parquet"
    part = file.with_name(f".{file.name}.part")
    _write(_arranged(rows, table), part, {_VERSION: str(SCHEMA_VERSION).encode(), **(marks or {})})
    part.replace(file)


def _write(rows: pa.Table, file: Path, footer: Mapping[bytes, bytes]) -> None:
    with pq.ParquetWriter(
        file,
        rows.schema,
        compression="zstd",
        # Numbers mostly differ: a dictionary of them takes longer to make than it saves.
        use_dictionary=[item.name for item in rows.schema if _is_text(item.type)],
        dictionary_pagesize_limit=_MOST_DICTIONARY,
        # Readers would get dictionaries for texts; but without the schema its metadata is lost.
        store_schema=False,
    ) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata(footer)


def _arranged(rows: pa.Table, table: Table) -> pa.Table:
    fields = [item for item in arrow_schema(table) if item.name not in table.partitions]
    columns = [
        _typed(rows[field.name], field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in fields
    ]
    return pa.table(columns, [field.name for field in fields])


def _typed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if pa.types.is_dictionary(column.type) else column.cast(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) or pa.types.is_string(kind))
