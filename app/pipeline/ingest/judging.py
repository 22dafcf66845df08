"""What the tasks of readers do: they parse what they get, and judge it.

Workers have numpy and pyarrow, and not what the driver needs beside them.
"""

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import BinaryIO, Final, cast

import numpy as np
import pyarrow as pa

from app.pipeline.ingest.metric_map import Columns, MetricMap
from app.pipeline.ingest.points import Rules, judge, without_dictionaries
from app.pipeline.ingest.rows import UNREADABLE, Rows
from app.pipeline.ingest.text_files import (
    GZIP,
    SeriesLabels,
    read_adapter_lines,
    read_csv,
    read_export_lines,
    read_query_range,
)
from app.pipeline.ingest.texts import Texts
from app.pipeline.ingest.tidy_rows import Headers, judge_rows, times_of

Batches = Iterable[pa.RecordBatch]

_STREAMS: Final[Mapping[str, Callable[..., Iterator[pa.RecordBatch]]]] = {
    "prom-json": read_query_range,
    "vm-jsonl": read_export_lines,
    "adapter-json": read_adapter_lines,
}


def judge_batches(batches: Batches, *, rules: Rules) -> Iterator[pa.RecordBatch]:
    """Judge batches of the columns of ``ROWS_DDL``."""
    for batch in batches:
        texts = batch.column("text")
        points = judge(pa.Table.from_batches([batch]), rules, lambda at: texts.take(pa.array(at)))  # noqa: B023 - called at once
        yield from without_dictionaries(points).to_batches()


def judge_tidy(
    batches: Batches, *, headers: Headers, rules: Rules, numbers: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    """Judge batches of the headers, each row's path, and its number in the file.

    Args:
        batches: Of Parquet.
        headers: Say which column is what.
        rules: How.
        numbers: Of the files, by their paths.
    """
    for batch in batches:
        rows = pa.Table.from_batches([batch]).rename_columns([*headers.read, "file", "row"])
        files = Texts.of(rows["file"]).look_up(lambda path: numbers[f"{path}"], np.int64)
        positions = rows["row"].to_numpy()
        found = judge_rows(rows.select(headers.read), headers, rules, files, positions)
        yield from without_dictionaries(found).to_batches()


def read_times(batches: Batches, *, headers: Headers) -> Iterator[pa.RecordBatch]:
    """Read batches of times alone: the column ``ts`` of ``POINTS_DDL``."""
    for batch in batches:
        rows = pa.Table.from_batches([batch]).rename_columns([f"{headers.columns['ts']}"])
        yield from pa.table({"ts": times_of(rows, headers)}).to_batches()


def judge_files(
    batches: Batches,
    *,
    kind: str,
    numbers: Mapping[str, int],
    columns: Columns | None,
    rules: Rules,
) -> Iterator[pa.RecordBatch]:
    """Judge the points of whole files: records and documents span any split of them.

    Args:
        batches: Path and content of each file.
        kind: The format.
        numbers: Of the files, by their paths.
        columns: Which column is what, in a CSV.
        rules: How.
    """
    parsed = _parse_files(batches, kind=kind, numbers=numbers, columns=columns, names=rules.map)
    return judge_batches(parsed, rules=rules)


def _parse_files(
    batches: Iterable[pa.RecordBatch],
    *,
    kind: str,
    numbers: Mapping[str, int],
    columns: Columns | None,
    names: MetricMap,
) -> Iterator[pa.RecordBatch]:
    read: Callable[[BinaryIO, Rows], Iterator[pa.RecordBatch]] = (
        partial(_STREAMS[kind], names=SeriesLabels(names))
        if columns is None
        else partial(read_csv, columns=columns)
    )
    for batch in batches:
        for path, item in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            content = item.as_py()
            rows, stream = Rows(numbers[path]), cast("BinaryIO", io.BytesIO(content))
            if content.startswith(GZIP):
                stream = cast("BinaryIO", gzip.GzipFile(fileobj=stream))
            try:
                yield from read(stream, rows)
            except (OSError, EOFError, zlib.error) as error:
                rows.reject(0, UNREADABLE, str(error))
            yield from rows.batches(last=True)
