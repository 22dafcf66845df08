"""Tables in folders of this machine, read into columns without Spark.

Spark needs seconds to plan and read hundreds of folders and to hand their rows to Python, pyarrow
tenths of a second for the same files. What is in no folder of this machine, or in several lakes,
or more than fits here, is left to Spark.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as pads
from pyarrow.fs import LocalFileSystem
from pyspark.sql.pandas.types import to_arrow_schema

from app.pipeline.folders import folder_here
from app.pipeline.lake import Lake, Partition, schema_of
from app.pipeline.tables import REVISION, Table

MOST_BYTES: Final = 2**28
"""Of files, which are compressed; columns take about five times as much memory."""

_ATTEMPTS: Final = 100


def local_columns(
    lakes: Sequence[Lake], table: Table, partitions: Collection[Partition], names: Sequence[str]
) -> pa.Table | None:
    """Return columns of partitions, or null where this process cannot read them by itself.

    Args:
        lakes: Where the table is.
        table: Which; of revisions the newest count.
        partitions: Have all partition columns of the table.
        names: Of the columns; those that a file lacks are null.
    """
    if len(lakes) != 1 or lakes[0].is_catalog:
        return None
    folder = folder_here(lakes[0].session, lakes[0].address(table))
    if folder is None:
        return None
    wanted = {tuple(item[name] for name in table.partitions) for item in partitions}
    for _ in range(_ATTEMPTS):
        try:
            files = _files_below(folder, table, wanted)
            if files is None or sum(file.stat().st_size for file in files) > MOST_BYTES:
                return None
            return _read(files, table, names)
        except FileNotFoundError:
            # Another run has replaced the partition meanwhile.
            continue
    return None


_Files = dict[Path, tuple[str, ...]]
"""The partition values of each file."""


def _files_below(folder: Path, table: Table, wanted: Collection[tuple[str, ...]]) -> _Files | None:
    """Return the files of partitions; null where folders are those of an earlier version."""
    found: _Files = {}
    for partition, values in _partitions_below(folder, table.partitions):
        files = _listed(partition) if values in wanted else []
        if table.has_revisions and files:
            if not files[-1].name.startswith(f"{REVISION}="):
                return None
            files = _listed(files[-1])
        found |= dict.fromkeys(files, values)
    return found


def _listed(folder: Path) -> list[Path]:
    """Return what is in a folder, in order; names that begin with _ or . hold no rows."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith(("_", ".")))


def _partitions_below(
    folder: Path, columns: Sequence[str], values: tuple[str, ...] = ()
) -> Iterator[tuple[Path, tuple[str, ...]]]:
    if not columns:
        yield folder, values
        return
    for path in _listed(folder):
        name, _, value = path.name.partition("=")
        if name == columns[0]:
            yield from _partitions_below(path, columns[1:], (*values, unquote(value)))


def _read(files: Mapping[Path, tuple[str, ...]], table: Table, names: Sequence[str]) -> pa.Table:
    schema = to_arrow_schema(schema_of(table))
    chosen = pa.schema([schema.field(name) for name in names])
    if not files:
        return chosen.empty_table()
    guarantees = {values: _guarantee(schema, table, values) for values in files.values()}
    dataset = pads.FileSystemDataset.from_paths(
        [f"{file}" for file in files],
        schema=chosen,
        format=pads.ParquetFileFormat(),
        filesystem=LocalFileSystem(),
        partitions=[guarantees[values] for values in files.values()],
    )
    return dataset.to_table()


def _guarantee(schema: pa.Schema, table: Table, values: Sequence[str]) -> pads.Expression:
    """Say what the partition columns of a file are."""
    claim = pads.scalar(True)
    for name, text in zip(table.partitions, values, strict=True):
        claim &= pads.field(name) == pa.scalar(text).cast(schema.field(name).type)
    return claim
