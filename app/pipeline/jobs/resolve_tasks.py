"""What a task of ``resolve`` does: sum up the members of its buckets with numpy, and write them.

All members of a bucket in a minute are in one task. Sums are those of integers of 10^-6 units, so
that no order of the rows shows in them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext

from app.pipeline.errors import UsageError
from app.pipeline.sinks.sorted_files import write_day
from app.pipeline.sources.codes import Coded, Flags, Integers, begins, packed
from app.pipeline.tables import BUCKET_MINUTE

MEMBER_DDL: Final = """
    cluster_id string, day int, minute int, broker_id int, key string, bucket_id bigint,
    rate_avg bigint, rate_max bigint, throttle_ms_avg bigint, throttle_ms_max double,
    bytes_est bigint, limit double, level int"""
"""An observation: ``day`` since the epoch, ``minute`` of the day, rates and the average in 10^-6;
``user`` and ``client_id`` beside them where a name may have several rows a minute."""

TOLD_DDL: Final = "minutes bigint, rows bigint, unlimited bigint"
"""Rows of ``BUCKET_MINUTE``; rows that they sum up, and those of them that nothing limits."""

_MICRO: Final = 1_000_000
_DAY_MINUTES: Final = 1440
_MOST: Final = 2.0**63


@dataclass(frozen=True)
class Task:
    """What tasks need to know.

    Attributes:
        place: The folder of the table.
    """

    place: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        given = list(batches)
        if not given:
            return
        members = pa.Table.from_batches(given)
        groups = _Groups.of(members)
        rows = pa.table(_columns(members, groups))
        self._write(members, groups, rows)
        limited = _array(members["level"]) != 0
        told = (len(groups.starts), len(limited), int(np.count_nonzero(~limited)))
        names = ("minutes", "rows", "unlimited")
        yield pa.record_batch([pa.array([one], pa.int64()) for one in told], names)

    def _write(self, members: pa.Table, groups: "_Groups", rows: pa.Table) -> None:
        context = TaskContext.get()
        number = context.partitionId() if context else 0
        cuts = np.flatnonzero(begins(groups.days))
        for begin, end in zip(cuts, np.append(cuts[1:], len(groups.days)), strict=True):
            one = int(groups.first[begin])
            day = (members["cluster_id"][one].as_py(), members["day"][one].as_py())
            write_day(rows.slice(begin, end - begin), BUCKET_MINUTE, self.place, day, number)


@dataclass(frozen=True)
class _Groups:
    """Members of the same bucket, broker and minute, side by side in the order of the table.

    Attributes:
        order: The members.
        starts: Where each group begins in that order.
        first: The first member of each group.
        days: For each group a number of its cluster and day.
        keys: Of the members.
    """

    order: Integers
    starts: Integers
    first: Integers
    days: Integers
    keys: Coded

    @classmethod
    def of(cls, members: pa.Table) -> "_Groups":
        """Put members in order."""
        clusters, keys = Coded.of(members["cluster_id"]), Coded.of(members["key"])
        day, broker, bucket = (
            Coded.of_integers(_array(members[name])) for name in ("day", "broker_id", "bucket_id")
        )
        place = packed([(clusters.codes, len(clusters)), (day.codes, len(day))])
        group = packed(
            [
                (place, len(clusters) * len(day)),
                *((one.codes, len(one)) for one in (keys, bucket, broker)),
                (_array(members["minute"]), _DAY_MINUTES),
            ]
        )
        order = np.argsort(group)
        starts = np.flatnonzero(begins(group[order]))
        first = order[starts]
        return cls(order, starts, first, place[first], keys)

    def sums(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum up values of the members, group by group.

        Raises:
            UsageError: Such a sum does not fit 64 bits.
        """
        ordered = values[self.order]
        about = np.add.reduceat(np.abs(ordered.astype(np.float64)), self.starts)
        if about.max() >= _MOST:
            message = "The rates of a bucket's members are too large to be added up."
            raise UsageError(message)
        return np.asarray(np.add.reduceat(ordered, self.starts))

    def most(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the largest value of each group."""
        return np.asarray(np.maximum.reduceat(values[self.order], self.starts))


def _columns(members: pa.Table, groups: _Groups) -> Mapping[str, pa.Array]:
    first = groups.first
    throttle, known = _filled(members["throttle_ms_avg"], 0)
    longest, _ = _filled(members["throttle_ms_max"], -np.inf)
    moved, told = _filled(members["bytes_est"], 0)
    n, most = groups.sums(known), groups.most(longest)
    minutes = _array(members["day"])[first] * _DAY_MINUTES + _array(members["minute"])[first]
    at = pa.array(minutes * 60 * _MICRO).cast(pa.timestamp("us", "UTC"))
    return {
        "ts": at,
        "broker_id": pa.array(_array(members["broker_id"])[first]),
        "key": groups.keys.chosen(first).encoded(),
        "bucket_id": pa.array(_array(members["bucket_id"])[first]),
        "rate_avg": pa.array(groups.sums(_array(members["rate_avg"])) / _MICRO),
        "rate_max": pa.array(groups.sums(_array(members["rate_max"])) / _MICRO),
        "throttle_ms_avg": pa.array(groups.sums(throttle) / np.maximum(n, 1) / _MICRO, mask=n == 0),
        "throttle_ms_max": pa.array(most, mask=np.isneginf(most)),
        "bytes_est": pa.array(groups.sums(moved), mask=groups.sums(told) == 0),
        # All members of a bucket have the same limit at a time: it follows from the tags.
        "limit": members["limit"].take(pa.array(first)),
        "level": members["level"].take(pa.array(first)),
        "contributors": pa.array(_contributors(members, groups)),
    }


def _contributors(members: pa.Table, groups: _Groups) -> Integers:
    """Count the names of each group."""
    if "user" not in members.column_names:
        return np.diff(np.append(groups.starts, members.num_rows))
    users, clients = (Coded.of(members[name]) for name in ("user", "client_id"))
    number = np.zeros(members.num_rows, np.int64)
    number[groups.starts] = 1
    number = np.cumsum(number) - 1
    names = packed([(users.codes, len(users)), (clients.codes, len(clients))])[groups.order]
    order = np.lexsort((names, number))
    new: Flags = begins(names[order]) | begins(number[order])
    counts: Integers = np.add.reduceat(new.astype(np.int64), groups.starts)
    return counts


def _filled(column: pa.ChunkedArray, nothing: float) -> tuple[npt.NDArray[Any], Integers]:
    """Return values, with something else for nulls, and 1 for each that is none."""
    return _array(column.fill_null(nothing)), _array(column.is_valid()).astype(np.int64)


def _array(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    values = np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False))
    return values.astype(np.int64) if values.dtype.kind == "i" else values
