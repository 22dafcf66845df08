"""Points to minutes: which of them count, and what those of a minute sum up to.

Spark divides the points by hour, and a task of Arrow puts those of an hour in order and sums them
up, column by column. Sums are integers of 10^-6 units, so that the order of the points says
nothing.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from app.domain.broker_metrics import RATE, THROTTLE, UP
from app.pipeline.ingest.names import ATTRIBUTES, HOUR_US, MINUTE_US, NAMES, hour_columns, series_id
from app.pipeline.ingest.points import LEFT_OUT
from app.pipeline.lake import Partition, is_within
from app.pipeline.tables import QUARANTINE, RATE_MINUTE
from app.pipeline.usage.measures import Numbers, begins_of, ranks_of

DUPLICATE: Final = "duplicate"
FAILED: Final = "failed"
COUNTS: Final = (*ATTRIBUTES, FAILED)
"""Points that count, by attribute, and those of scrapes that failed: ``up`` was 0."""

_SHARE_BITS: Final = 20
_MINUTES: Final = 60
_MICRO: Final = 1_000_000
_LOW_BITS: Final = 20
"""Sums are of these and of those above, which 64 bits hold whatever the values and their number."""

_CODES: Final = {name: code for code, name in enumerate(ATTRIBUTES)}
_COUNTS: Final = pa.struct([(name, pa.int64()) for name in COUNTS])
_DDL: Final = f"{RATE_MINUTE.ddl}, counts struct<{', '.join(f'{name}: bigint' for name in COUNTS)}>"


def sum_minutes(
    points: DataFrame, grain: str, firsts: Sequence[int], shares: int, clusters: Sequence[str]
) -> DataFrame:
    """Sum up the points of each series in each minute on each broker, each point once.

    Of points with the same names and time that of the first input counts, and of one input that
    with the greatest value; where several inputs have the same attribute of the same minute, those
    of the first. A throttle time without a rate in its minute is a minute with rate 0.

    Args:
        points: The columns of ``POINTS_DDL``.
        grain: Of the input.
        firsts: The number of the first file of each input.
        shares: Into how many files the series of an hour are divided.
        clusters: That the points are of.

    Returns:
        The columns of ``RATE_MINUTE``, in its order, and ``counts``: null, but for one row of each
        share, which has nothing else. A task has all of a share.
    """
    attribute = " ".join(f"when '{name}' then {code}" for name, code in _CODES.items())
    cluster = sf.lit(0)
    if len(clusters) > 1:
        names = sf.array(*map(sf.lit, clusters))
        cluster = sf.array_position(names, sf.col("cluster_id")) - 1
    # `up` has no key.
    fine = points.where("problem is null").withColumn("key", sf.coalesce("key", sf.lit("")))
    named = fine.withColumns(
        {"series_id": series_id(grain), "input": _input_of("file", firsts), "cluster": cluster}
    )
    share = f"ts div {HOUR_US} * {2**_SHARE_BITS} + pmod(series_id, {shares})"
    columns = {
        "series_id": "series_id",
        # One number, by which rows are sorted fastest.
        "place": f"({share}) * {len(clusters)} + cluster",
        # Broker and time within the hour.
        "spot": f"broker_id * {HOUR_US} + ts % {HOUR_US}",
        "code": f"cast(case attribute {attribute} end as tinyint)",
        "value": "value",
        **({"input": "input"} if len(firsts) > 1 else {}),
    }
    narrow = named.selectExpr(*(f"{item} as {name}" for name, item in columns.items()))

    def summed(points: pa.Table) -> pa.Table:
        return _sum_share(points, clusters)

    return narrow.groupBy("place").applyInArrow(summed, _DDL)


def _sum_share(points: pa.Table, clusters: Sequence[str]) -> pa.Table:
    """Return the columns of ``_DDL`` of the points of a share of an hour."""
    share, cluster = divmod(points["place"][0].as_py(), len(clusters))
    hour = share >> _SHARE_BITS
    series, spot, code, value = _that_count(points)
    is_of = {name: code == number for name, number in _CODES.items()}
    counts = {name: int(np.count_nonzero(claim)) for name, claim in is_of.items()}
    counts[FAILED] = int(np.count_nonzero(is_of[UP] & (value == 0)))
    # An idle throttle time is NaN; others than these two say nothing of a minute.
    has_minute = is_of[RATE] | is_of[THROTTLE] & ~np.isnan(value)
    series, minute, value = series[has_minute], spot[has_minute] // MINUTE_US, value[has_minute]
    is_rate = is_of[RATE][has_minute]
    begins = begins_of(series, minute)
    micros = np.floor(value * _MICRO + 0.5).astype(np.int64)
    samples, rate_avg, rate_max = _sums(micros, is_rate, begins)
    _, throttle_avg, throttle_max = _sums(micros, ~is_rate, begins)
    minute, number = minute[begins], len(begins)
    time = hour * HOUR_US + minute % _MINUTES * MINUTE_US
    columns = {
        "cluster_id": pa.repeat(clusters[cluster], number),
        "dt": pa.repeat(pa.scalar(hour // 24, pa.int32()), number).cast(pa.date32()),
        "hour": pa.repeat(pa.scalar(hour % 24, pa.int32()), number),
        "series_id": pa.array(series[begins]),
        "broker_id": pa.array((minute // _MINUTES).astype(np.int32)),
        "ts": pa.array(time).cast(pa.timestamp("us", "UTC")),
        # A minute without a rate has a throttle time.
        "rate_avg": pa.array(np.where(samples > 0, rate_avg, 0.0)),
        "rate_max": pa.array(np.where(samples > 0, rate_max, 0.0)),
        "throttle_ms_avg": pa.array(throttle_avg, from_pandas=True),
        "throttle_ms_max": pa.array(throttle_max, from_pandas=True),
        "samples": pa.array(samples.astype(np.int32)),
    }
    minutes = pa.table({**columns, "counts": pa.nulls(number, _COUNTS)})
    nothing = {name: pa.nulls(1, column.type) for name, column in columns.items()}
    of_counts = pa.table({**nothing, "counts": pa.array([counts], _COUNTS)})
    return pa.concat_tables([minutes, of_counts])


def _that_count(points: pa.Table) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Return series, spot, code and value (NaN for none) of the points that count, in order."""
    names = ("series_id", "spot", "code", "value")
    series, spot, code, value = columns = [points[name].to_numpy() for name in names]
    ranks, spots = (ranks_of(points[name]) for name in ("series_id", "spot"))
    # One number says all, so that one sort of numbers will do.
    point = (ranks * (spots.max() + 1) + spots) * len(_CODES) + code
    order = np.argsort(point)
    if "input" in points.column_names:
        source = points["input"].to_numpy()
        order = np.lexsort((-value, source, point))
        order = order[begins_of(point[order])]
        is_first = _is_of_first_input(*(each[order] for each in (ranks, spot, code, source)))
        order = order[is_first]
    elif len(begins_of(point[order])) < len(order):
        order = np.lexsort((-value, point))
        order = order[begins_of(point[order])]
    series, spot, code, value = (each[order] for each in columns)
    return series, spot, code, value


