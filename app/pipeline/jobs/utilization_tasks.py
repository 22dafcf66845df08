"""What a task of ``utilization`` does: sum up the days of its buckets with numpy, and write them.

All minutes of a bucket's day are in one task. Logarithms and powers come with the rows, from Spark:
they have the same bits on every machine.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext

from app.pipeline.jobs.utilization_histogram import rank_in
from app.pipeline.sinks.sorted_files import write_day
from app.pipeline.sources.codes import Coded, Flags, Integers, begins, packed
from app.pipeline.tables import UTILIZATION_DAILY, UTILIZATION_HIST, Table

MEASURED_DDL: Final = """
    cluster_id string, day int, minute int, key string, bucket_id bigint, broker_id int,
    level tinyint, limit double, usable double, rate_max double, bytes_est bigint, bin int,
    middle double, over_80 int, over_100 int, throttled int, throttle_ms double"""
"""A minute of a bucket: ``day`` since the epoch, ``minute`` of the day, the limit as it is and as
it can be compared with, the bin of its rate and its middle, and 0 or 1 for what it counts as."""

TOLD_DDL: Final = "daily bigint, hist bigint, minutes bigint, over bigint"
"""Rows of both tables; minutes in, and days of a bucket on a broker over its limit."""

PERCENTILES: Final = (50, 95, 99)

Expected = Mapping[tuple[str, int, int | None], int]
"""By cluster, day and broker (null for all): in how many minutes a broker said anything."""

_COUNTS: Final = ("n", "over_80", "over_100", "throttled")


@dataclass(frozen=True)
class Task:
    """What tasks need to know.

    Attributes:
        place: The folder above both tables.
        expected: Minutes in which brokers were heard of.
    """

    place: str
    expected: Expected

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        given = list(batches)
        if not given:
            return
        minutes = pa.Table.from_batches(given)
        bins = _Bins.of(minutes)
        days = _Days.of(bins, self.expected)
        self._write(bins, _histogram(bins), bins.bucket, UTILIZATION_HIST)
        self._write(bins, days.columns, days.rows_of_bucket, UTILIZATION_DAILY)
        told = (len(days.rows), len(bins.n), minutes.num_rows, days.over)
        names = ("daily", "hist", "minutes", "over")
        yield pa.record_batch([pa.array([one], pa.int64()) for one in told], names)

    def _write(
        self, bins: "_Bins", columns: Mapping[str, Any], buckets: Integers, table: Table
    ) -> None:
        context = TaskContext.get()
        number = context.partitionId() if context else 0
        rows = pa.table(columns)
        place = bins.days[buckets]
        cuts = np.flatnonzero(begins(place))
        for begin, end in zip(cuts, np.append(cuts[1:], len(place)), strict=True):
            part = rows.slice(begin, end - begin)
            write_day(
                part, table, f"{self.place}/{table.name}", bins.day_of(int(buckets[begin])), number
            )


@dataclass(frozen=True)
class _Bins:
    """Minutes of a bucket on a broker, or on all of them, in one bin; in the order of the tables.

    Attributes:
        minutes: The columns of ``MEASURED_DDL``.
        clusters: Of the minutes.
        buckets: Of the minutes: cluster, day, key and bucket as one number.
        first: A minute of each such number.
        days: For each such number one of its cluster and day.
        bucket: For each bin the number of its bucket's day.
        brokers: For each bin the broker's place from 1 on; 0 for all.
        broker_ids: By that place, less one.
        n: Minutes in each bin.
        sums: The other sums and maxima of each bin.
        last: The last minute of each bin, as a row.
        last_key: What tells which minute of several is the last.
    """

    minutes: pa.Table
    clusters: Coded
    keys: Coded
    first: Integers
    days: Integers
    bucket: Integers
    brokers: Integers
    broker_ids: pa.Array
    n: Integers
    sums: Mapping[str, npt.NDArray[Any]]
    last: Integers
    last_key: Integers

    @classmethod
    def of(cls, minutes: pa.Table) -> "_Bins":
        """Sum up."""
        clusters, keys = Coded.of(minutes["cluster_id"]), Coded.of(minutes["key"])
        days, brokers = (Coded.of_integers(_of(minutes, name)) for name in ("day", "broker_id"))
        ids = Coded.of_integers(_of(minutes, "bucket_id"))
        day = packed([(clusters.codes, len(clusters)), (days.codes, len(days))])
        count = len(clusters) * len(days)
        pack = packed([(day, count), (keys.codes, len(keys)), (ids.codes, len(ids))])
        _, first, bucket = np.unique(pack, return_index=True, return_inverse=True)
        bins = Coded.of_integers(_of(minutes, "bin"))
        moment = _of(minutes, "minute") * len(brokers) + brokers.codes
        rows = _measures(minutes) | {"last_key": moment}
        sizes = (len(brokers), len(bins))
        named = {"bucket": bucket, "broker": brokers.codes + 1, "bin": bins.codes}
        by_broker = _summed(named, rows, sizes)
        everywhere = np.zeros(len(by_broker["bucket"]), np.int64)
        named = {"bucket": by_broker["bucket"], "broker": everywhere, "bin": by_broker["bin"]}
        pooled = _summed(named, {name: by_broker[name] for name in rows}, sizes)
        both = {name: np.concatenate([pooled[name], by_broker[name]]) for name in by_broker}
        order = np.argsort(_packed_bins(both, sizes))
        told = {name: one[order] for name, one in both.items()}
        return cls(
            minutes=minutes,
            clusters=clusters,
            keys=keys,
            first=first,
            days=day[first],
            bucket=told["bucket"],
            brokers=told["broker"],
            broker_ids=brokers.values,
            n=told["n"],
            sums=told,
            last=told["row"],
            last_key=told["last_key"],
        )

    def day_of(self, bucket: int) -> tuple[str, int]:
        """Return cluster and day of a bucket's number."""
        row = int(self.first[bucket])
        return self.minutes["cluster_id"][row].as_py(), self.minutes["day"][row].as_py()

    def named(self, bins: Any) -> Mapping[str, pa.Array]:
        """Return the columns that name some of the bins' buckets and brokers."""
        rows = self.first[self.bucket[bins]]
        places = self.brokers[bins]
        ids = np.asarray(self.broker_ids.to_numpy(zero_copy_only=False))
        return {
            "key": self.keys.chosen(rows).encoded(),
            "bucket_id": pa.array(_of(self.minutes, "bucket_id")[rows]),
            "broker_id": pa.array(ids[places - 1], pa.int64(), mask=places == 0),
        }


