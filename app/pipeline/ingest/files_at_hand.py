"""Parquet of this machine, read by the tasks themselves: each reads all rows of some hours.

Footers say which hours a row group has. Where rows are in the order of time, as collectors and
exports write them, a task needs few row groups, and nothing is shuffled. Other files are Spark's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from app.pipeline.errors import InfrastructureError
from app.pipeline.ingest.inputs import FORMATS, Inputs, RowGroup
from app.pipeline.ingest.judging import Headers, judge_rows, times_of
from app.pipeline.ingest.minutes import HOUR_US
from app.pipeline.ingest.points import Rules
from app.pipeline.spark import is_local
from app.pipeline.usage.measures import Numbers

ROWS: Final = 1_500_000
"""About so many rows are summed up at once."""

_MOST_SHARES: Final = 4
"""A task reads at most so many times more."""

_AGAIN: Final = 2
"""A row is read at most so often, on average."""

_ALWAYS: Final = (-(2**40), 2**40)


class Rows(NamedTuple):
    """Where a row group is, and the hours of its first and last times, counted from the epoch."""

    path: str
    file: int
    headers: Headers
    row_group: RowGroup
    first: int
    last: int


@dataclass(slots=True)
class Share:
    """The hours that a task reads, ``until`` exclusive, and the row groups that have rows of them.

    The flag of a row group says whether its rows without a time are the task's, too.
    """

    since: int
    until: int
    row_groups: list[tuple[Rows, bool]] = field(default_factory=list)


def shares_of(
    session: SparkSession, inputs: Inputs, rules: Rules, *, rows: int = ROWS
) -> list[Share] | None:
    """Divide the hours of files among tasks; null where Spark had better read them."""
    keys = [file.key for group in inputs.groups for file in group.files]
    is_at_hand = is_local(session) and all(key.startswith("file:/") for key in keys)
    if not FORMATS[inputs.kind].parquet or not is_at_hand:
        return None
    since, until = _ALWAYS
    if rules.since_us is not None:
        since = rules.since_us // HOUR_US
    if rules.until_us is not None:
        until = -(-rules.until_us // HOUR_US)
    chosen = [item for item in _row_groups(inputs) if item.first < until and item.last >= since]
    shares = _divided(chosen, since, until, rows)
    sizes = [sum(item.row_group.rows for item, _ in share.row_groups) for share in shares]
    is_read_often = sum(sizes) > _AGAIN * sum(item.row_group.rows for item in chosen)
    return None if is_read_often or max(sizes, default=0) > _MOST_SHARES * rows else shares


def _row_groups(inputs: Inputs) -> Iterator[Rows]:
    for headers, file in ((each.headers, file) for each in inputs.groups for file in each.files):
        path = unquote(urlsplit(file.key).path)
        for item in file.row_groups:
            first = _ALWAYS[0] if item.oldest is None else item.oldest // HOUR_US
            last = _ALWAYS[1] if item.newest is None else item.newest // HOUR_US
            yield Rows(path, file.number, headers, item, first, last)


def _divided(found: Sequence[Rows], since: int, until: int, most: int) -> list[Share]:
    """Divide hours where row groups begin, so that each share has about as many rows."""
    in_order = sorted(found, key=lambda item: item.first)
    cuts, rows = [since], 0
    for item in in_order:
        if rows >= most and item.first > cuts[-1]:
            cuts.append(item.first)
            rows = 0
        rows += item.row_group.rows
    shares = [Share(*span) for span in zip(cuts, [*cuts[1:], until], strict=True)]
    for item in in_order:
        is_first = True
        for share in shares:
            if item.first < share.until and item.last >= share.since:
                share.row_groups.append((item, is_first))
                is_first = False
    return [share for share in shares if share.row_groups]


def read_share(share: Share, rules: Rules, *, ignores_broken: bool) -> list[pa.Table]:
    """Read and judge the rows of a share; broken row groups are an error, or left out.

    Raises:
        InfrastructureError: One cannot be read.
    """
    points, files = [], {}
    for item, is_first in share.row_groups:
        fields = item.headers.schema or ()
        texts = [each.name for each in fields if pa.types.is_string(each.type)]
        try:
            if item.path not in files:
                files[item.path] = pq.ParquetFile(item.path, read_dictionary=texts)
            rows = files[item.path].read_row_group(
                item.row_group.number, columns=item.headers.read, use_threads=False
            )
        except (OSError, pa.ArrowException) as error:
            if ignores_broken:
                continue
            message = f"{item.path} cannot be read: {error}"
            raise InfrastructureError(message) from error
        columns = {
            "file": pa.array(np.full(len(rows), item.file, np.int32)),
            "line": pa.array(np.arange(len(rows)) + item.row_group.begin),
            "text": pa.nulls(len(rows), pa.string()),
        }
        read = pa.table(
            [*columns.values(), *rows.select(item.headers.read)], [*columns, *item.headers.read]
        )
        if item.first < share.since or item.last >= share.until:
            own = _are_own(times_of(rows, item.headers), share, is_first=is_first)
            read = read.filter(pa.array(own))
        points.append(judge_rows(read, item.headers, rules))
    return points


def _are_own(times: pa.Array, share: Share, *, is_first: bool) -> Numbers:
    """Tell which rows are of a share's hours; those without a time are of the first share."""
    if isinstance(times, pa.ChunkedArray):
        times = times.combine_chunks()
    hours = times.fill_null(0).to_numpy(zero_copy_only=False) // HOUR_US
    is_within = (hours >= share.since) & (hours < share.until)
    own: Numbers = np.where(times.is_valid().to_numpy(zero_copy_only=False), is_within, is_first)
    return own
