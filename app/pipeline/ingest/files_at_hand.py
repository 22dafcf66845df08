"""Parquet of this machine, read by the tasks themselves: each reads all rows of some hours.

Footers say which hours a row group has. Where rows are in the order of time, as collectors and
exports write them, a task needs few row groups, and nothing is shuffled. Other files are Spark's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from app.pipeline.errors import InfrastructureError
from app.pipeline.ingest.inputs import FORMATS, FileGroup, Inputs
from app.pipeline.ingest.minutes import HOUR_US
from app.pipeline.ingest.points import Rules
from app.pipeline.ingest.summing import Read
from app.pipeline.ingest.tidy_rows import Headers, judge_rows, times_of
from app.pipeline.spark import is_local
from app.pipeline.usage.measures import Numbers

ROWS: Final = 1_500_000
"""About so many rows are summed up at once."""

_MOST_SHARES: Final = 4
"""A task reads at most so many times more."""

_AGAIN: Final = 2
"""A row is read at most so often, on average."""

_UNITS: Final = {"ms": 1_000, "us": 1, "ns": -1_000}
_ALWAYS: Final = (-(2**40), 2**40)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Some rows of a file.

    Attributes:
        path: Of the file.
        file: The number of the file.
        group: The number of its group in the input.
        number: Of the row group.
        begin: The number of its first row in the file.
        rows: How many it has.
        oldest: Its first time, in microseconds of the epoch; null where the footer does not say.
        newest: Its last time.
    """

    path: str
    file: int
    group: int
    number: int
    begin: int
    rows: int
    oldest: int | None
    newest: int | None

    @property
    def first(self) -> int:
        """The hour of its first time, counted from the epoch."""
        return _ALWAYS[0] if self.oldest is None else self.oldest // HOUR_US

    @property
    def last(self) -> int:
        """The hour of its last time."""
        return _ALWAYS[1] if self.newest is None else self.newest // HOUR_US


@dataclass(slots=True)
class Share:
    """What a task reads.

    Attributes:
        since: Its first hour.
        until: Exclusive.
        row_groups: That have rows of its hours, and whether those without a time are its, too.
    """

    since: int
    until: int
    row_groups: list[tuple[RowGroup, bool]] = field(default_factory=list)


def row_groups_of(session: SparkSession, inputs: Inputs) -> list[RowGroup] | None:
    """Return what the footers say, or null where tasks cannot read the files themselves."""
    files = [file for group in inputs.groups for file in group.files]
    if not FORMATS[inputs.kind].parquet or not is_local(session):
        return None
    if not all(file.key.startswith("file:/") for file in files):
        return None
    try:
        return [
            item
            for number, group in enumerate(inputs.groups)
            for item in _row_groups(number, group)
        ]
    except (OSError, pa.ArrowException):
        return None


def shares_of(
    session: SparkSession, inputs: Inputs, rules: Rules, *, rows: int = ROWS
) -> list[Share] | None:
    """Divide the hours of files among tasks; null where Spark had better read them.

    Args:
        session: Runs the tasks.
        inputs: The files.
        rules: Which times are read.
        rows: About so many are read by a task.
    """
    found = row_groups_of(session, inputs)
    if found is None:
        return None
    since, until = _ALWAYS
    if rules.since_us is not None:
        since = rules.since_us // HOUR_US
    if rules.until_us is not None:
        until = -(-rules.until_us // HOUR_US)
    chosen = [item for item in found if item.first < until and item.last >= since]
    shares = _divided(chosen, since, until, rows)
    sizes = [sum(item.rows for item, _ in share.row_groups) for share in shares]
    is_read_often = sum(sizes) > _AGAIN * sum(item.rows for item in chosen)
    return None if is_read_often or max(sizes, default=0) > _MOST_SHARES * rows else shares


def _row_groups(number: int, group: FileGroup) -> Iterator[RowGroup]:
    header = (group.columns or {}).get("ts")
    for file in group.files:
        path = unquote(urlsplit(file.key).path)
        footer = pq.read_metadata(path)
        kinds = footer.schema.to_arrow_schema()
        positions = {footer.schema.column(at).path: at for at in range(len(footer.schema))}
        begin = 0
        for at in range(footer.num_row_groups):
            stated = footer.row_group(at)
            oldest = newest = None
            if header in positions and pa.types.is_timestamp(kinds.field(header).type):
                unit = _UNITS[kinds.field(header).type.unit]
                statistics = stated.column(positions[header]).statistics
                if statistics is not None and statistics.has_min_max:
                    oldest, newest = (
                        value * unit if unit > 0 else value // -unit
                        for value in (statistics.min_raw, statistics.max_raw)
                    )
            rows = stated.num_rows
            yield RowGroup(path, file.number, number, at, begin, rows, oldest, newest)
            begin += rows


def _divided(found: Sequence[RowGroup], since: int, until: int, most: int) -> list[Share]:
    """Divide hours where row groups begin, so that each share has about as many rows."""
    in_order = sorted(found, key=lambda item: item.first)
    cuts, rows = [since], 0
    for item in in_order:
        if rows >= most and item.first > cuts[-1]:
            cuts.append(item.first)
            rows = 0
        rows += item.rows
    shares = [Share(*span) for span in zip(cuts, [*cuts[1:], until], strict=True)]
    for item in in_order:
        is_first = True
        for share in shares:
            if item.first < share.until and item.last >= share.since:
                share.row_groups.append((item, is_first))
                is_first = False
    return [share for share in shares if share.row_groups]


def read_share(share: Share, groups: Sequence[FileGroup], rules: Rules) -> Read:
    """Read and judge the rows of a share.

    Args:
        share: Which.
        groups: Of the input.
        rules: How.

    Raises:
        InfrastructureError: One cannot be read, and rows are left out anyway, so that nobody would
            miss its rows.
    """
    points, broken = [], {}
    for item, is_first in share.row_groups:
        headers = groups[item.group].headers
        try:
            rows = _read(item, headers)
        except (OSError, pa.ArrowException) as error:
            if rules.has_period:
                message = f"{item.path} cannot be read: {error}"
                raise InfrastructureError(message) from error
            broken[item.file] = str(error)
            continue
        positions = np.arange(item.begin, item.begin + len(rows))
        if item.first < share.since or item.last >= share.until:
            own = _are_own(times_of(rows, headers), share, is_first=is_first)
            rows, positions = rows.filter(pa.array(own)), positions[own]
        files = np.full(len(rows), item.file)
        points.append(judge_rows(rows, headers, rules, files, positions))
    return points, broken


def _read(item: RowGroup, headers: Headers) -> pa.Table:
    schema = pq.read_schema(item.path)
    texts = [name for name in headers.read if pa.types.is_string(schema.field(name).type)]
    file = pq.ParquetFile(item.path, read_dictionary=texts)
    return file.read_row_group(item.number, columns=headers.read, use_threads=False).select(
        headers.read
    )


def _are_own(times: pa.Array, share: Share, *, is_first: bool) -> Numbers:
    """Tell which rows are of a share's hours; those without a time are of the first share."""
    if isinstance(times, pa.ChunkedArray):
        times = times.combine_chunks()
    hours = times.fill_null(0).to_numpy(zero_copy_only=False) // HOUR_US
    is_within = (hours >= share.since) & (hours < share.until)
    own: Numbers = np.where(times.is_valid().to_numpy(zero_copy_only=False), is_within, is_first)
    return own
