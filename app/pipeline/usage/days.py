"""Each bucket's days beside its limit: ``utilization_daily``, summed up from hours.

Rates are counted in bins that grow by one percent. Counts of bins add up, so hours, brokers and
partitions merge exactly and in any order. A percentile is the geometric middle of its bin, at most
0.5 % away from the rate of that rank.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.tables import UTILIZATION_DAILY, UTILIZATION_HIST
from app.pipeline.usage.measures import Numbers, begins_of, bin_middle, usable_limit

PERCENTILES: Final = (50, 95, 99)

_BROKER_DAY: Final = ("cluster_id", "dt", "broker_id")
_BUCKET_DAY: Final = ("cluster_id", "dt", "key", "bucket_id")
_SUMS: Final = ("minutes_over_80", "minutes_over_100", "throttled_minutes")
_BINS: Final = tuple(f"p{percent}_bin" for percent in PERCENTILES)
_ZERO: Final = 2**31
"""Makes bins positive."""

_READ: Final = (
    *(*_BROKER_DAY, "key", "bucket_id", "hour", "level", "limit", "bytes", "rate_max"),
    *(*_SUMS, "throttle_ms_peak", "present", "bins"),
)
_DAY_DDL: Final = ", ".join(
    (
        "cluster_id string, dt date, broker_id int, key string, bucket_id bigint, level tinyint",
        "limit double, minutes_present int, bytes bigint, peak double, minutes_over_80 int",
        "minutes_over_100 int, throttled_minutes int, throttle_ms_max double",
        "hist_bin array<int>, hist_n array<bigint>",
        *(f"{name} int" for name in _BINS),
    )
)


class Reported(NamedTuple):
    """What a broker reported on a day.

    Attributes:
        cluster_id: Its cluster.
        dt: The day, ``YYYY-MM-DD``.
        broker_id: Which; null adds up all brokers.
        minutes: In which it reported anything.
        hours: Its rows of ``BUCKET_HOUR``.
        bucket_minutes: Those that they are the sums of.
    """

    cluster_id: str
    dt: str
    broker_id: int | None
    minutes: int
    hours: int
    bucket_minutes: int


def count_reported(hours: DataFrame) -> list[Reported]:
    """Count the minutes in which each broker reported anything, and all brokers together.

    Args:
        hours: The columns of ``BUCKET_HOUR``, of whole days.
    """
    of_hour = hours.groupBy(*_BROKER_DAY, "hour").agg(
        sf.bit_or("present").alias("present"),
        sf.count(sf.lit(1)).alias("hours"),
        sf.sum("minutes").alias("minutes"),
    )
    with_pool = of_hour.withColumn("broker_id", sf.explode(sf.array("broker_id", sf.lit(None))))
    counts = with_pool.groupBy("cluster_id", sf.col("dt").cast("string").alias("dt"), "broker_id")
    sums = counts.agg(sf.sum(sf.bit_count("present")), sf.sum("hours"), sf.sum("minutes"))
    return [Reported(*row) for row in sums.collect()]


def daily_utilization(hours: DataFrame, reported: list[Reported], *, shares: int = 1) -> DataFrame:
    """Sum up the hours of each bucket by day and broker, and beside its limit.

    Args:
        hours: The columns of ``BUCKET_HOUR``, of whole days.
        reported: As ``count_reported`` returns it of them.
        shares: Into how many groups the buckets of a day are divided: each is summed up at once.

    Returns:
        The columns of ``UTILIZATION_DAILY``, in its order by day and share. A task has all of a
        day.
    """
    share = sf.expr(f"pmod(bucket_id, {shares})").alias("share")
    by_day = hours.select(*_READ, share).repartition("cluster_id", "dt")
    days = by_day.groupBy("cluster_id", "dt", "share").applyInArrow(_days_of, _DAY_DDL)
    return _beside_limits(days, reported)


def histogram(days: DataFrame) -> DataFrame:
    """Return the minutes in each bin of all brokers together: ``UTILIZATION_HIST``.

    Args:
        days: The columns of ``UTILIZATION_DAILY``.
    """
    bins = days.where("hist_bin is not null").select(
        *_BUCKET_DAY,
        sf.lit(None).cast("int").alias("broker_id"),
        sf.expr("posexplode(hist_bin) as (run, bin)"),
        "hist_n",
    )
    return bins.withColumn("n", sf.expr("hist_n[run]")).select(*UTILIZATION_HIST.columns)


def _beside_limits(days: DataFrame, reported: list[Reported]) -> DataFrame:
    session = days.sparkSession
    counts = [(*row[:3], row.minutes) for row in reported]
    ddl = "cluster_id string, dt string, broker_id int, minutes_expected bigint"
    expected = session.createDataFrame(counts, ddl).withColumn("dt", sf.col("dt").cast("date"))
    usable = usable_limit(sf.col("limit"))
    same_broker_day = [
        sf.col(f"days.{name}").eqNullSafe(sf.col(f"expected.{name}")) for name in _BROKER_DAY
    ]
    return (
        days.alias("days")
        .join(sf.broadcast(expected).alias("expected"), same_broker_day)
        .select("days.*", "minutes_expected")
        .withColumns(
            {
                f"p{percent}": sf.least(bin_middle(sf.col(name)), "peak")
                for percent, name in zip(PERCENTILES, _BINS, strict=True)
            }
        )
        .withColumn("coverage", sf.col("minutes_present") / sf.col("minutes_expected"))
        .withColumn("util_p99", sf.col("p99") / usable)
        .withColumn("headroom", usable - sf.col("p99"))
        .select(*UTILIZATION_DAILY.columns)
    )


def _days_of(hours: pa.Table) -> pa.Table:
    """Sum up the hours of buckets of a day, by broker and for all brokers together.

    Args:
        hours: The columns of ``_READ``, of one day.

    Returns:
        The columns of ``_DAY_DDL``, by key, bucket and broker, that of all brokers first.
    """
    keys = sorted(pc.unique(hours["key"]).to_pylist())
    key = pc.index_in(hours["key"], pa.array(keys)).to_numpy()
    order = np.lexsort([*map(_column(hours), ("hour", "broker_id", "bucket_id")), key])
    hours, key = hours.take(order).combine_chunks(), key[order]
    column = _column(hours)
    buckets = begins_of(key, column("bucket_id"))
    brokers = begins_of(key, column("bucket_id"), column("broker_id"))
    last = column("hour").astype(np.int64) * 60 + _bit_length(column("present"))
    by_broker = _sums(hours, brokers, np.append(brokers[1:], len(key)) - 1, is_pool=False)
    # In the pool, limit and level are those of the highest broker that has the last minute.
    position = last * 2**32 + column("broker_id")
    latest = np.repeat(
        np.maximum.reduceat(position, buckets), np.diff(np.append(buckets, len(key)))
    )
    of_pool = _sums(hours, buckets, np.flatnonzero(position == latest), is_pool=True)
    both = pa.concat_tables([of_pool, by_broker])
    return both.take(np.argsort(np.concatenate([buckets, brokers]), kind="stable"))


def _column(table: pa.Table) -> Any:
    return lambda name: table[name].to_numpy()


def _bit_length(present: Numbers) -> Numbers:
    """Return the number of the highest bit of numbers of 60 bits, from 1 on."""
    upper, lower = present >> 30, present & 2**30 - 1
    highest: Numbers = np.where(upper > 0, 30 + np.frexp(upper)[1], np.frexp(lower)[1])
    return highest


def _sums(hours: pa.Table, begins: Numbers, latest: Numbers, *, is_pool: bool) -> pa.Table:
    """Sum up runs of hours.

    Args:
        hours: In order.
        begins: Where the runs begin.
        latest: The row of each run with its limit and level.
        is_pool: Whether runs are of all brokers.
    """
    column, number = _column(hours), len(begins)
    named = hours.select(["cluster_id", "dt", "broker_id", "key", "bucket_id", "level", "limit"])
    columns = dict(zip(named.column_names, named.take(latest).columns, strict=True))
    if is_pool:
        columns["broker_id"] = pa.nulls(number, pa.int32())
    for name in _SUMS:
        columns[name] = pa.array(np.add.reduceat(column(name), begins, dtype=np.int32))
    bytes_of_hours = pc.fill_null(hours["bytes"], 0).to_numpy()
    has_none = hours["bytes"].is_null().take(begins).to_numpy(zero_copy_only=False)
    columns["bytes"] = pa.array(np.add.reduceat(bytes_of_hours, begins), mask=has_none)
    columns["peak"] = pa.array(np.maximum.reduceat(column("rate_max"), begins))
    longest = np.fmax.reduceat(column("throttle_ms_peak"), begins)
    columns["throttle_ms_max"] = pa.array(longest, from_pandas=True)
    columns |= _bins(hours["bins"].combine_chunks(), begins, is_pool=is_pool)
    return pa.table({name.split()[0]: columns[name.split()[0]] for name in _DAY_DDL.split(", ")})


def _bins(bins: Any, begins: Numbers, *, is_pool: bool) -> dict[str, pa.Array]:
    """Return how many minutes runs have, their percentiles' bins, and in the pool the histogram."""
    offsets = bins.offsets.to_numpy()
    firsts = offsets[begins] - offsets[0]
    values = bins.flatten().to_numpy()
    counts = np.diff(np.append(firsts, len(values)))
    # The number of the run in the upper bits: one sort is for all.
    run = np.repeat(np.arange(len(begins)) << 32, counts)
    ordered = np.sort(run + (values.astype(np.int64) + _ZERO))
    in_order = ((ordered & 2**32 - 1) - _ZERO).astype(np.int32)
    found = {"minutes_present": pa.array(counts.astype(np.int32))}
    for percent, name in zip(PERCENTILES, _BINS, strict=True):
        found[name] = pa.array(in_order[firsts + (percent * counts + 99) // 100 - 1])
    if not is_pool:
        nulls = {"hist_bin": pa.int32(), "hist_n": pa.int64()}
        return found | {name: pa.nulls(len(begins), pa.list_(kind)) for name, kind in nulls.items()}
    bars = begins_of(ordered)
    first_bars = np.append(np.searchsorted(bars, firsts), len(bars)).astype(np.int32)
    minutes = np.diff(np.append(bars, len(ordered)))
    return found | {
        "hist_bin": pa.ListArray.from_arrays(first_bars, pa.array(in_order[bars])),
        "hist_n": pa.ListArray.from_arrays(first_bars, pa.array(minutes)),
    }
