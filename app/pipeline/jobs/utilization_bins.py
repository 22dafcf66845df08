"""A day's minutes of buckets by bins of their rates: what histograms and days are made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.pipeline.jobs.utilization_histogram import ZERO_BIN, bins_of
from app.pipeline.sources.codes import Coded, Flags, Integers, begins, packed
from app.pipeline.sources.table_pieces import array_of

COUNTS: Final = ("n", "over_80", "over_100", "throttled")

_MOST: Final = ("peak", "throttle_ms_max")
_LAST: Final = ("row", "moment")


@dataclass(frozen=True)
class Bins:
    """Minutes of a bucket on a broker, or on all of them, in one bin; in the order of the tables.

    Attributes:
        minutes: Of one cluster and day, in the order of ``BUCKET_MINUTE``: ``key``, ``bucket_id``,
            ``limit`` and ``level`` are of use.
        first: A minute of each bucket.
        broker_ids: Of the minutes.
        bucket: For each bin the number of its bucket.
        broker: For each bin the broker's place in ``broker_ids`` from 1 on; 0 for all.
        bin: The number of each bin.
        sums: The sums and maxima of each bin: ``COUNTS``, ``bytes``, ``moved`` (minutes that have
            bytes), ``peak``, ``throttle_ms_max``; and of its last minute, ``row`` and ``moment``.
    """

    minutes: pa.Table
    first: Integers
    broker_ids: Integers
    bucket: Integers
    broker: Integers
    bin: Integers
    sums: Mapping[str, npt.NDArray[Any]]

    @classmethod
    def of(cls, minutes: pa.Table) -> "Bins":
        """Sum up minutes of one cluster and day, in any order."""
        minutes, bucket = _in_order(minutes)
        brokers = Coded.of_integers(array_of(minutes["broker_id"]))
        numbers = bins_of(array_of(minutes["rate_max"]))
        by_broker = _summed(
            {"bucket": bucket, "broker": brokers.codes + 1, "bin": numbers},
            _measures(minutes, brokers),
        )
        everywhere = by_broker | {"broker": np.zeros(len(by_broker["bin"]), np.int64)}
        names = ("bucket", "broker", "bin")
        pooled = _summed(
            {name: everywhere[name] for name in names},
            {name: item for name, item in everywhere.items() if name not in names},
        )
        told = _merged(pooled, by_broker, int(bucket[-1]) + 1)
        return cls(
            minutes=minutes,
            first=np.flatnonzero(begins(bucket)),
            broker_ids=brokers.values.to_numpy(),
            bucket=told["bucket"],
            broker=told["broker"],
            bin=told["bin"],
            sums=told,
        )

    def named(self, bins: Any) -> Mapping[str, pa.Array]:
        """Return the columns that name some of the bins' buckets and brokers."""
        rows = pa.array(self.first[self.bucket[bins]])
        places = self.broker[bins]
        ids = self.broker_ids[places - 1].astype(np.int32)
        return {
            "key": self.minutes["key"].take(rows),
            "bucket_id": self.minutes["bucket_id"].take(rows),
            "broker_id": pa.array(ids, mask=places == 0),
        }


def _in_order(minutes: pa.Table) -> tuple[pa.Table, Integers]:
    """Return minutes in the order of their table, and the number of each one's bucket."""
    keys, ids = Coded.of(minutes["key"]), array_of(minutes["bucket_id"])
    brokers, at = array_of(minutes["broker_id"]), array_of(minutes["minute"])
    order = None
    if not _is_sorted(keys.codes, ids, brokers, at):
        order = np.lexsort((at, brokers, ids, keys.codes))
        minutes, ids = minutes.take(pa.array(order)), ids[order]
    codes = keys.codes if order is None else keys.codes[order]
    return minutes, np.cumsum(begins(codes) | begins(ids)) - 1