def _measures(minutes: pa.Table) -> dict[str, npt.NDArray[Any]]:
    """Return what is summed up of each minute; what is missing does not take part."""
    bytes_est, throttle = minutes["bytes_est"], minutes["throttle_ms"]
    return {
        "n": np.ones(minutes.num_rows, np.int64),
        **{name: _of(minutes, name) for name in _COUNTS[1:]},
        "bytes": _array(bytes_est.fill_null(0)),
        "bytes_n": _array(bytes_est.is_valid()).astype(np.int64),
        "peak": _array(minutes["rate_max"]),
        "throttle_ms_max": _array(throttle.fill_null(-np.inf)),
        "row": np.arange(minutes.num_rows),
    }


def _summed(
    named: Mapping[str, Integers],
    rows: Mapping[str, npt.NDArray[Any]],
    sizes: tuple[int, int],
) -> dict[str, npt.NDArray[Any]]:
    """Sum up rows of the same bucket, broker and bin."""
    pack = _packed_bins(named, sizes)
    order = np.lexsort((rows["last_key"], pack))
    starts = np.flatnonzero(begins(pack[order]))
    ends = np.append(starts[1:], len(order)) - 1
    sums: dict[str, npt.NDArray[Any]] = {name: one[order[starts]] for name, one in named.items()}
    for name, values in rows.items():
        ordered = values[order]
        if name in ("peak", "throttle_ms_max"):
            sums[name] = np.maximum.reduceat(ordered, starts)
        elif name in ("row", "last_key"):
            sums[name] = ordered[ends]
        else:
            sums[name] = np.add.reduceat(ordered, starts)
    return sums


def _packed_bins(told: Mapping[str, Integers], sizes: tuple[int, int]) -> Integers:
    """Return a number for bucket, broker (0 for all) and bin; ``sizes`` counts the latter two."""
    buckets, (brokers, bins) = int(told["bucket"].max()) + 1, sizes
    return packed([(told["bucket"], buckets), (told["broker"], brokers + 1), (told["bin"], bins)])


