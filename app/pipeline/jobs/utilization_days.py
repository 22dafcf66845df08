"""Bins of rates to days: the columns of ``UTILIZATION_DAILY`` and ``UTILIZATION_HIST``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.pipeline.jobs.utilization_bins import COUNTS, Bins
from app.pipeline.jobs.utilization_histogram import middles_of, rank_in
from app.pipeline.jobs.utilization_minutes import Expected
from app.pipeline.sources.codes import Flags, Integers, begins
from app.pipeline.sources.table_pieces import array_of

PERCENTILES: Final = (50, 95, 99)


def histogram(bins: Bins) -> pa.Table:
    """Return the rows of ``UTILIZATION_HIST``."""
    numbers = pa.array(bins.bin.astype(np.int32))
    every = slice(None)
    return pa.table({**bins.named(every), "bin": numbers, "n": pa.array(bins.sums["n"])})


@dataclass(frozen=True)
class Days:
    """Days of buckets on a broker, or on all of them.

    Attributes:
        rows: Of ``UTILIZATION_DAILY``.
        over: How many on a single broker were over their limit.
    """

    rows: pa.Table
    over: int

    @classmethod
    def of(cls, bins: Bins, place: tuple[str, int], expected: Expected) -> "Days":
        """Sum up the bins of a cluster's day."""
        first = begins(bins.bucket) | begins(bins.broker)
        starts = np.flatnonzero(first)
        sums = {
            name: np.add.reduceat(bins.sums[name], starts) for name in (*COUNTS, "bytes", "moved")
        }
        last = pa.array(_last(bins, starts, first))
        limit = bins.minutes["limit"].take(last)
        amount = array_of(limit)
        usable = np.where(amount > 0, amount, np.nan)
        heard = _heard(bins, starts, place, expected)
        peak = np.maximum.reduceat(bins.sums["peak"], starts)
        levels = _percentiles(bins, starts, sums["n"], peak)
        throttle = np.maximum.reduceat(bins.sums["throttle_ms_max"], starts)
        none = np.isnan(usable)
        columns: Mapping[str, Any] = {
            **bins.named(starts),
            "level": bins.minutes["level"].take(last),
            "limit": limit,
            "minutes_present": pa.array(sums["n"]),
            "minutes_expected": pa.array(heard),
            "coverage": pa.array(sums["n"] / heard),
            "bytes": pa.array(sums["bytes"], mask=sums["moved"] == 0),
            **{f"p{percent}": pa.array(level) for percent, level in levels.items()},
            "peak": pa.array(peak),
            "minutes_over_80": pa.array(sums["over_80"]),
            "minutes_over_100": pa.array(sums["over_100"]),
            "throttled_minutes": pa.array(sums["throttled"]),
            "throttle_ms_max": pa.array(throttle, mask=np.isneginf(throttle)),
            "util_p99": pa.array(levels[99] / usable, mask=none),
            "headroom": pa.array(usable - levels[99], mask=none),
        }
        over = np.count_nonzero((sums["over_100"] > 0) & (bins.broker[starts] > 0))
        return cls(pa.table(columns), int(over))


def _last(bins: Bins, starts: Integers, first: Flags) -> Integers:
    """Return the last minute of each day, as a row; of one minute that of the highest broker."""
    moments = bins.sums["moment"]
    latest = np.maximum.reduceat(moments, starts)
    number = np.cumsum(first) - 1
    hits = np.flatnonzero(moments == latest[number])
    rows: Integers = bins.sums["row"][hits[begins(number[hits])]]
    return rows


def _heard(bins: Bins, starts: Integers, place: tuple[str, int], expected: Expected) -> Integers:
    """Return the minutes in which the broker of each day said anything."""
    ids = [None, *bins.broker_ids.tolist()]
    known = [expected.get((*place, broker), 0) for broker in ids]
    return np.array(known, np.int64)[bins.broker[starts]]


def _percentiles(
    bins: Bins, starts: Integers, totals: Integers, peak: npt.NDArray[np.float64]
) -> Mapping[int, npt.NDArray[np.float64]]:
    """Return the rate of the first bin that reaches each rank, at most the day's peak."""
    counts = bins.sums["n"]
    reached = np.cumsum(counts)
    before = reached[starts] - counts[starts]
    ranks = {percent: before + rank_in(percent, totals) for percent in PERCENTILES}
    return {
        percent: np.minimum(middles_of(bins.bin[np.searchsorted(reached, rank)]), peak)
        for percent, rank in ranks.items()
    }