def _is_of_first_input(series: Numbers, spot: Numbers, code: Numbers, source: Numbers) -> Numbers:
    """Tell which points are of the first input that has the attribute in their minute."""
    minute = spot // MINUTE_US
    order = np.lexsort((code, minute, series))
    begins = begins_of(series[order], minute[order], code[order])
    first = np.minimum.reduceat(source[order], begins)
    is_first = np.empty(len(order), bool)
    is_first[order] = source[order] == np.repeat(first, np.diff(np.append(begins, len(order))))
    return is_first


def _sums(micros: Numbers, is_own: Numbers, begins: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return of each run how many values are its own, their mean, a half rounded up, and maximum.

    Where there are none, both are NaN.
    """
    n = np.add.reduceat(is_own.astype(np.int64), begins)
    own = np.where(is_own, micros, 0)
    high = np.add.reduceat(own >> _LOW_BITS, begins)
    low = np.add.reduceat(own & 2**_LOW_BITS - 1, begins)
    most = np.maximum.reduceat(own, begins)
    by = np.maximum(n, 1)
    whole, rest = np.divmod(high, by)
    mean = (whole << _LOW_BITS) + ((rest << _LOW_BITS) + low + by // 2) // by
    mean, most = (np.where(n > 0, each / _MICRO, np.nan) for each in (mean, most))
    return n, mean, most


def _input_of(file: str, firsts: Sequence[int]) -> Column:
    """Return the number of the input that a file is of."""
    return sum(((sf.col(file) >= first).cast("int") for first in firsts[1:]), sf.lit(0))


def refused_points(points: DataFrame, firsts: Sequence[int]) -> DataFrame:
    """Return the points that do not count.

    Args:
        points: The columns of ``POINTS_DDL``.
        firsts: The number of the first file of each input.

    Returns:
        cluster_id, ts (microseconds, both null where they cannot be read), file, line, raw and
        reason. A point that was fine but for another one has its columns for its text.
    """
    broken = points.where(sf.col("problem") != LEFT_OUT).select(
        *("cluster_id", "ts", "file", "line"),
        sf.col("text").alias("raw"),
        sf.col("problem").alias("reason"),
    )
    names = ("cluster_id", *NAMES, "broker_id", "attribute")
    fine = points.where(sf.col("problem").isNull())
    fine = fine.withColumns(
        {"minute": sf.expr(f"ts div {MINUTE_US}"), "input": _input_of("file", firsts)}
    )
    same = Window.partitionBy(*names, "ts").orderBy("input", sf.desc("value"), "position")
    again = sf.row_number().over(same) > 1
    if len(firsts) > 1:
        first = sf.min("input").over(Window.partitionBy(*names, "minute"))
        again |= sf.col("input") > first
    twice = fine.withColumn("again", again).where("again")
    time = sf.date_format(sf.timestamp_micros("ts"), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias("ts")
    columns = ("cluster_id", "broker_id", "key", "attribute", "user", "client_id", "value")
    raw = sf.to_json(sf.struct(time, *columns)).alias("raw")
    reason = sf.lit(DUPLICATE).alias("reason")
    surplus = twice.select("cluster_id", "ts", "file", "line", raw, reason)
    return broken.unionByName(surplus)


def quarantine(refused: DataFrame, names: dict[int, str], hours: Sequence[Partition]) -> DataFrame:
    """Return the columns of ``QUARANTINE``.

    Args:
        refused: As ``refused_points`` returns them.
        names: What the inputs are called, by their numbers.
        hours: That the run is about; the first has what is of none of them.
    """
    sources = refused.sparkSession.createDataFrame(list(names.items()), "file int, source string")
    number = sf.expr(f"cast(ts div {HOUR_US} as int)")
    own = refused.withColumn("hour_number", number).withColumns(hour_columns())
    is_own = sf.coalesce(is_within(hours, QUARANTINE.partitions), sf.lit(False))
    at_home = {"cluster_id": "string", "dt": "date", "hour": "int"}
    home = hours[0]
    placed = own.withColumn("is_own", is_own).withColumns(
        {
            name: sf.when(sf.col("is_own"), sf.col(name)).otherwise(sf.lit(home[name]).cast(kind))
            for name, kind in at_home.items()
        }
    )
    return (
        placed.join(sf.broadcast(sources), "file")
        .groupBy(*QUARANTINE.partitions, "source", "line", "raw", "reason")
        .agg(sf.count(sf.lit(1)).alias("n"))
    )