def _histogram(bins: _Bins) -> Mapping[str, pa.Array]:
    return {
        **bins.named(np.arange(len(bins.n))),
        "bin": bins.minutes["bin"].take(pa.array(bins.last)),
        "n": pa.array(bins.n),
    }


@dataclass(frozen=True)
class _Days:
    """Days of a bucket on a broker.

    Attributes:
        rows: The first bin of each.
        rows_of_bucket: The number of each one's bucket.
        columns: Of ``UTILIZATION_DAILY``.
        over: How many on a single broker were over their limit.
    """

    rows: Integers
    rows_of_bucket: Integers
    columns: Mapping[str, Any]
    over: int

    @classmethod
    def of(cls, bins: _Bins, expected: Expected) -> "_Days":
        """Sum up bins."""
        first = begins(bins.bucket) | begins(bins.brokers)
        starts = np.flatnonzero(first)
        sums = {name: np.add.reduceat(bins.sums[name], starts) for name in (*_COUNTS, "bytes")}
        sums["bytes_n"] = np.add.reduceat(bins.sums["bytes_n"], starts)
        last = _last(bins, starts, first)
        heard = _heard(bins, starts, expected)
        limit = bins.minutes["usable"].take(pa.array(last))
        levels = _percentiles(bins, starts, sums["n"])
        usable = _array(limit.fill_null(np.nan))
        none = _array(limit.is_null())
        throttle = np.maximum.reduceat(bins.sums["throttle_ms_max"], starts)
        over = np.count_nonzero((sums["over_100"] > 0) & (bins.brokers[starts] > 0))
        columns = {
            **bins.named(starts),
            "level": bins.minutes["level"].take(pa.array(last)),
            "limit": bins.minutes["limit"].take(pa.array(last)),
            "minutes_present": pa.array(sums["n"]),
            "minutes_expected": pa.array(heard),
            "coverage": pa.array(sums["n"] / heard),
            "bytes": pa.array(sums["bytes"], mask=sums["bytes_n"] == 0),
            **{f"p{percent}": pa.array(one) for percent, one in levels.items()},
            "peak": pa.array(np.maximum.reduceat(bins.sums["peak"], starts)),
            "minutes_over_80": pa.array(sums["over_80"]),
            "minutes_over_100": pa.array(sums["over_100"]),
            "throttled_minutes": pa.array(sums["throttled"]),
            "throttle_ms_max": pa.array(throttle, mask=np.isneginf(throttle)),
            "util_p99": pa.array(levels[99] / usable, mask=none),
            "headroom": pa.array(usable - levels[99], mask=none),
        }
        return cls(starts, bins.bucket[starts], columns, int(over))


def _last(bins: _Bins, starts: Integers, first: Flags) -> Integers:
    """Return the last minute of each day, as a row; of one minute that of the highest broker."""
    latest = np.maximum.reduceat(bins.last_key, starts)
    number = np.cumsum(first) - 1
    hits = np.flatnonzero(bins.last_key == latest[number])
    return bins.last[hits[np.flatnonzero(begins(number[hits]))]]


def _heard(bins: _Bins, starts: Integers, expected: Expected) -> Integers:
    """Return the minutes in which the broker of each day said anything."""
    ids = [None, *bins.broker_ids.to_pylist()]
    places, at = bins.brokers[starts], bins.days[bins.bucket[starts]]
    _, pairs, told = np.unique(at * len(ids) + places, return_index=True, return_inverse=True)
    known = []
    for row in pairs.tolist():
        cluster, day = bins.day_of(int(bins.bucket[starts[row]]))
        known.append(expected[cluster, day, ids[int(places[row])]])
    return np.array(known, np.int64)[told]


def _percentiles(
    bins: _Bins, starts: Integers, totals: Integers
) -> Mapping[int, npt.NDArray[np.float64]]:
    """Return the rate of the first bin that reaches each rank."""
    reached = np.cumsum(bins.n)
    before = reached[starts] - bins.n[starts]
    middles = _array(bins.minutes["middle"])[bins.last]
    return {
        percent: middles[np.searchsorted(reached, before + rank_in(percent, totals))]
        for percent in PERCENTILES
    }


def _of(table: pa.Table, name: str) -> Integers:
    return _array(table[name]).astype(np.int64)


def _array(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False))
