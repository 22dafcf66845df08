"""What each bucket used in its hours, on each broker."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.plan_impact import BIN_RATIO, ZERO_BIN
from app.pipeline.usage.measures import Numbers, begins_of, ends_of, hours_of_epoch

_BIN_BITS: Final = 20
_AGE_BITS: Final = 10
MOST_DAYS: Final = 1_000
"""So many days are looked at, at most."""

_OFFSET: Final = 2 ** (_BIN_BITS - 1)
"""Makes bins positive; 0 is left for a rate of zero."""

_LN_RATIO: Final = math.log(BIN_RATIO)
_MINUTES: Final = np.arange(60)
_OF_BROKER: Final = ("cluster_id", "dt", "hour", "broker_id")


def grouped(
    rows: pa.Table, by: Sequence[str], how: Mapping[str, str], same: Sequence[str] = ()
) -> pa.Table:
    """Return each group of rows once, with a value of each column.

    Args:
        how: By column, Arrow's function of the values: ``max``, ``sum``.
        same: Columns whose values are the same in a group.
    """
    functions = [(_ROW, "one"), *how.items()]
    numbered = rows.select([*by, *how]).append_column(_ROW, pa.array(np.arange(len(rows))))
    found = numbered.group_by(by).aggregate(functions)
    # Of texts, rows are looked up in half of the time that the values would take.
    columns = rows.select([*by, *same]).take(found[f"{_ROW}_one"])
    for name, function in how.items():
        columns = columns.append_column(name, found[f"{name}_{function}"])
    return columns


_ROW: Final = "row"


def groups_of(rows: pa.Table, by: Sequence[str]) -> tuple[Numbers, Numbers]:
    """Return the number of the group of each row, and the first row of each group."""
    numbers = np.zeros(rows.num_rows, np.int64)
    for name in by:
        encoded = rows[name].combine_chunks().dictionary_encode()
        numbers = numbers * len(encoded.dictionary) + encoded.indices.to_numpy()
    _, firsts, groups = np.unique(numbers, return_index=True, return_inverse=True)
    return groups, firsts


def exact_decimals(values: Numbers, digits: int = 0) -> pa.Array:
    """Return numbers with so many decimal digits, at most 10^24: their sums have no error."""
    return pa.array(np.minimum(values, 1e24)).cast(pa.decimal128(38, digits))


def reported_minutes(hours: pa.Table) -> pa.Table:
    """Return the bits of the minutes in which brokers reported anything."""
    groups, firsts = groups_of(hours, _OF_BROKER)
    present = np.zeros(len(firsts), np.int64)
    np.bitwise_or.at(present, groups, hours["present"].to_numpy())
    return hours.select(_OF_BROKER).take(firsts).append_column("present", pa.array(present))


def with_reported(hours: pa.Table, reported: pa.Table, newest: Mapping[str, str]) -> pa.Table:
    """Add ``age`` and ``reported`` to hours, as ``Evidence.map_buckets`` says.

    What was reported are the ``reported_minutes`` of all hours, and newest the days of clusters.
    """
    last = pa.array(newest.values(), pa.string()).cast(pa.date32()).cast(pa.int32()).to_numpy()
    cluster = pc.index_in(hours["cluster_id"], pa.array(newest, pa.string())).to_numpy()
    age = last[cluster].astype(np.int64) - hours["dt"].cast(pa.int32()).to_numpy()
    both = [rows.select(_OF_BROKER) for rows in (reported, hours)]
    groups, firsts = groups_of(pa.concat_tables(both), _OF_BROKER)
    minutes = np.zeros(len(firsts), np.int64)
    minutes[groups[: len(reported)]] = np.bitwise_count(reported["present"].to_numpy())
    added = hours.append_column("age", pa.array(age))
    return added.append_column("reported", pa.array(minutes[groups[len(reported) :]]))


def in_order(hours: pa.Table) -> pa.Table:
    """Return hours in order of bucket, broker and time."""
    columns = (hours[name].to_numpy() for name in ("broker_id", "bucket_id"))
    return hours.take(np.lexsort((hours_of_epoch(hours), *columns))).combine_chunks()


def begins_on_brokers(hours: pa.Table) -> Numbers:
    """Return where the hours of a bucket on a broker begin: they are in order."""
    return begins_of(*(hours[name].to_numpy() for name in ("bucket_id", "broker_id")))


def uses_on_brokers(hours: pa.Table, percent: int, weights: Sequence[int]) -> pa.Table:
    """Return what each bucket used on each broker, in order of both.

    Args:
        hours: As ``Evidence.map_buckets`` hands them over, in order.
        percent: Of the minutes that ``rate`` holds for.
        weights: Of minutes, by the age of a day.

    Returns:
        ``cluster_id, key, bucket_id, broker_id``; ``level`` and ``limit`` of the last hour;
        ``minutes``, ``expected`` (that the broker reported in the hours of the bucket) and
        ``throttled``; ``p95`` and ``rate`` (at the percentile), the middle of their bins;
        ``peak``.
    """
    begins = begins_on_brokers(hours)
    peak = np.maximum.reduceat(hours["rate_max"].to_numpy(), begins)
    p95, rate = _rates(hours, begins, (95, percent), np.array(weights, np.int64))
    last = hours.select(["cluster_id", "key", "bucket_id", "broker_id", "level", "limit"])
    uses = last.take(ends_of(begins, hours.num_rows))
    for name, column in (
        ("minutes", "minutes"),
        ("expected", "reported"),
        ("throttled", "throttled_minutes"),
    ):
        sums = np.add.reduceat(hours[column].to_numpy().astype(np.int64), begins)
        uses = uses.append_column(name, pa.array(sums))
    for name, rates in (("p95", p95), ("rate", rate)):
        uses = uses.append_column(name, pa.array(np.minimum(rates, peak)))
    return uses.append_column("peak", pa.array(peak))


def _rates(
    hours: pa.Table, begins: Numbers, percents: Sequence[int], weights: Numbers
) -> list[Numbers]:
    """Return the rates at percentiles: the first bin whose weighted count reaches the rank."""
    bins: Any = hours["bins"].combine_chunks()
    counts = np.diff(bins.offsets.to_numpy())
    values = bins.flatten().to_numpy().astype(np.int64)
    codes = np.where(values == ZERO_BIN, 0, values + _OFFSET)
    run = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(counts)))
    upper = (run << (_BIN_BITS + _AGE_BITS)) + hours["age"].to_numpy()
    packed = np.sort(np.repeat(upper, counts) + (codes << _AGE_BITS))
    reached = np.cumsum(weights[packed & 2**_AGE_BITS - 1])
    ends = np.searchsorted(packed, (np.arange(len(begins)) + 1) << (_BIN_BITS + _AGE_BITS))
    totals = reached[ends - 1]
    before = np.append(0, totals[:-1])
    found = []
    for percent in percents:
        rank = before + (percent * (totals - before) + 99) // 100
        at = packed[np.searchsorted(reached, rank)] >> _AGE_BITS & 2**_BIN_BITS - 1
        found.append(_rates_of(pa.array(np.where(at == 0, ZERO_BIN, at - _OFFSET))))
    return found


def minutes_of_hours(hours: pa.Table) -> tuple[Numbers, Numbers, Numbers]:
    """Return the minutes with data of hours, in their order: row, minute of the hour and rate."""
    row, minute = np.nonzero(hours["present"].to_numpy()[:, None] >> _MINUTES & 1)
    return row, minute, _rates_of(hours["bins"].combine_chunks().flatten())


def _rates_of(bins: pa.Array) -> Numbers:
    """Return the rates that stand for bins: Python's own exponential, the same on all machines."""
    encoded = bins.dictionary_encode()
    rates = [
        0.0 if number == ZERO_BIN else math.exp((number + 0.5) * _LN_RATIO)
        for number in encoded.dictionary.to_pylist()
    ]
    found: Numbers = np.array(rates, float)[encoded.indices.to_numpy()]
    return found