def _is_sorted(*columns: Integers) -> bool:
    """Tell whether rows are in the order of their columns, the first of which decides first."""
    equal = np.ones(max(0, len(columns[0]) - 1), np.bool_)
    for column in columns:
        if np.any(equal & (column[1:] < column[:-1])):
            return False
        equal &= column[1:] == column[:-1]
    return True


def _measures(minutes: pa.Table, brokers: Coded) -> dict[str, npt.NDArray[Any]]:
    """Return what is summed up of each minute; what is missing does not take part."""
    rate, limit = array_of(minutes["rate_max"]), array_of(minutes["limit"])
    longest = np.fmax(array_of(minutes["throttle_ms_avg"]), array_of(minutes["throttle_ms_max"]))
    moved = minutes["bytes_est"]
    return {
        "n": np.ones(len(rate), np.int64),
        # A limit that is missing or no number compares as false.
        "over_80": (rate > 0.8 * limit).astype(np.int64),
        "over_100": (rate > limit).astype(np.int64),
        "throttled": (longest > 0).astype(np.int64),
        "bytes": array_of(moved.fill_null(0)),
        "moved": array_of(moved.is_valid()).astype(np.int64),
        "peak": rate,
        "throttle_ms_max": np.where(np.isnan(longest), -np.inf, longest),
        "row": np.arange(len(rate)),
        "moment": array_of(minutes["minute"]) * len(brokers) + brokers.codes,
    }


def _summed(
    named: Mapping[str, Integers], rows: Mapping[str, npt.NDArray[Any]]
) -> dict[str, npt.NDArray[Any]]:
    """Sum up rows of the same bucket, broker and bin, in the order of these."""
    bins = np.where(named["bin"] == ZERO_BIN, -1, named["bin"] - _least(named["bin"]))
    sizes = {name: int(item.max()) + 1 for name, item in named.items()} | {
        "bin": int(bins.max()) + 2
    }
    columns = {**named, "bin": bins + 1}
    pack = packed([(columns[name], sizes[name]) for name in ("bucket", "broker", "bin")])
    order = np.argsort(pack, kind="stable")
    first = begins(pack[order])
    starts = np.flatnonzero(first)
    told: dict[str, npt.NDArray[Any]] = {name: item[order[starts]] for name, item in named.items()}
    alone = len(starts) == len(order)
    latest = None if alone else _latest(rows["moment"][order], starts, first)
    for name, values in rows.items():
        ordered = values[order]
        if alone:
            told[name] = ordered
        elif name in _LAST:
            told[name] = ordered[latest]
        else:
            add = np.maximum if name in _MOST else np.add
            told[name] = add.reduceat(ordered, starts)
    return told


def _least(bins: Integers) -> int:
    usual = bins[bins != ZERO_BIN]
    return int(usual.min()) if len(usual) else 0


def _latest(moments: Integers, starts: Integers, first: Flags) -> Integers:
    """Return where the last moment of each group is."""
    last = np.maximum.reduceat(moments, starts)
    number = np.cumsum(first) - 1
    hits = np.flatnonzero(moments == last[number])
    return hits[begins(number[hits])]


def _merged(
    pooled: Mapping[str, npt.NDArray[Any]], by_broker: Mapping[str, npt.NDArray[Any]], buckets: int
) -> Mapping[str, npt.NDArray[Any]]:
    """Put the bins of all brokers of a bucket before those of each."""
    pools = np.cumsum(np.bincount(pooled["bucket"], minlength=buckets))
    others = np.cumsum(np.bincount(by_broker["bucket"], minlength=buckets))
    before = np.concatenate([[0], others[:-1]])
    of_pools = np.arange(len(pooled["bin"])) + before[pooled["bucket"]]
    of_others = np.arange(len(by_broker["bin"])) + pools[by_broker["bucket"]]
    told = {}
    for name, item in by_broker.items():
        both = np.empty(len(of_pools) + len(of_others), item.dtype)
        both[of_pools], both[of_others] = pooled[name], item
        told[name] = both
    return told
