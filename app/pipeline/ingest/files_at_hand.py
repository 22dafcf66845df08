"""Parquet of this machine, read by the tasks themselves: each reads all rows of some hours.

Footers say which hours a row group has. Where rows are in the order of time, as collectors and
exports write them, a task needs few row groups, and nothing is shuffled. Other files are Spark's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from app.pipeline.errors import InfrastructureError
from app.pipeline.ingest.columns import tidy_rows, times_of
from app.pipeline.ingest.inputs import Inputs, RowGroup
from app.pipeline.ingest.minutes import HOUR_US
from app.pipeline.ingest.points import Rules, judge
from app.pipeline.spark import is_local
from app.pipeline.usage.measures import Numbers

ROWS: Final = 1_500_000
"""About so many rows are summed up at once."""

_MOST_SHARES: Final = 4
"""A task reads at most so many times more."""

_AGAIN: Final = 2
"""A row is read at most so often, on average."""

_FIRST, _LAST = -(2**40), 2**40


@dataclass(slots=True)
class Share:
    """The hours of the epoch that a task reads, and the row groups that may have rows of them.

    ``until`` is exclusive. The flag of a row group says whether its rows without a time are the
    task's, too.
    """

    since: int
    until: int
    row_groups: list[tuple[RowGroup, bool]] = field(default_factory=list)


def shares_of(
    session: SparkSession, inputs: Inputs, rules: Rules, *, rows: int = ROWS
) -> list[Share] | None:
    """Divide the hours of files among tasks; null where Spark had better read them."""
    is_at_hand = is_local(session) and all(key.startswith("file:/") for key in inputs.keys)
    if not inputs.format.parquet or not is_at_hand:
        return None
    since = _FIRST if rules.since_us is None else rules.since_us // HOUR_US
    until = _LAST if rules.until_us is None else -(-rules.until_us // HOUR_US)
    in_order = sorted(inputs.row_groups, key=lambda item: _hours(item)[0])
    chosen = [item for item in in_order if _is_within(item, since, until)]
    shares = _divided(chosen, since, until, rows)
    sizes = [sum(item.rows for item, _ in share.row_groups) for share in shares]
    is_read_often = sum(sizes) > _AGAIN * sum(item.rows for item in chosen)
    return None if is_read_often or max(sizes, default=0) > _MOST_SHARES * rows else shares


def _hours(item: RowGroup) -> tuple[int, int]:
    """Return the hours of the first and last times of rows."""
    return (
        _FIRST if item.oldest is None else item.oldest // HOUR_US,
        _LAST if item.newest is None else item.newest // HOUR_US,
    )


def _is_within(item: RowGroup, since: int, until: int) -> bool:
    first, last = _hours(item)
    return first < until and last >= since


def _divided(in_order: Sequence[RowGroup], since: int, until: int, most: int) -> list[Share]:
    """Divide hours where row groups begin, so that each share has about as many rows."""
    cuts, rows = [since], 0
    for item in in_order:
        first, _ = _hours(item)
        if rows >= most and first > cuts[-1]:
            cuts.append(first)
            rows = 0
        rows += item.rows
    shares = [Share(*span) for span in zip(cuts, [*cuts[1:], until], strict=True)]
    for item in in_order:
        own = [share for share in shares if _is_within(item, share.since, share.until)]
        for share in own:
            share.row_groups.append((item, share is own[0]))
    return [share for share in shares if share.row_groups]


def read_share(share: Share, rules: Rules, *, ignores_broken: bool) -> Iterator[pa.RecordBatch]:
    """Read and judge the rows of a share; broken row groups are an error, or left out.

    Raises:
        InfrastructureError: One cannot be read.
    """
    files = {}
    for item, is_first in share.row_groups:
        headers = item.headers
        texts = [each.name for each in headers.schema or () if pa.types.is_string(each.type)]
        try:
            if item.path not in files:
                files[item.path] = pq.ParquetFile(item.path, read_dictionary=texts)
            columns = files[item.path].read_row_group(
                item.number, columns=headers.read, use_threads=False
            )
        except (OSError, pa.ArrowException) as error:
            if ignores_broken:
                continue
            message = f"{item.path} cannot be read: {error}"
            raise InfrastructureError(message) from error
        origin = {
            "file": pa.array(np.full(len(columns), item.file, np.int32)),
            "line": pa.array(np.arange(len(columns)) + item.begin),
        }
        named = columns.select(headers.read)
        read = pa.table([*origin.values(), *named], [*origin, *headers.read])
        first, last = _hours(item)
        if first < share.since or last >= share.until:
            own = _are_own(times_of(columns, headers), share, is_first=is_first)
            read = read.filter(pa.array(own))
        yield from judge(tidy_rows(read, headers), rules).to_batches()


def _are_own(times: pa.Array | pa.ChunkedArray, share: Share, *, is_first: bool) -> Numbers:
    """Tell which rows are of a share's hours; those without a time are of the first share."""
    hours = times.fill_null(0).to_numpy() // HOUR_US
    is_within = (hours >= share.since) & (hours < share.until)
    own: Numbers = np.where(times.is_valid().to_numpy(False), is_within, is_first)
    return own
