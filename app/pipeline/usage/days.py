"""Each bucket's days beside its limit: ``utilization_daily``, summed up from hours.

Rates are counted in bins that grow by one percent. Counts of bins add up, so hours, brokers and
partitions merge exactly and in any order. A percentile is the geometric middle of its bin, at most
0.5 % away from the rate of that rank.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.by_partition import Columns, Reading, Share, by_partition
from app.pipeline.folder_writer import ByTasks
from app.pipeline.lake import Lake, arrow_schema
from app.pipeline.partitions import Partition
from app.pipeline.tables import BUCKET_HOUR, BY_DAY, UTILIZATION_DAILY, UTILIZATION_HIST
from app.pipeline.usage.measures import (
    Numbers,
    begins_of,
    bin_middles,
    bit_length,
    ends_of,
    ranks_of,
    usable,
    with_columns,
)

PERCENTILES: Final = (50, 95, 99)

_BUCKET_DAY: Final = ("cluster_id", "dt", "key", "bucket_id")
_SUMS: Final = ("minutes_over_80", "minutes_over_100", "throttled_minutes")
_BINS: Final = tuple(f"p{percent}_bin" for percent in PERCENTILES)
_ZERO: Final = 2**31
"""Makes bins positive."""

_READ: Final = (
    *("cluster_id", "dt", "broker_id", "key", "bucket_id", "hour", "level", "limit", "bytes"),
    *(*_SUMS, "rate_max", "throttle_ms_peak", "present", "bins"),
)
_BYTES_OF_SHARE: Final = 30_000_000
"""Files with so many bytes have about 500,000 hours of buckets."""

Expected = Mapping[int | None, int]
"""In how many minutes of a day each broker reported anything; null adds up all brokers."""


def days_of_buckets(lakes: Sequence[Lake], days: Sequence[Partition]) -> ByTasks:
    """Return ``UTILIZATION_DAILY`` of all hours of days."""
    schema = arrow_schema(UTILIZATION_DAILY.ddl)

    def make(_: Share, hours: pa.Table, present: pa.Table) -> pa.Table:
        summed = _days_of(hours, _expected_minutes(present))
        return summed.select(schema.names).cast(schema)

    columns = (
        Columns(BUCKET_HOUR, _READ, divided_by="bucket_id"),
        # Brokers have the minutes of all buckets, which may be in other shares.
        Columns(BUCKET_HOUR, ("broker_id", "hour", "present")),
    )
    return by_partition(lakes, Reading(columns, _BYTES_OF_SHARE, BY_DAY), days, make)


def _expected_minutes(hours: pa.Table) -> Expected:
    """Count the minutes of a day in which each broker reported anything, and all together."""
    brokers, times = hours["broker_id"].to_numpy(), hours["hour"].to_numpy()
    order = np.lexsort([times, brokers])
    begins = begins_of(brokers[order], times[order])
    present = np.bitwise_or.reduceat(hours["present"].to_numpy()[order], begins)
    minutes = np.bitwise_count(present).astype(np.int64)
    of_hours = brokers[order][begins]
    firsts = begins_of(of_hours)
    sums = np.add.reduceat(minutes, firsts)
    return {None: int(minutes.sum()), **dict(zip(of_hours[firsts].tolist(), sums, strict=True))}


def histogram(days: DataFrame) -> DataFrame:
    """Return ``UTILIZATION_HIST`` of ``UTILIZATION_DAILY``: the minutes in bins, of all brokers."""
    bins = days.where("hist_bin is not null").select(
        *_BUCKET_DAY,
        sf.lit(None).cast("int").alias("broker_id"),
        sf.expr("posexplode(hist_bin) as (run, bin)"),
        "hist_n",
    )
    return bins.withColumn("n", sf.expr("hist_n[run]")).select(*UTILIZATION_HIST.columns)


def _days_of(hours: pa.Table, expected: Expected) -> pa.Table:
    """Sum up the hours of buckets of a day, by broker and for all brokers together.

    The result has the columns of ``UTILIZATION_DAILY``, by key, bucket and broker, that of all
    brokers first.
    """
    names = ("hour", "broker_id", "bucket_id")
    columns = [*(hours[name].to_numpy() for name in names), ranks_of(hours["key"])]
    order = np.lexsort(columns)
    hours = hours.take(order).combine_chunks()
    hour, broker, bucket, key = (column[order] for column in columns)
    buckets, brokers = begins_of(key, bucket), begins_of(key, bucket, broker)
    last = hour.astype(np.int64) * 60 + bit_length(hours["present"].to_numpy())
    by_broker = _sums(hours, brokers, ends_of(brokers, len(key)), is_pool=False)
    # In the pool, limit and level are those of the highest broker that has the last minute.
    position = last * 2**32 + broker
    sizes = np.diff(np.append(buckets, len(key)))
    latest = np.repeat(np.maximum.reduceat(position, buckets), sizes)
    of_pool = _sums(hours, buckets, np.flatnonzero(position == latest), is_pool=True)
    both = pa.concat_tables([of_pool, by_broker])
    order = np.argsort(np.concatenate([buckets, brokers]), kind="stable")
    return _beside_limits(both.take(order), expected)


def _beside_limits(days: pa.Table, expected: Expected) -> pa.Table:
    minutes = np.array([*expected.values()])
    minutes = minutes[pc.index_in(days["broker_id"], pa.array([*expected], pa.int32())).to_numpy()]
    limits, peak = usable(days["limit"].to_numpy()), days["peak"].to_numpy()
    values = {
        f"p{percent}": np.minimum(bin_middles(days[name].to_numpy()), peak)
        for percent, name in zip(PERCENTILES, _BINS, strict=True)
    }
    values |= {
        "minutes_expected": minutes,
        "coverage": days["minutes_present"].to_numpy() / minutes,
        "util_p99": values["p99"] / limits,
        "headroom": limits - values["p99"],
    }
    return with_columns(days, values)


def _sums(hours: pa.Table, begins: Numbers, latest: Numbers, *, is_pool: bool) -> pa.Table:
    """Sum up runs of hours; ``latest`` is the row of each run with its limit and level.

    In the pool they are of all brokers.
    """
    named = hours.select([*_BUCKET_DAY, "level", "limit"]).take(latest)
    brokers = hours["broker_id"].take(latest)
    longest = np.fmax.reduceat(hours["throttle_ms_peak"].to_numpy(), begins)
    bytes_of_hours = pc.fill_null(hours["bytes"], 0).to_numpy()
    has_none = hours["bytes"].is_null().take(begins).to_numpy()
    sums = {name: np.add.reduceat(hours[name].to_numpy(), begins) for name in _SUMS}
    others = {
        "broker_id": pa.nulls(len(begins), pa.int32()) if is_pool else brokers,
        "bytes": pa.array(np.add.reduceat(bytes_of_hours, begins), mask=has_none),
        "peak": np.maximum.reduceat(hours["rate_max"].to_numpy(), begins),
        "throttle_ms_max": longest,
        **_bins(hours["bins"].combine_chunks(), begins, is_pool=is_pool),
    }
    return with_columns(named, sums | others)


def _bins(bins: Any, begins: Numbers, *, is_pool: bool) -> dict[str, Any]:
    """Return how many minutes runs have, their percentiles' bins, and in the pool the histogram."""
    offsets = bins.offsets.to_numpy()
    firsts = offsets[begins] - offsets[0]
    values = bins.flatten().to_numpy()
    counts = np.diff(np.append(firsts, len(values)))
    # The number of the run in the upper bits: one sort is for all.
    run = np.repeat(np.arange(len(begins)) << 32, counts)
    ordered = np.sort(run + (values.astype(np.int64) + _ZERO))
    in_order = ((ordered & 2**32 - 1) - _ZERO).astype(np.int32)
    found: dict[str, Any] = {"minutes_present": counts}
    for percent, name in zip(PERCENTILES, _BINS, strict=True):
        found[name] = in_order[firsts + (percent * counts + 99) // 100 - 1]
    if not is_pool:
        nulls = {"hist_bin": pa.int32(), "hist_n": pa.int64()}
        return found | {name: pa.nulls(len(begins), pa.list_(kind)) for name, kind in nulls.items()}
    bars = begins_of(ordered)
    first_bars = pa.array(np.append(np.searchsorted(bars, firsts), len(bars)), pa.int32())
    minutes = np.diff(np.append(bars, len(ordered)))
    return found | {
        "hist_bin": pa.ListArray.from_arrays(first_bars, in_order[bars]),
        "hist_n": pa.ListArray.from_arrays(first_bars, minutes),
    }
